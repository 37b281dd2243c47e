"""Word pieces are BERT's, their ids are BERT's ids + 4, and new text gets the pieces that the data has."""

import filecmp
import gzip
import json
import pickle
import re
import sys

import pytest
from fairseq.data import Dictionary, data_utils
from fairseq.tokenizer import tokenize_line
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import REPOSITORY, assert_close

from muse_plugin.tasks.sentence_classification import MuseSentenceClassificationTask, SentenceClassificationConfig
from muse_plugin.text.text_settings import FILE_NAME, TextSettings, load_text_settings
from muse_plugin.text.tokenizer import Tokenizer
from muse_plugin.text.word_pieces import PieceRules, WordPieces, choose_rules, read_vocabulary
from muse_plugin_command import cli

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "[", "]", "<", ">", "/", "s", "sep", "un", "##aff", "##able", "cafe", "café", "a", "##b", ".", "中"]
UNCASED = PieceRules(lower_case=True, strip_accents=True, split_chinese=True)
CASED = PieceRules(lower_case=False, strip_accents=False, split_chinese=True)
TRAIN = "yes\tUnaffable CAFÉ\tunaffable [SEP]\nno\ta\tzzz a.\n"
PAIRS = ("--format", "tsv:text=2,pair=3,label=1", "--tokenizer", "wordpiece", "--bert-dir")


@pytest.fixture(scope="module", autouse=True)
def _package():
    pytest.importorskip("tokenizers", reason="word pieces need tokenizers")


@pytest.fixture
def real_vocabulary():
    """The vocabulary of BERT, where it is next to the repository."""
    path = REPOSITORY.parent / "shared" / "data" / "bert-vocab" / "vocab.txt.gz"
    if not path.is_file():
        pytest.skip("the vocabulary of BERT is not here")
    return gzip.decompress(path.read_bytes())


@pytest.fixture
def bert(tmp_path):
    """Makes a folder of a BERT model: its vocabulary and files of settings."""

    def make(pieces=PIECES, name="bert", **files):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
        for stem, content in files.items():
            (folder / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    return make


def ids(folder, split="train"):
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    return data_utils.load_indexed_dataset(str(folder / split), dictionary)


@pytest.mark.parametrize(
    ("rules", "text", "pieces"),
    [
        (UNCASED, "Unaffable unaffable.", "un ##aff ##able un ##aff ##able ."),
        (UNCASED, " Café\u00a0a中a", "cafe a 中 a"),
        (UNCASED._replace(strip_accents=False), "CAFÉ", "café"),
        (UNCASED._replace(split_chinese=False), "a中", "[UNK]"),
        (CASED, "Unaffable cafe\u0301 ab", "[UNK] [UNK] a ##b"),
        (UNCASED, "un\x00aff\u00adable \x1c \u200b", "un ##aff ##able"),
        (UNCASED, " \u200b\x1c\ue000\u2028 ", ""),
        (UNCASED, "a\ud800b", "a ##b"),  # BERT drops what is no character
    ],
)
def test_text_is_cut_as_bert_does(bert, rules, text, pieces):
    assert WordPieces(read_vocabulary(bert() / "vocab.txt"), rules).split(text) == pieces.split()


def test_special_entries_in_a_text_are_not_special(bert):
    split = WordPieces(read_vocabulary(bert() / "vocab.txt"), UNCASED).split
    assert split("a [SEP] b</s>") == ["a", "[", "sep", "]", "[UNK]", "<", "/", "s", ">"]
    assert not {"[CLS]", "[MASK]", "[PAD]"} & set(split("[CLS][MASK] [PAD] x"))
    assert split("[sep][SEP]") == ["[", "sep", "]"] * 2


def test_the_unknown_piece_is_the_unknown_word_of_a_task(bert, tmp_path):
    (tmp_path / "train.txt").write_text("x\ta zzz a\ny\ta\n" * 2)
    words = ["prepare-text", "--train", str(tmp_path / "train.txt"), "--output", str(tmp_path / "data")]
    assert cli.main([*words, "--tokenizer", "wordpiece", "--bert-dir", str(bert())]) == 0
    flags = {"data": str(tmp_path / "data"), "max_words": 9}
    lengths = {}
    for unknown_words in ("keep", "drop"):
        cfg = SentenceClassificationConfig(**flags, unknown_words=unknown_words)
        task = MuseSentenceClassificationTask(cfg)
        assert task.unknown_index == task.source_dictionary.index("[UNK]") != task.source_dictionary.unk()
        lengths[unknown_words] = task.load_dataset("train").sizes.tolist()
    assert lengths == {"keep": [3, 1] * 2, "drop": [2, 1] * 2}


def test_a_word_of_more_than_a_hundred_characters_is_unknown(bert):
    split = WordPieces([*PIECES, "##a"], UNCASED).split
    assert split("a" * 100) == ["a", *["##a"] * 99]
    assert split("a" * 101) == ["[UNK]"]


def test_pieces_of_the_real_vocabulary(tmp_path, real_vocabulary):
    (tmp_path / "vocab.txt").write_bytes(real_vocabulary)
    rules, source = choose_rules(tmp_path)
    assert (rules, source) == (UNCASED, "the entries of vocab.txt")
    pieces = WordPieces(read_vocabulary(tmp_path / "vocab.txt"), rules).split("The unaffable Naïve [SEP] embeddings")
    assert pieces == "the una ##ffa ##ble naive [ sep ] em ##bed ##ding ##s".split()
    vocabulary = read_vocabulary(tmp_path / "vocab.txt")
    assert (len(vocabulary), vocabulary[100:104]) == (30522, ["[UNK]", "[CLS]", "[SEP]", "[MASK]"])


@pytest.fixture(scope="module")
def any_pieces():
    settings = TextSettings("en", lower_case=True, subwords="wordpiece", strip_accents=True)
    return Tokenizer(settings, "\n".join(PIECES).encode())


@settings(max_examples=150, deadline=None)
@given(
    line=st.text(st.one_of(st.characters(), st.sampled_from("[SEP]UNK</s>ab \t\r\x1c\x85\u2028\u00a0")), max_size=40)
)
def test_any_text_gives_pieces_that_fairseq_separates_alike_and_that_have_no_special_meaning(any_pieces, line):
    pieces = any_pieces.split(line)
    assert tokenize_line(" ".join(pieces)) == pieces
    assert set(pieces) <= set(PIECES) - {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}


# Cased or not


@pytest.mark.parametrize(
    ("config", "fast", "flag", "rules", "source"),
    [
        ({}, {}, None, UNCASED, "the entries of vocab.txt"),
        ({"do_lower_case": False}, {}, None, CASED, "tokenizer_config.json"),
        ({"do_lower_case": False}, {"lowercase": True}, None, CASED, "tokenizer_config.json"),
        ({"do_lower_case": None}, {"lowercase": False}, None, CASED, "tokenizer.json"),
        ({}, {"lowercase": False, "type": "NFC"}, None, UNCASED, "the entries of vocab.txt"),
        ({"do_lower_case": False}, {}, True, UNCASED, "the command line"),
        ({"do_lower_case": True}, {}, False, CASED, "the command line"),
        (
            {"do_lower_case": True, "strip_accents": False},
            {"handle_chinese_chars": False, "strip_accents": True},
            None,
            PieceRules(True, False, False),
            "tokenizer_config.json",
        ),
    ],
)
def test_casing_is_what_the_files_state(bert, config, fast, flag, rules, source):
    folder = bert(tokenizer_config=config, tokenizer={"normalizer": {"type": "BertNormalizer", **fast}})
    assert choose_rules(folder, flag) == (rules, source)


def test_a_vocabulary_with_capital_letters_is_cased(bert):
    assert choose_rules(bert([*PIECES, "A"], tokenizer={"normalizer": None})) == (CASED, "the entries of vocab.txt")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"do_lower_case": "yes"}}, "'do_lower_case' in .*_config.json must be true, .* is 'yes'"),
        ({"tokenizer_config": []}, "tokenizer_config.json must hold a JSON object, but got a list"),
    ],
)
def test_damaged_settings_of_a_bert_folder_are_refused(bert, files, message):
    with pytest.raises(ValueError, match=message):
        choose_rules(bert(**files))


def test_settings_that_are_no_json_are_refused(bert):
    folder = bert()
    (folder / "tokenizer.json").write_bytes(b"{\xff")
    with pytest.raises(ValueError, match=r"tokenizer\.json must be a JSON file, but reading it gave"):
        choose_rules(folder)


# The vocabulary


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["a", "", "b"], r"one entry a line, .* but line 2 of .*vocab\.txt is empty; copy the file again"),
        (["a", "b", "a"], r"line 3 of .*vocab\.txt has 'a' as line 1 has"),
        ([*SPECIAL, "</s>"], r"line 6 of .*vocab\.txt has '</s>', which fairseq's dictionaries reserve"),
        (["[UNK]", "a"], r"must hold \[UNK\], \[CLS\], \[SEP\], but .*vocab\.txt lacks \[CLS\], \[SEP\]; take"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(bert, pieces, message):
    with pytest.raises(ValueError, match=message):
        read_vocabulary(bert(pieces) / "vocab.txt")


def test_a_missing_or_binary_vocabulary_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"word pieces need BERT's vocabulary, but .*vocab\.txt does not exist"):
        read_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"vocab\.txt must be a UTF-8 file, but reading it gave"):
        read_vocabulary(tmp_path / "vocab.txt")


def test_without_the_package_the_way_out_is_named(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        ImportError, match="needs the package tokenizers, which is missing; run 'pip install tokenizers'"
    ):
        WordPieces(read_vocabulary(bert() / "vocab.txt"), UNCASED)


# The command


def test_the_dictionary_is_the_whole_vocabulary_in_its_order(tmp_path, write, prepare, bert):
    odd = [*PIECES, "\u2028", "a\u00a0"]  # entries that no text has still keep their place
    out = prepare("--train", write("train", TRAIN), *PAIRS, bert(odd))
    data = tmp_path / "data"
    dictionary = Dictionary.load(str(data / "input0" / "dict.txt"))
    assert len(dictionary) == 4 + len(odd)
    assert [dictionary.index(piece) for piece in odd] == [4 + i for i in range(len(odd))]
    assert filecmp.cmp(data / "input0" / "dict.txt", data / "input1" / "dict.txt", shallow=False)
    assert filecmp.cmp(data / "vocab.txt", tmp_path / "bert" / "vocab.txt", shallow=False)
    place = {piece: 4 + i for i, piece in enumerate(odd)}
    expected = [[*map(place.get, "un ##aff ##able cafe".split()), 2], [place["a"], 2]]
    for row, right in zip(ids(data / "input0"), expected, strict=True):
        assert row.tolist() == right
    expected = [[*map(place.get, "un ##aff ##able [ sep ]".split()), 2], [place["[UNK]"], place["a"], place["."], 2]]
    for row, right in zip(ids(data / "input1"), expected, strict=True):
        assert row.tolist() == right
    assert re.search(r"word pieces of .*vocab\.txt, uncased as the entries of vocab\.txt has it", out)
    # one of the 14 pieces is [UNK]
    assert "14 words (3.5 in a text on average, 6 at most), 7.14% unknown" in out
    assert load_text_settings(data)[1].vocabulary == {"threshold": 0, "size": 4 + len(odd), "from": "vocab.txt"}


def test_new_text_is_cut_as_the_data_was_when_the_bert_folder_is_gone(tmp_path, write, prepare, bert):
    folder = bert(tokenizer_config={"do_lower_case": True, "strip_accents": False})
    prepare("--train", write("train", TRAIN), *PAIRS, folder)
    for path in folder.iterdir():
        path.unlink()
    moved = (tmp_path / "data").rename(tmp_path / "moved")
    content = json.loads((moved / FILE_NAME).read_text(encoding="utf-8"))["texts"]["text"]
    assert (content["subwords"], content["file"]) == ("wordpiece", "vocab.txt")
    assert (content["lower_case"], content["strip_accents"], content["split_chinese"]) == (True, False, True)
    text, _ = load_text_settings(moved)
    loaded = Tokenizer.load(text)
    assert loaded.split("CAFÉ [SEP]") == ["café", "[", "sep", "]"]
    assert pickle.loads(pickle.dumps(loaded)).split("ab") == ["a", "##b"]
    assert (text.settings.unknown_piece, loaded.split("zzz")) == ("[UNK]", ["[UNK]"])
    (moved / "vocab.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"the word pieces .*moved/vocab\.txt, which .* names, do not exist; copy"
    ):
        Tokenizer.load(text)


def test_the_same_command_replaces_its_data_and_other_casing_does_not(tmp_path, write, prepare, bert):
    command = ("--train", write("train", TRAIN), *PAIRS, bert())
    prepare(*command)
    before = [row.clone() for row in ids(tmp_path / "data" / "input0")]
    prepare(*command)
    for old, new in zip(before, ids(tmp_path / "data" / "input0"), strict=True):
        assert_close(new, old, atol=0, rtol=0)
    with pytest.raises(FileExistsError, match=r"--lower-case was None and is False"):
        prepare(*command, "--no-lower-case")
    prepare(*command, "--no-lower-case", "--overwrite")
    assert not load_text_settings(tmp_path / "data")[0].settings.lower_case


def test_data_of_an_earlier_version_may_be_made_again(tmp_path, write, prepare):
    train = write("train", "yes\ta\nno\tb\n")
    prepare("--train", train)
    fixture = REPOSITORY / "tests" / "fixtures" / "text_version_1" / "text.json"
    earlier = json.loads(fixture.read_text(encoding="utf-8"))
    made = json.loads((tmp_path / "data" / FILE_NAME).read_text(encoding="utf-8"))["data"]
    del made["arguments"]["bert_dir"]  # a flag that did not exist
    content = {**earlier, **made, "tokenizer": "none", "lower_case": False}
    assert content["format_version"] == 1
    (tmp_path / "data" / FILE_NAME).unlink()
    (tmp_path / "data" / "text.json").write_text(json.dumps(content), encoding="utf-8")
    prepare("--train", train)
    assert not (tmp_path / "data" / "text.json").exists()
    with pytest.raises(FileExistsError, match="--lower-case was False and is True"):
        prepare("--train", train, "--lower-case")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threshold", 2], "nothing is counted, but got --threshold; drop what contradicts it"),
        (["--max-words", 9, "--vocabulary-from", "all"], "but got --max-words, --vocabulary-from; drop"),
        (["--dict-from", "elsewhere"], "but got --dict-from; drop"),
    ],
)
def test_flags_that_contradict_word_pieces_are_refused(write, prepare, bert, flags, message):
    with pytest.raises(ValueError, match=message):
        prepare("--train", write("train", TRAIN), *PAIRS, bert(), *flags)


def test_word_pieces_and_the_bert_folder_belong_together(write, prepare, bert):
    train = ("--train", write("train", TRAIN))
    with pytest.raises(ValueError, match=r"--tokenizer wordpiece needs .* but --bert-dir is not given; add it"):
        prepare(*train, "--tokenizer", "wordpiece")
    with pytest.raises(ValueError, match="--bert-dir is for word pieces, but got --tokenizer moses; give --tokenizer"):
        prepare(*train, "--tokenizer", "moses", "--bert-dir", bert())
    with pytest.raises(ValueError, match="--tokenizer needs one label for each text, but --format conll"):
        prepare(*train, "--format", "conll", *PAIRS[2:], bert(name="other"))
