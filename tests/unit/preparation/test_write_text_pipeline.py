"""``muse-plugin text-pipeline``: existing subwords in, the pipeline that a model was trained with out."""

import contextlib
import io
import random

import pytest
from fairseq.data import Dictionary
from sacremoses import MosesTokenizer
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from muse_plugin.text.text_pipeline import TextPipeline
from muse_plugin.text.text_settings import FILE_NAME
from muse_plugin_command import cli

LANGUAGES = ("de", "en")
SYLLABLES = {
    "de": "der sie ung heit ver bahn hof ü ß straß lich".split(),
    "en": "the ing tion sh ou ld er ly wh ea".split(),
}


def make_text(lang, seed=1, count=400):
    """Sentences of words from a few syllables, Zipf-like, with capitals and punctuation."""
    chance = random.Random(f"{lang}{seed}")
    words = ["".join(chance.choices(SYLLABLES[lang], k=chance.randint(1, 4))) for _ in range(300)]
    weights = [1 / (i + 1) for i in range(len(words))]
    return [" ".join(chance.choices(words, weights, k=9)).capitalize() + ", isn't it?" for _ in range(count)]


def tokenize(lang, lines):
    moses = MosesTokenizer(lang=lang)
    return [moses.tokenize(line, return_str=True) for line in lines]


def learn(lines, merges=150):
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # its progress
        learn_bpe(io.StringIO("\n".join(lines)), codes, merges)
    return codes.getvalue()


def cut_by_codes(codes):
    return BPE(io.StringIO(codes)).process_line


def save_dictionary(path, lines):
    dictionary = Dictionary()
    for line in lines:
        for token in line.split():
            dictionary.add_symbol(token)
    dictionary.finalize(padding_factor=8)
    dictionary.save(str(path))


@pytest.fixture(scope="module")
def words():
    return {lang: tokenize(lang, make_text(lang)) for lang in LANGUAGES}


@pytest.fixture(scope="module")
def joint(words, tmp_path_factory):
    """Data as subword-nmt and fairseq-preprocess make them: joint codes, a dictionary for each language."""
    folder = tmp_path_factory.mktemp("joint")
    (folder / "codes").write_text(learn(words["de"] + words["en"]), encoding="utf-8")
    for lang in LANGUAGES:
        save_dictionary(folder / f"dict.{lang}.txt", map(cut_by_codes((folder / "codes").read_text()), words[lang]))
    return folder


@pytest.fixture
def write(tmp_path):
    """Calls the command; the output is ``tmp_path / "model"``."""

    def call(*given):
        flags = ["--source-lang", "de", "--target-lang", "en", "--output", tmp_path / "model", *given]
        return cli.main(["text-pipeline", *map(str, flags)])

    return call


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_joint_codes_give_the_tokens_of_subword_nmt(write, joint, tmp_path, capsys):
    assert write("--bpe-codes", joint / "codes", "--data", joint) == 0
    assert capsys.readouterr().err == ""
    pipeline = TextPipeline.load(tmp_path / "model")
    cut = cut_by_codes((joint / "codes").read_text())
    for lang, encode in (("de", pipeline.encode_source), ("en", pipeline.encode_target)):
        lines = make_text(lang, seed=2, count=50)
        assert [encode(line) for line in lines] == [cut(line) for line in tokenize(lang, lines)]
    assert list_names(tmp_path / "model") == ["bpe.codes", "dict.de.txt", "dict.en.txt", FILE_NAME]


def test_codes_of_each_side_give_the_tokens_of_subword_nmt(write, words, tmp_path, capsys):
    cuts = {}
    for lang in LANGUAGES:
        (tmp_path / f"codes.{lang}").write_text(learn(words[lang]), encoding="utf-8")
        cuts[lang] = cut_by_codes((tmp_path / f"codes.{lang}").read_text())
        save_dictionary(tmp_path / f"dict.{lang}.txt", map(cuts[lang], words[lang]))
    codes = ["--source-bpe-codes", tmp_path / "codes.de", "--target-bpe-codes", tmp_path / "codes.en"]
    assert write(*codes, "--data", tmp_path) == 0
    assert capsys.readouterr().err == ""
    pipeline = TextPipeline.load(tmp_path / "model")
    for lang, encode in (("de", pipeline.encode_source), ("en", pipeline.encode_target)):
        lines = make_text(lang, seed=2, count=50)
        assert [encode(line) for line in lines] == [cuts[lang](line) for line in tokenize(lang, lines)]
    swapped = ["--source-bpe-codes", tmp_path / "codes.en", "--target-bpe-codes", tmp_path / "codes.de"]
    assert write(*swapped, "--data", tmp_path, "--overwrite") == 2
    assert "tokens (" in capsys.readouterr().err
    assert TextPipeline.load(tmp_path / "model").source.content == (tmp_path / "codes.de").read_bytes()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_of_sentencepiece_gives_its_tokens(write, tmp_path, capsys, kind):
    text = {lang: [*make_text(lang), "漢字 ☃☃"] for lang in LANGUAGES}
    model = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=iter(text["de"] + text["en"]), model_writer=model, vocab_size=150, model_type=kind,
        character_coverage=0.999, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "own.model").write_bytes(model.getvalue())
    processor = SentencePieceProcessor(model_proto=model.getvalue())
    cut = lambda line: " ".join(processor.encode(line, out_type=str))  # noqa: E731
    assert "漢字" in cut(text["de"][-1]).split(), "a token that is not in the model's vocabulary"
    for lang in LANGUAGES:
        save_dictionary(tmp_path / f"dict.{lang}.txt", map(cut, text[lang]))
    assert write("--sentencepiece", tmp_path / "own.model", "--data", tmp_path) == 0
    assert capsys.readouterr().err == ""
    pipeline = TextPipeline.load(tmp_path / "model")
    for lang, encode in (("de", pipeline.encode_source), ("en", pipeline.encode_target)):
        assert [encode(line) for line in text[lang]] == list(map(cut, text[lang]))


def test_words_without_subwords(write, words, joint, tmp_path, capsys):
    for lang in LANGUAGES:
        save_dictionary(tmp_path / f"dict.{lang}.txt", words[lang])
    assert write("--tokenizer", "moses", "--data", tmp_path) == 0
    assert capsys.readouterr().err == ""
    assert TextPipeline.load(tmp_path / "model").encode_source("Der Hund, ja.") == "Der Hund , ja ."
    assert write("--tokenizer", "moses", "--data", joint, "--output", tmp_path / "other") == 2
    assert not (tmp_path / "other").exists()
    assert "it never makes" in capsys.readouterr().err


def test_codes_of_other_text_are_refused_with_numbers(write, words, joint, tmp_path, capsys):
    other = [line.lower() for line in words["de"] + words["en"]]
    (tmp_path / "codes").write_text(learn(other[::2] + tokenize("de", make_text("de", seed=3))), encoding="utf-8")
    assert write("--bpe-codes", tmp_path / "codes", "--data", joint) == 2
    error = capsys.readouterr().err
    assert "must be that of the training text, but it never makes" in error
    assert f"of {joint / 'dict.de.txt'} and {joint / 'dict.en.txt'}, such as '" in error
    assert "%) are missing there; give" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("merges", "fact"), [(149, "never makes 1 of the"), (400, "never makes 0 of the")])
def test_codes_of_other_size_give_a_warning(write, words, joint, tmp_path, capsys, merges, fact):
    (tmp_path / "codes").write_text(learn(words["de"] + words["en"], merges), encoding="utf-8")
    assert write("--bpe-codes", tmp_path / "codes", "--data", joint) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: the text pipeline must be")
    assert fact in error
    assert "translations suffer" in error


def test_text_that_was_lower_cased_gives_a_hint(write, words, tmp_path, capsys):
    lower = {lang: [line.lower() for line in words[lang]] for lang in LANGUAGES}
    (tmp_path / "codes").write_text(learn(lower["de"] + lower["en"]), encoding="utf-8")
    for lang in LANGUAGES:
        save_dictionary(tmp_path / f"dict.{lang}.txt", map(cut_by_codes((tmp_path / "codes").read_text()), lower[lang]))
    assert write("--bpe-codes", tmp_path / "codes", "--data", tmp_path) == 0
    assert "has a capital; if the text was lower-cased, give --lower-case" in capsys.readouterr().err
    assert write("--bpe-codes", tmp_path / "codes", "--data", tmp_path, "--lower-case", "--overwrite") == 0
    assert capsys.readouterr().err == ""
    assert TextPipeline.load(tmp_path / "model").target.settings.lower_case


def test_the_same_command_again_changes_nothing_and_another_needs_overwrite(write, joint, tmp_path, capsys):
    given = ["--bpe-codes", joint / "codes", "--data", joint]
    assert write(*given) == 0

    def look():
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (tmp_path / "model").iterdir()}

    before = look()
    assert write(*given) == 0
    assert look() == before
    assert write(*given, "--normalize") == 2
    assert f"{FILE_NAME} differs; name another folder or give --overwrite." in capsys.readouterr().err
    assert not TextPipeline.load(tmp_path / "model").source.settings.normalize
    assert write(*given, "--normalize", "--overwrite") == 0
    assert TextPipeline.load(tmp_path / "model").source.settings.normalize


def test_dictionaries_of_another_model_are_never_replaced(write, joint, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "dict.en.txt").write_text("only 1\n")
    assert write("--bpe-codes", joint / "codes", "--data", joint, "--overwrite") == 2
    assert "dict.en.txt differs" in capsys.readouterr().err
    assert list_names(tmp_path / "model") == ["dict.en.txt"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--bpe-codes", "codes", "--target-sentencepiece", "x"],
            "but got --bpe-codes and --target-sentencepiece; drop",
        ),
        (["--bpe-codes", "nowhere"], "--bpe-codes must name a file, but nowhere does not exist"),
        (["--sentencepiece", "codes"], "must be a model of SentencePiece"),
        (["--bpe-codes", "dict.de.txt"], "must start with the line '#version: 0.2'"),
        (["--bpe-codes", "codes", "--target-lang", "de"], "the two languages must differ"),
        (["--aggressive-hyphens"], "--aggressive-hyphens needs --tokenizer moses"),
        (
            ["--bpe-codes", "codes", "--target-lang", "fr"],
            "dict.fr.txt does not exist; name the folder that fairseq-pr",
        ),
        (["--bpe-codes", "codes", "--data", "nowhere"], "nowhere/dict.de.txt does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(write, joint, tmp_path, monkeypatch, capsys, given, message):
    monkeypatch.chdir(joint)
    assert write("--data", ".", *given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "model").exists()
