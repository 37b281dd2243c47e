"""``muse-plugin prepare-translation``: what it makes of two files, and what it refuses."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from fairseq.data import Dictionary, indexed_dataset
from support.helpers import REPOSITORY

from muse_plugin.preparation import prepare_translation
from muse_plugin.preparation.parallel_map import map_in_order
from muse_plugin.text.sentence_pieces import SentencePieces
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME
from muse_plugin_command import cli

TATOEBA = REPOSITORY.parent / "shared" / "data" / "tatoeba-en-de" / "deu.txt.gz"
WORDS = {
    "de": "der Hund, die Katze sieht Häuser und „wir“ gehen heute nicht-mehr nach Hause zu 2:30 &amp; <s> @".split(),
    "en": "the dog, a cat can't see houses “and” we don't go home any-more at 2:30 today &amp; <s> @".split(),
}


def write(prefix, pairs):
    for lang, column in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        (prefix.parent / f"{prefix.name}.{lang}").write_text("".join(f"{line}\n" for line in column), encoding="utf-8")


def make_pairs(count, seed=1):
    """Real sentences where they are, made-up ones elsewhere."""
    if TATOEBA.is_file():
        with gzip.open(TATOEBA, "rt", encoding="utf-8", newline="\n") as file:
            rows = [line.rstrip("\n").split("\t")[1::-1] for line in file][seed::60]
        return rows[:count]
    choose = random.Random(seed).choices
    return [[" ".join(choose(WORDS[lang], k=5 + i % 7)) + "." for lang in ("de", "en")] for i in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write(folder / "train", make_pairs(400))
    for i, name in enumerate(("valid", "test", "other"), start=2):
        write(folder / name, make_pairs(20, i))
    return folder


@pytest.fixture
def prepare(texts, tmp_path):
    """Calls the command; the output is ``tmp_path / "data"`` unless given."""

    def call(*words, **flags):
        flags = {"train": texts / "train", "valid": texts / "valid", "output": tmp_path / "data", **flags}
        given = [part for name, value in flags.items() if value is not None for part in (f"--{name}", value)]
        return cli.main([str(word) for word in ("prepare-translation", *LANGUAGES, *given, *words)])

    return call


LANGUAGES = ("--source-lang", "de", "--target-lang", "en")


def read_data(folder, split, lang):
    """The tokens of a binarised file, line by line."""
    dictionary = Dictionary.load(str(folder / f"dict.{lang}.txt"))
    data = indexed_dataset.MMapIndexedDataset(str(folder / f"{split}.de-en.{lang}"))
    return [[dictionary[i] for i in line.tolist()[:-1]] for line in data]


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["--subwords", "sentencepiece:200"], ["sentencepiece.model"]),
        (["--subwords", "sentencepiece:bpe:200", "--lower-case", "--workers", "2"], ["sentencepiece.model"]),
        (
            ["--subwords", "sentencepiece:150", "--separate"],
            ["sentencepiece.source.model", "sentencepiece.target.model"],
        ),
        (["--subwords", "bpe:150", "--normalize", "--aggressive-hyphens"], ["bpe.codes"]),
        (["--subwords", "bpe:150", "--separate"], ["bpe.source.codes", "bpe.target.codes"]),
        (["--subwords", "none", "--tokenizer", "moses"], []),
    ],
)
def test_raw_text_gives_the_tokens_of_the_prepared_text(texts, prepare, tmp_path, words, files):
    assert prepare("--test", texts / "test", texts / "other", *words, "--keep-train-text") == 0
    folder = tmp_path / "data"
    data = [f"{split}.de-en.{lang}.{end}" for split in ("test", "test1", "train", "valid") for lang in ("de", "en")
            for end in ("bin", "idx")]  # fmt: skip
    text = ["train.tok.de", "train.tok.en", FILE_NAME]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*files, "dict.de.txt", "dict.en.txt", *data, *text]
    )
    pipeline = TextPipeline.load(folder)
    for split, name in (("train", "train"), ("test1", "other")):
        for lang, encode in (("de", pipeline.encode_source), ("en", pipeline.encode_target)):
            lines = (texts / f"{name}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            prepared = read_data(folder, split, lang)
            assert len(prepared) == len(lines)
            for line, tokens in zip(lines, prepared, strict=True):
                known = {*tokens, "<unk>"}
                assert tokens == [token if token in known else "<unk>" for token in encode(line).split()]
                assert split != "train" or "none" in words or "<unk>" not in tokens or "sentencepiece" in words[1]
    assert (folder / "train.tok.de").read_text(encoding="utf-8").count("\n") == 400
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_dictionary_is_the_vocabulary_of_the_pieces_and_joint(prepare, tmp_path):
    assert prepare(subwords="sentencepiece:120") == 0
    folder = tmp_path / "data"
    assert (folder / "dict.de.txt").read_bytes() == (folder / "dict.en.txt").read_bytes()
    pipeline = TextPipeline.load(folder)
    pieces = SentencePieces(pipeline.source.content).list_pieces()
    assert Dictionary.load(str(folder / "dict.de.txt")).symbols[4:] == pieces


def test_subwords_are_learned_on_the_training_text_alone(texts, prepare, tmp_path):
    assert prepare(subwords="sentencepiece:120") == 0
    write(tmp_path / "odd", [["ǂǂ ǂǂ", "ǁǁ ǁǁ"]] * 50)
    assert prepare("--test", tmp_path / "odd", subwords="sentencepiece:120", valid=tmp_path / "odd",
                   output=tmp_path / "again") == 0  # fmt: skip
    models = [(tmp_path / name / "sentencepiece.model").read_bytes() for name in ("data", "again")]
    assert models[0] == models[1]


def test_files_may_be_compressed_and_the_processes_change_nothing(texts, prepare, tmp_path, monkeypatch):
    for lang in ("de", "en"):
        (tmp_path / f"packed.{lang}.gz").write_bytes(gzip.compress((texts / f"train.{lang}").read_bytes()))
    assert prepare(subwords="bpe:100") == 0
    monkeypatch.setattr("muse_plugin.preparation.parallel_map._CHUNK", 7)
    assert prepare(subwords="bpe:100", train=tmp_path / "packed", workers=3, output=tmp_path / "again") == 0
    for path in (tmp_path / "data").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_validation_may_come_from_the_training_text(texts, prepare, tmp_path, capsys):
    words = {"valid": None, "subwords": "none"}
    assert prepare("--valid-from-train", "0.1", **words) == 0
    assert "train: 360 pairs" in capsys.readouterr().out
    folder = tmp_path / "data"
    text = re.sub(r"(?<!\S)<s>(?!\S)", "&lt;s&gt;", (texts / "train.en").read_text(encoding="utf-8"))
    lines = text.split("\n")
    valid = [" ".join(tokens) for tokens in read_data(folder, "valid", "en") if "<unk>" not in tokens]
    assert len(read_data(folder, "valid", "de")) == 40
    assert set(valid) <= set(lines)
    assert prepare("--valid-from-train", "400", output=tmp_path / "again", **words) == 2
    assert "--valid-from-train must leave sentences for training" in capsys.readouterr().err


def test_pairs_with_an_empty_or_long_line_are_refused_or_dropped(prepare, tmp_path, capsys):
    pairs = [["ein Hund", "a dog"], ["\u200b", "a cat"], ["x " * 30, "y"], ["z" * 700, "z"], ["zwei", "two"]]
    write(tmp_path / "odd", pairs)
    words = {"train": tmp_path / "odd", "subwords": "none", "max-length": 20}
    for flags, message in (
        ([], "odd.de does not"),
        (
            ["--long", "skip"],
            f"--train: a line must hold a sentence, but line 2 of {tmp_path}/odd.de does not; correct",
        ),
        (
            ["--empty", "skip"],
            "a line must have at most 400 characters, 20 for each token of --max-length, but line 4 of",
        ),
    ):
        assert prepare(*flags, **words) == 2
        assert message in capsys.readouterr().err
    assert prepare("--empty", "skip", "--long", "skip", "--keep-train-text", **words) == 0
    assert "train: 2 pairs, 1.5 and 1.5 tokens a sentence, 1 empty dropped, 2 long dropped" in capsys.readouterr().out
    assert read_data(tmp_path / "data", "train", "de") == [["ein", "Hund"], ["zwei"]]
    assert (tmp_path / "data" / "train.tok.en").read_text() == "a dog\ntwo\n"
    write(tmp_path / "odd", pairs[:3])
    assert prepare("--empty", "skip", **{**words, "output": tmp_path / "again"}) == 2
    assert "a sentence must have at most 20 tokens (--max-length), but line 3 of" in capsys.readouterr().err
    write(tmp_path / "odd", pairs[1:2])
    assert prepare("--empty", "skip", **{**words, "output": tmp_path / "again"}) == 2
    assert f"--train must hold sentences, but {tmp_path}/odd.de has none that is kept" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"eins\nzwei\ndrei\n", "line n of the other, but {0}.de has 3 lines and {0}.en 2; make the shorter one again"),
        (
            b"eins\nzw\xffei\n",
            "--test must name a UTF-8 text file, but line 2 of {0}.de has the byte 0xff at position 3",
        ),
        (b"eins\n\n", "--test: a line must hold a sentence, but line 2 of {0}.de does not"),
        (b"", "--test must name a file with text, but {0}.de is empty"),
        (b"\x1f\x8bxx", "{0}.de starts as a gzip file but cannot be decompressed"),
    ],
)
def test_bad_text_gives_one_sentence_and_leaves_nothing(prepare, tmp_path, capsys, content, message):
    prefix = tmp_path / "bad"
    write(prefix, [["", "one"], ["", "two"]])
    (tmp_path / "bad.de").write_bytes(content)
    assert prepare("--test", prefix, subwords="bpe:50") == 2
    error = capsys.readouterr().err
    assert message.format(prefix) in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.de", "bad.en"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"subwords": "bpe"}, "--subwords must be sentencepiece:N, .* but got 'bpe'; sentencepiece:8000 is usual"),
        ({"subwords": "sentencepiece:0"}, "but got 'sentencepiece:0'"),
        ({"subwords": "word:8"}, "but got 'word:8'"),
        ({"valid": None}, "neither --valid PREFIX nor --valid-from-train is given; add one"),
        ({"valid-from-train": "0.1"}, "come from one place, but got --valid .* and --valid-from-train 0.1; drop one"),
        ({"valid": None, "valid-from-train": "1.5"}, "--valid-from-train must be a share between 0 and 1"),
        ({"train": "nowhere/x"}, r"--train nowhere/x must stand for nowhere/x\.de and .*there is no nowhere/x\.de"),
        ({"source-lang": "../x"}, r"--source-lang must be a code such as de or zh_TW, but got '\.\./x'"),
        ({"target-lang": "de"}, "the two languages must differ, but both are 'de'"),
        ({"max-length": 0}, "--max-length must be at least 1, but got 0"),
        ({"workers": 0}, "--workers must be at least 1, but got 0"),
        ({"output": "a,b"}, "--output must have neither a comma nor a colon in its path"),
        ({"aggressive-hyphens": None, "subwords": "sentencepiece:50"}, "needs --tokenizer moses, but that is none"),
        ({"subwords": "sentencepiece:3"}, "learning 3 pieces must have enough text for them"),
    ],
)  # fmt: skip
def test_wrong_flags_give_one_sentence(prepare, tmp_path, capsys, flags, message):
    switches = ["--aggressive-hyphens"] if "aggressive-hyphens" in flags else []
    assert prepare(*switches, **flags) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)
    assert list(tmp_path.iterdir()) == []


def test_prepared_data_is_replaced_on_request_and_nothing_else_ever(prepare, tmp_path, capsys):
    folder = tmp_path / "data"
    assert prepare(subwords="bpe:50") == 0
    assert prepare(subwords="none") == 2
    assert (
        "holds bpe.codes, dict.de.txt, dict.en.txt; name another folder or give --overwrite" in capsys.readouterr().err
    )
    assert prepare("--overwrite", subwords="none") == 0
    assert not (folder / "bpe.codes").exists()
    (folder / "checkpoint_best.pt").write_text("x")
    assert prepare("--overwrite", subwords="none") == 2
    assert "also holds checkpoint_best.pt" in capsys.readouterr().err
    assert (folder / "dict.de.txt").is_file()


def test_what_is_said_to_run_next_fits_the_data(prepare, tmp_path, capsys):
    assert prepare(subwords="sentencepiece:120") == 0
    shown = capsys.readouterr().out
    assert f"fairseq-train {tmp_path}/data --user-dir" in shown
    assert "--arch muse_tiny --share-all-embeddings" in shown
    assert "muse-plugin translate --path checkpoints/checkpoint_best.pt < raw.de" in shown
    assert "fairseq-generate" not in shown
    assert prepare("--separate", "--overwrite", "--test", tmp_path / "x", subwords="bpe:50") == 2
    settings = json.loads((tmp_path / "data" / FILE_NAME).read_text())
    assert settings["format_version"] == 4
    assert settings["texts"]["source"] | {"sha256": ""} == {
        **{"lang": "de", "normalize": False, "tokenizer": "none", "aggressive_hyphens": False, "escape": True},
        **{"lower_case": False, "detokenize": False, "subwords": "sentencepiece", "strip_accents": False},
        **{"split_chinese": True, "file": "sentencepiece.model", "sha256": ""},
    }


def test_a_command_that_is_killed_leaves_no_output_and_no_processes(texts, tmp_path):
    output = tmp_path / "out" / "data"
    words = [
        "prepare-translation",
        *LANGUAGES,
        "--train",
        texts / "train",
        "--valid",
        texts / "valid",
        "--workers",
        "2",
    ]
    code = (
        "import os, sys, time\n"
        "from muse_plugin.preparation import prepare_translation\n"
        "def work(pair):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "prepare_translation._start_words = lambda sides: work\n"
        "from muse_plugin_command import cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, *map(str, words), "--output", str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while not (line := process.stdout.readline().strip()).isdigit():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        process.stdout.read()  # ends when the last process that could write to it has ended
    assert line
    assert not output.exists()


def _make_square():
    return lambda number: number * number


def _end_process():
    return lambda number: os._exit(1) if number == 5000 else number


@pytest.mark.parametrize("workers", [1, 3])
def test_items_are_mapped_in_order_and_read_only_as_needed(workers):
    read = []
    results = map_in_order(_make_square, (read.append(i) or i for i in range(100_000)), workers)
    assert [next(results) for _ in range(3000)] == [i * i for i in range(3000)]
    assert len(read) <= 20_000
    results.close()


def test_a_process_that_dies_ends_the_map():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="terminated abruptly"):
        list(map_in_order(_end_process, range(10_000), 2))
    assert time.monotonic() - start < 30


def test_a_text_of_any_size_is_learned_on_a_sample(monkeypatch):
    from muse_plugin.text import sentence_pieces

    monkeypatch.setattr(sentence_pieces, "MOST_SENTENCES", 150)
    lines = [f"{a} {b}" for a in ("rot", "blau", "grün") for b in range(100)]
    models = [sentence_pieces.learn_pieces(lines, 40) for _ in range(2)]
    assert models[0] == models[1]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_every_character_of_a_small_alphabet_is_a_piece(kind):
    from muse_plugin.text import sentence_pieces

    lines = [f"{a} {b} {a}{b}" for a in ("rot", "blau", "gelb") for b in ("haus", "hof", "tor")] * 1000
    ideographs = "".join(map(chr, range(0x4E00, 0x4E40)))
    for rare, is_kept in (("2013", True), (ideographs, False)):
        model = sentence_pieces.learn_pieces([*lines, rare], 300, kind)
        pieces = sentence_pieces.SentencePieces(model).list_pieces()
        assert ({*rare} <= {*"".join(pieces)}) == is_kept


def test_the_presets_are_registered():
    from fairseq.models import ARCH_MODEL_REGISTRY

    assert all(arch in ARCH_MODEL_REGISTRY for _, arch, _ in prepare_translation._PRESETS)
