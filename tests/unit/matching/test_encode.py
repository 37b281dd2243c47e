"""Vectors are those that the model makes, in the order of the file, also where the program was killed on the way."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from support.dying import Killed, die_at
from support.helpers import assert_close
from support.sentence_checkpoints import prepare_text

from muse_plugin.matching import cache_writer, encode, sentences
from muse_plugin.matching.encode import encode_file
from muse_plugin.matching.vector_cache import VectorCache, read_meta
from muse_plugin.text.word_pieces import PieceRules, WordPieces
from muse_plugin_command import cli


@pytest.fixture
def small_buffers(monkeypatch):
    """Work is safe after each six sentences."""
    monkeypatch.setattr(sentences, "_BUFFER_ROWS", 6)


@pytest.fixture
def text(tmp_path, lines):
    """A file of 20 sentences."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def lines(make_lines):
    return make_lines(20)


def read_files(folder):
    return {name: (folder / name).read_bytes() for name in ("vectors.bin", "ids", "meta.json")}


def represent(model, line):
    words = model.predictor.tokenizer.split(line)[: model.max_words]
    tokens = torch.tensor([[model.task.source_dictionary.index(word) for word in words]])
    with torch.no_grad():
        return model.model.represent(tokens, torch.tensor([len(words)]))[0]


def test_every_row_is_the_vector_of_its_line(load, text, lines, tmp_path, small_buffers):
    model = load()
    meta, fresh = encode_file(model, text, tmp_path / "c")
    assert (meta.done, fresh, meta.whole) == (20, 20, True)
    assert meta.truncated == sum(len(line.split()) > 6 for line in lines) > 0
    cache = VectorCache(tmp_path / "c")
    expected = torch.stack([represent(model, line) for line in lines])
    assert_close(cache.read(0, 20), expected, why="batches and buffers must not matter")
    assert cache.names(range(20)) == [str(i + 1) for i in range(20)]


def test_one_by_one_the_bits_are_the_same(load, text, lines, tmp_path):
    model = load(batch_size=1)
    encode_file(model, text, tmp_path / "c")
    expected = torch.stack([represent(model, line) for line in lines])
    assert torch.equal(VectorCache(tmp_path / "c").read(0, 20), expected)


def test_ids_are_the_first_column(load, lines, tmp_path, make_cache):
    folder = make_cache("c", [f"doc {i}\t{line}" for i, line in enumerate(lines)], with_ids=True)
    plain = make_cache("plain", lines)
    cache = VectorCache(folder)
    assert cache.names([0, 19]) == ["doc 0", "doc 19"]
    assert_close(cache.read(0, 20), VectorCache(plain).read(0, 20), atol=0, rtol=0)


def test_half_precision_is_the_rounded_vector(lines, make_cache):
    half, full = VectorCache(make_cache("half", lines, dtype="float16")), VectorCache(make_cache("full", lines))
    assert_close(half.read(0, 20), full.read(0, 20).half().float(), atol=0, rtol=0)


def test_an_encoder_that_dies_anywhere_goes_on_to_the_same_bytes(load, text, tmp_path, small_buffers):
    encode_file(load(), text, tmp_path / "whole")
    whole = read_files(tmp_path / "whole")
    died = 0
    for name in ("fsync", "replace"):
        for call in range(1, 40):
            folder = tmp_path / f"{name}_{call}"
            with pytest.MonkeyPatch.context() as patch:
                die_at(patch, call, (os, name))
                try:
                    encode_file(load(), text, folder)
                except Killed:
                    died += 1
                else:
                    break
            encode_file(load(), text, folder)
            assert read_files(folder) == whole, f"died at {name} {call}"
    assert died > 20


def test_a_killed_process_leaves_what_can_be_continued(load, text, tmp_path, small_buffers, monkeypatch):
    model = load()
    encode_file(model, text, tmp_path / "whole")
    encoded = []
    original = type(model).encode
    monkeypatch.setattr(type(model), "encode", lambda self, words: encoded.extend(words) or original(self, words))
    write_meta = cache_writer.write_meta

    def write_or_die(meta, folder):
        if meta.done == 18:
            os.kill(os.getpid(), signal.SIGKILL)
        write_meta(meta, folder)

    process = os.fork()
    if process == 0:
        try:
            cache_writer.write_meta = write_or_die
            encode_file(model, text, tmp_path / "c")
        finally:
            os._exit(1)  # not reached
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    meta = read_meta(tmp_path / "c")
    assert (meta.done, meta.whole) == (12, False)
    assert (tmp_path / "c" / "vectors.bin").stat().st_size == 18 * meta.row_bytes  # more than was recorded
    _, fresh = encode_file(model, text, tmp_path / "c")
    assert fresh == len(encoded) == 8
    assert read_files(tmp_path / "c") == read_files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("content", "flags", "words"),
    [
        (b"good\n\xc2\xa0\t\nbad\n", [], "every line must have a sentence, .* but line 2 is blank; remove it"),
        (b"good\n\xe2\x80\x8b\n", [], "but line 2 is blank"),
        (b"", [], "a text must have a sentence, but .*text is empty"),
        (b"a\tgood\nbad film\n", ["--ids"], "an id, a tab and a sentence, but line 2 of .*text is 'bad film'"),
        (b"a\tgood\n \tbad\n", ["--ids"], "an id, a tab and a sentence, but line 2 of"),
        (b"a\tgood\nb\t\n", ["--ids"], "but line 2 is blank"),
        (b"a\tgood\nb\tbad\na\tfilm\n", ["--ids"], "ids must be unique, but 'a' of line 3 of .* is that of line 1 too"),
        (b"good\n" + b"bad " * 7, ["--long-texts", "refuse"], "refuse allows 6 words, but line 2 has 7; raise --max"),
        (
            b"a" * (1 << 20) + b"\tgood\n",
            ["--ids"],
            "fewer than 1,048,576 bytes, but that in line 1 of .* has 1,048,576",
        ),
        (b"good\n", ["--batch-size", "0"], "--batch-size must be at least 1, but got 0"),
        (b"good\n", ["--max-words", "-1"], "--max-words must be at least 1, but got -1"),
    ],
    ids=[
        "blank",
        "invisible",
        "empty",
        "no_tab",
        "no_id",
        "blank_with_id",
        "twice",
        "long",
        "long_id",
        "batch",
        "words",
    ],
)
def test_what_cannot_be_encoded_is_named_and_nothing_is_made(shop, tmp_path, capsys, content, flags, words):
    (tmp_path / "text").write_bytes(content)
    assert run(shop.yes_no, tmp_path / "text", tmp_path / "c", *flags) == 2
    error = " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match=words):
        raise ValueError(error)
    assert not (tmp_path / "c").exists()


def test_a_line_of_signs_that_word_pieces_do_not_know_is_found_before_anything_is_encoded(tmp_path):
    pieces = WordPieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], PieceRules(True, True, True))
    model = SimpleNamespace(predictor=SimpleNamespace(long_texts="truncate", tokenizer=pieces))
    source = tmp_path / "text"
    source.write_text("a\na\n")
    assert sentences.survey_text(model, source, False)[1] == 2
    source.write_text("a\n\ufffd\na\n")
    with pytest.raises(ValueError, match=r"line 2"):
        sentences.survey_text(model, source, False)


def run(path, source, folder, *flags):
    words = ["--path", str(path), "--input", str(source), "--output", str(folder), "--cpu"]
    return cli.main(["match", "encode", *words, *flags])


def test_the_command_says_how_fast_it_was_and_what_it_cut(shop, text, tmp_path, capsys, caplog):
    assert run(shop.yes_no, text, tmp_path / "c", "--max-words", "3") == 0
    said = capsys.readouterr().err
    assert "20 vectors of width 16; encoded 20 sentences in" in said
    assert "sentences were longer than 3 words; only the first words were read" in said
    before = read_files(tmp_path / "c")
    assert run(shop.yes_no, text, tmp_path / "c", "--max-words", "3") == 0
    assert said.startswith("using checkpoint_best.pt, the only checkpoint in the folder ")
    assert "was whole already: 20 sentences" in capsys.readouterr().err
    assert run(shop.yes_no, text, tmp_path / "c") == 2
    assert "another --max-words (max_words 3, now 6)" in capsys.readouterr().err
    assert read_files(tmp_path / "c") == before
    text.write_text("film\tfilm\n")
    assert run(shop.yes_no, text, tmp_path / "c", "--max-words", "3") == 2
    assert "another text (text_sha256" in capsys.readouterr().err
    assert "line 1 has a tab, which is read as a space; give --ids" in caplog.text


def test_bad_paths_are_named(shop, text, tmp_path, capsys):
    assert run(shop.yes_no, tmp_path / "none", tmp_path / "c") == 2
    assert "--input must name a text file, but" in capsys.readouterr().err
    assert run(shop.yes_no, tmp_path, tmp_path / "c") == 2
    assert "--input must name an ordinary file, which is read twice" in capsys.readouterr().err
    assert run(shop.yes_no, text, tmp_path) == 2
    assert "also holds text.txt; name another folder" in capsys.readouterr().err


def test_a_text_that_changes_meanwhile_gives_no_whole_cache(load, text, tmp_path, small_buffers, monkeypatch):
    original = encode.read_words

    def change(*args, **options):
        with text.open("a") as file:
            file.write("more\n")
        return original(*args, **options)

    monkeypatch.setattr(encode, "read_words", change)
    with pytest.raises(ValueError, match=r"must not change while it is encoded"):
        encode_file(load(), text, tmp_path / "c")
    assert not read_meta(tmp_path / "c").whole


def test_text_of_unknown_words_is_reported(shop, tmp_path, caplog):
    (tmp_path / "text").write_text("strange words here\n" * 40)
    assert run(shop.yes_no, tmp_path / "text", tmp_path / "c") == 0
    assert "100 % of the words are not in the dictionary" in caplog.text


def test_invalid_bytes_are_reported_once(shop, tmp_path, caplog):
    (tmp_path / "text").write_bytes(b"good\nbad \xff film\n")
    assert run(shop.yes_no, tmp_path / "text", tmp_path / "c") == 0
    assert caplog.text.count("line 2 is not valid UTF-8") == 1


def test_models_that_do_not_read_pairs_are_refused(shop, tmp_path, capsys):
    data = prepare_text(tmp_path, "a b\tno\nb a\tyes\n" * 3, "--format", "tsv:text=1,label=2")
    shop.save_checkpoint(tmp_path, data)
    assert run(tmp_path, tmp_path / "data.txt", tmp_path / "c") == 2
    assert "match compares two sentences, but this model reads single sentences; train one" in capsys.readouterr().err
