"""Sub-words are those of a translation model's own data: the same pieces, the same ids, also for new text."""

import io

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.tokenizer import tokenize_line
from support.helpers import REPOSITORY

from muse_plugin.text import SPECIAL_SYMBOLS
from muse_plugin.text.byte_pair_encoding import BytePairEncoding
from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import load_text_settings
from muse_plugin.text.tokenizer import Tokenizer

CODES = "#version: 0.2\nl o\nlo w\nlow er</w>\ne r</w>\n"
PIECES = ("low@@", "lower", "er", "n@@", "&@@", "lo@@", "w", "low", "apos@@", ";@@", "s")
TRAIN = "yes\tlower low\nno\tnewer\n"


@pytest.fixture(autouse=True)
def _packages():
    pytest.importorskip("subword_nmt", reason="sub-words need subword-nmt")


@pytest.fixture
def codes(write):
    return write("codes", CODES)


@pytest.fixture
def dictionary(tmp_path):
    words = Dictionary()
    for i, piece in enumerate(PIECES):
        words.add_symbol(piece, n=50 - i)
    words.save(str(tmp_path / "dict.en.txt"))
    return tmp_path / "dict.en.txt"


def ids(folder, split="train"):
    return data_utils.load_indexed_dataset(str(folder / split), Dictionary.load(str(folder / "dict.txt")))


def test_pieces_and_ids_are_those_of_apply_bpe_and_the_given_dictionary(tmp_path, write, prepare, codes, dictionary):
    from subword_nmt.apply_bpe import BPE

    printed = prepare("--train", write("t.tsv", TRAIN), "--bpe-codes", codes, "--dictionary", dictionary)
    data = tmp_path / "data"
    assert (data / "input0" / "dict.txt").read_bytes() == dictionary.read_bytes()
    assert (data / "bpe.codes").read_text() == CODES
    known = Dictionary.load(str(dictionary))
    bpe = BPE(io.StringIO(CODES))
    for line, found in zip(["lower low", "newer"], ids(data / "input0"), strict=True):
        pieces = bpe.process_line(line)
        assert found.tolist() == known.encode_line(pieces, tokenize_line, add_if_not_exist=False).tolist()
    text, record = load_text_settings(data)
    assert (text.settings.subwords, record.vocabulary) == (
        "subword-nmt",
        {"threshold": 0, "size": 15, "from": "dict.en.txt"},
    )
    assert "vocabulary: 11 words, 15 rows" in printed


def test_new_text_is_cut_alike_after_the_folder_has_moved_and_the_codes_are_gone(tmp_path, write, prepare, codes):
    prepare("--train", write("t.tsv", TRAIN), "--bpe-codes", codes)
    codes.unlink()
    (tmp_path / "data").rename(tmp_path / "moved")
    tokenizer = Tokenizer.load(load_text_settings(tmp_path / "moved")[0])
    assert tokenizer.split(" newer\u00a0low\n") == ["n@@", "e@@", "w@@", "er", "lo@@", "w"]
    # A word that reads as a special symbol is an ordinary one, in pieces.
    assert "".join(tokenizer.split("</s>")).replace("@@", "") == "&lt;/s&gt;"
    assert tokenizer.split("  ") == []


@pytest.mark.parametrize("lower_case", [True, False])
def test_raw_text_is_treated_as_by_the_pipeline_of_a_translation_model(tmp_path, write, prepare, lower_case):
    english = ["It's the “lower” end.", "A & B aren't <s> 2 : 30.", "Mr. Low sees e-mail @ home"] * 2
    pipeline = TextPipeline.learn("en", "de", english, english, 20, lower_case)
    pipeline.save(tmp_path / "model")
    lines = "".join(f"{i % 2}\t{line}\n" for i, line in enumerate(english))
    casing = "--lower-case" if lower_case else "--no-lower-case"
    prepare(
        *("--train", write("t.tsv", lines), "--tokenizer", "moses", casing),
        *("--bpe-codes", tmp_path / "model" / "bpe.codes"),
    )
    tokenizer = Tokenizer.load(load_text_settings(tmp_path / "data")[0])
    known = Dictionary.load(str(tmp_path / "data" / "input0" / "dict.txt"))
    for line, found in zip(english, ids(tmp_path / "data" / "input0"), strict=True):
        expected = pipeline.encode_source(line)
        assert " ".join(tokenizer.split(line)) == expected
        assert known.string(found) == expected


def test_pieces_of_sentencepiece_are_those_of_the_pipeline_of_a_translation_model(tmp_path, write, prepare):
    english = ["It's the “lower” end.", "A & B aren't <s> 2 : 30.", "Mr. Low sees e-mail @ home"] * 2
    pipeline = TextPipeline.learn("en", "de", english, english, 40, True, "sentencepiece", "none")
    pipeline.save(tmp_path / "model")
    train = write("t.tsv", "".join(f"{i % 2}\t{line}\n" for i, line in enumerate(english)))
    prepare("--train", train, "--lower-case", "--sentencepiece-model", tmp_path / "model" / "sentencepiece.model")
    (tmp_path / "model" / "sentencepiece.model").unlink()
    tokenizer = Tokenizer.load(load_text_settings(tmp_path / "data")[0])
    known = Dictionary.load(str(tmp_path / "data" / "input0" / "dict.txt"))
    for line, found in zip(english, ids(tmp_path / "data" / "input0"), strict=True):
        assert " ".join(tokenizer.split(line)) == pipeline.encode_source(line) == known.string(found)
    prepare("--train", train, output="words")
    flags = ("--sentencepiece-model", tmp_path / "data" / "sentencepiece.model", "--dict-from", tmp_path / "words")
    with pytest.raises(ValueError, match=r"alike, .* \(subwords is none there and sentencepiece here\); use the same"):
        prepare("--train", train, *flags, output="other")


def test_text_of_the_multi30k_recipe_gets_the_pieces_of_subword_nmt(tmp_path, write, prepare):
    """Words that are escaped already stay what they are."""
    source = REPOSITORY.parent / "shared" / "data" / "multi30k" / "test_2016_flickr.lc.norm.tok.en"
    if not source.is_file():
        pytest.skip("Multi30k is not here")
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    lines = source.read_text(encoding="utf-8").splitlines()
    codes = io.StringIO()
    learn_bpe(lines, codes, 300)
    prepare(
        *("--train", write("t.tsv", "".join(f"{i % 2}\t{line}\n" for i, line in enumerate(lines)))),
        *("--bpe-codes", write("codes", codes.getvalue())),
    )
    known = Dictionary.load(str(tmp_path / "data" / "input0" / "dict.txt"))
    codes.seek(0)
    bpe = BPE(codes)
    assert [known.string(found) for found in ids(tmp_path / "data" / "input0")] == [
        bpe.process_line(line).strip() for line in lines
    ]


def test_an_earlier_output_must_have_the_same_sub_words(tmp_path, write, prepare, codes):
    train = write("t.tsv", TRAIN)
    prepare("--train", train, "--bpe-codes", codes, output="earlier")
    prepare("--train", train, "--bpe-codes", codes, "--dict-from", tmp_path / "earlier", output="same")
    with pytest.raises(ValueError, match="subwords is subword-nmt there and none here"):
        prepare("--train", train, "--dict-from", tmp_path / "earlier", output="other")


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        (["--bpe-codes", "gone"], FileNotFoundError, r"--bpe-codes must name a file, but gone does not exist"),
        (["--bpe-codes", "bad"], ValueError, r"bad must start with the line '#version: 0.2', but got 'l o'"),
        (
            ["--sentencepiece-model", "gone"],
            FileNotFoundError,
            r"--sentencepiece-model must name a file, but gone does",
        ),
        (
            ["--sentencepiece-model", "bad"],
            ValueError,
            r"bad must be a model of SentencePiece, but its 11 bytes are none",
        ),
        (
            ["--sentencepiece-model", "bad", "--bpe-codes", "codes"],
            ValueError,
            r"words are cut in one way, but got --bpe",
        ),
        (
            ["--sentencepiece-model", "bad", "--format", "conll"],
            ValueError,
            r"--sentencepiece-model needs one label for",
        ),
        (["--dictionary", "gone"], FileNotFoundError, r"--dictionary must name a dictionary of fairseq, but .*gone"),
        (["--dictionary", "bad"], ValueError, r"bad must be a dictionary of fairseq, but reading it gave"),
        (["--dictionary", "good", "--threshold", "2"], ValueError, r"nothing is counted, but got --threshold; drop"),
        (["--dictionary", "good", "--dict-from", "x"], ValueError, r"nothing is counted, but got --dict-from; drop"),
        (["--bpe-codes", "codes", "--format", "conll"], ValueError, r"--bpe-codes needs one label for each text"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, write, prepare, codes, dictionary, monkeypatch, flags, error, message):
    monkeypatch.chdir(tmp_path)
    write("bad", "l o\nlo w x\n")
    dictionary.rename(tmp_path / "good")
    with pytest.raises(error, match=message):
        prepare("--train", write("t.tsv", TRAIN), *flags)
    assert not (tmp_path / "data").exists()


def test_no_more_words_are_remembered_than_stated(monkeypatch):
    """subword-nmt itself keeps every word that it has seen, which fills the memory with a long text."""
    from muse_plugin.text import byte_pair_encoding

    monkeypatch.setattr(byte_pair_encoding, "_REMEMBERED_WORDS", 50)
    encoding = byte_pair_encoding.BytePairEncoding(CODES)
    for i in range(500):
        assert encoding.split([f"low{i}"])[0] == "low@@"
        assert len(encoding._bpe.cache) <= 52


@pytest.mark.parametrize("symbol", SPECIAL_SYMBOLS)
def test_no_end_of_a_word_becomes_a_special_symbol(symbol):
    """Codes that were learned on words which end with one would put it in the middle of a sentence."""
    merged = [symbol[: i + 1] for i in range(len(symbol))]
    merges = [f"{left} {right}" for left, right in zip(merged, symbol[1:-1], strict=False)]
    codes = "\n".join(["#version: 0.2", *merges, f"{merged[-2]} ></w>", ""])
    encoding = BytePairEncoding(codes)
    spelled = [f"{character}@@" for character in symbol[:-1]] + [">"]
    assert encoding.split([f"x{symbol}"]) == ["x@@", *spelled]
    assert encoding.split([symbol]) == [symbol]  # the tokenizer escapes it
