"""New text gets the words that the data has, and what is saved is what is loaded."""

import json
import re
import shutil

import pytest
from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import REPOSITORY, change_settings

from muse_plugin.preparation.split_files import spell_characters
from muse_plugin.text.data_record import DataRecord
from muse_plugin.text.text_settings import (
    EARLIER_NAME,
    FILE_NAME,
    TextSettings,
    load_text_settings,
    make_sentence_settings,
    save_texts,
)
from muse_plugin.text.tokenizer import Tokenizer

FIXTURES = REPOSITORY / "tests" / "fixtures"


def make(lang="en", tokenizer="none", lower_case=False):
    return Tokenizer(make_sentence_settings(lang, tokenizer, "none", lower_case=lower_case))


PLAIN, LOWER, MOSES = make(), make(lower_case=True), make(tokenizer="moses", lower_case=True)
CODES = b"#version: 0.2\nt h\n"
SETTINGS = make_sentence_settings("de", "moses", "subword-nmt", lower_case=True)
RECORD = DataRecord(
    pair=True,
    characters=True,
    format="tsv:text=1,label=2",
    splits={"train": {"sentences": 2, "words": 7, "file": "a.tsv"}},
    vocabulary={"threshold": 0, "size": 16, "from": "train"},
    arguments={"test": ["b", "c"], "valid": None},
)
RAW = "Unaffable CAFÉ: Tom's a <s> “train” isn't & ab."
EARLIER = {  # version -> what the version that wrote it made of RAW
    1: "unaffable café : tom 's a < s > “ train ” isn 't & ab .",
    2: "un ##aff ##able cafe [UNK] [UNK] [UNK] [UNK] a [UNK] [UNK] [UNK] [UNK] train [UNK] [UNK] [UNK] [UNK] [UNK] "
    "a ##b .",
    3: "U@@ n@@ a@@ f@@ f@@ a@@ b@@ l@@ e C@@ A@@ F@@ É : T@@ o@@ m &@@ a@@ po@@ s;@@ s a &@@ l@@ t@@ ; s &@@ g@@ t@@ "
    "; &@@ q@@ u@@ o@@ t@@ ; t@@ r@@ a@@ i@@ n &@@ q@@ u@@ o@@ t@@ ; is@@ n &@@ apos;t &@@ a@@ m@@ p@@ ; a@@ b .",
}
odd_text = st.text(
    st.one_of(st.characters(), st.sampled_from("</s>pad \t\r\x85\u2028\u00a0\u200b\ufeff'&")), max_size=40
)


def test_words_are_split_at_white_space_and_lower_cased_on_request():
    assert PLAIN.split(" Don't stop,\tNOW ! ") == ["Don't", "stop,", "NOW", "!"]
    assert LOWER.split("Don't ÄÖ") == ["don't", "äö"]
    assert PLAIN.split(" \u200b ") == []


def test_moses_separates_punctuation_and_escapes_nothing():
    assert MOSES.split("Don't stop, Tom & Mr. Smith!") == "don 't stop , tom & mr. smith !".split()


def test_moses_follows_the_language():
    text = "C'est l'ami de M. Dupont"
    french, english = make("fr", "moses"), make("en", "moses")
    assert french.split(text)[:2] == ["C'", "est"]
    assert english.split(text)[:2] == ["C", "'est"]


def test_special_symbols_become_ordinary_words_and_the_unknown_word_stays_unknown():
    words = LOWER.split("<s> </S> <pad> <mask> <unk> a<s>")
    assert words == ["&lt;s&gt;", "&lt;/s&gt;", "&lt;pad&gt;", "&lt;mask&gt;", "<unk>", "a<s>"]
    assert PLAIN.clean_words(["</s>"]) == ["&lt;/s&gt;"]


@pytest.mark.parametrize("tokenizer", [PLAIN, LOWER, MOSES])
@settings(max_examples=150, deadline=None)
@given(line=odd_text)
def test_any_text_gives_words_that_fairseq_separates_alike_and_that_have_no_special_meaning(tokenizer, line):
    words = tokenizer.split(line)
    assert tokenize_line(" ".join(words)) == words
    dictionary = Dictionary()
    dictionary.add_symbol("<mask>")
    assert all(word == "<unk>" or word not in dictionary for word in words)


@settings(max_examples=150, deadline=None)
@given(words=st.lists(odd_text, max_size=5))
def test_clean_words_keeps_their_number(words):
    cleaned = PLAIN.clean_words(words)
    assert len(cleaned) == len(words)
    assert tokenize_line(" ".join(cleaned)) == cleaned


def test_clean_words_joins_a_word_with_spaces_and_marks_one_without_visible_characters():
    assert LOWER.clean_words(["New York", "\u200d", "20\u00a0000"]) == ["new_york", "\ufffd", "20_000"]


def test_characters_of_words_are_separated_by_a_token_of_their_own():
    assert spell_characters(["ab", "c"]) == ["a", "b", "\u2581", "c"]
    assert spell_characters(["\u2581x"]) == ["_", "x"]
    assert spell_characters([]) == []


def save(folder):
    save_texts(folder, {"text": (SETTINGS, CODES)}, RECORD)


def test_settings_are_loaded_as_they_were_saved(tmp_path):
    save(tmp_path)
    text, record = load_text_settings(tmp_path)
    assert (text.settings, text.read_subwords(), record) == (SETTINGS, CODES, RECORD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bpe.codes", FILE_NAME]
    content = json.loads((tmp_path / FILE_NAME).read_text())
    assert content["format_version"] == 4
    assert content["texts"]["text"]["lang"] == "de"


@pytest.mark.parametrize("version", EARLIER)
def test_data_of_an_earlier_version_still_do_what_they_did(tmp_path, version):
    shutil.copytree(FIXTURES / f"text_version_{version}", tmp_path, dirs_exist_ok=True)
    text, record = load_text_settings(tmp_path)
    assert Tokenizer.load(text).split(RAW) == EARLIER[version].split()
    content = json.loads((tmp_path / EARLIER_NAME).read_text())
    assert record.vocabulary == content["vocabulary"]
    assert record.splits["train"]["sentences"] == 2
    assert (record.characters, record.arguments["tokenizer"]) == (version == 1, content["tokenizer"])
    # What is written now is the same.
    (tmp_path / "new").mkdir()
    save_texts(tmp_path / "new", {"text": (text.settings, text.read_subwords())}, record)
    again, same = load_text_settings(tmp_path / "new")
    assert (again.settings, same) == (text.settings, record)
    assert Tokenizer.load(again).split(RAW) == EARLIER[version].split()


def test_the_file_of_now_is_read_where_there_are_both(tmp_path):
    shutil.copytree(FIXTURES / "text_version_1", tmp_path, dirs_exist_ok=True)
    save(tmp_path)
    assert load_text_settings(tmp_path)[1] == RECORD


def test_missing_settings_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path / FILE_NAME}, but there is no such file; make")):
        load_text_settings(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "must have format_version 1 or 2 or 4, but got 3"),
        ({"format_version": ...}, "must have format_version 1 or 2 or 4, but got None"),
        ({"format_version": True}, "must have format_version 1 or 2 or 4, but got True"),
        ({"format_version": 2}, "'source' is missing; 'target' is missing; 'texts' is unknown; 'data' is unknown"),
        ({"texts": 1}, "'texts' must be dict but is 1"),
        ({"texts": ...}, "'texts' is missing"),
        ({"texts.text": []}, "'texts.text' must be dict but is []"),
        ({"texts.title": {}}, "'texts.title' is unknown"),
        ({"data": ...}, "'data' is missing"),
        ({"texts.text.subwords": "wordpieces"}, "'texts.text.subwords' must be one of none, subword-nmt, sentence"),
        ({"texts.text.tokenizer": "wordpiece"}, "'texts.text.tokenizer' must be one of none, moses but is"),
        ({"texts.text.escape": ...}, "'texts.text.escape' is missing"),
        ({"texts.text.lower_case": "no"}, "'texts.text.lower_case' must be bool but is 'no'"),
        ({"texts.text.truecase": True}, "'texts.text.truecase' is unknown"),
        ({"texts.text.file": "/elsewhere/bpe.codes"}, "'texts.text.file' must be a file name without folders but is"),
        ({"texts.text.subwords": "none"}, "'texts.text.file' is unknown; 'texts.text.sha256' is unknown"),
        ({"data.pair": 1}, "'data.pair' must be bool but is 1"),
        ({"data.lower_case": True}, "'data.lower_case' is unknown"),
        ({"data.splits": {"train": 3}}, "'data.splits.train' must be an object but is 3"),
        ({"data.splits.train.words": 7.5}, "'data.splits.train.words' must be int"),
        ({"data.vocabulary.from": ...}, "'data.vocabulary.from' is missing"),
        ({"data.arguments": []}, "'data.arguments' must be dict but is []"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, change, message):
    save(tmp_path)
    change_settings(tmp_path / FILE_NAME, change)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_text_settings(tmp_path)
    assert str(error.value).startswith(str(tmp_path / FILE_NAME))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 4}, "must have format_version 1 or 2 or 3, but got 4"),
        ({"format_version": ...}, "must have format_version 1 or 2 or 3, but got None"),
        ({"format_version": 2}, "'strip_accents' is missing; 'split_chinese' is missing"),
        ({"format_version": 3}, "'bpe' is missing"),
        ({"tokenizer": "wordpiece"}, "'tokenizer' must be one of none, moses but is 'wordpiece'"),
        ({"strip_accents": True}, "'strip_accents' is unknown"),
        ({"lower_case": "no"}, "'lower_case' must be bool but is 'no'"),
        ({"language": ...}, "'language' is missing"),
        ({"splits": {"train": 3}}, "'splits.train' must be an object but is 3"),
        ({"vocabulary": {"threshold": 0, "size": 16}}, "'vocabulary.from' is missing"),
        ({"arguments": []}, "'arguments' must be dict but is []"),
    ],
)
def test_wrong_settings_of_an_earlier_version_are_refused(tmp_path, change, message):
    shutil.copytree(FIXTURES / "text_version_1", tmp_path, dirs_exist_ok=True)
    change_settings(tmp_path / EARLIER_NAME, change)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_text_settings(tmp_path)
    assert str(error.value).startswith(str(tmp_path / EARLIER_NAME))


@pytest.mark.parametrize("version", [1, 2])
def test_settings_of_a_translation_model_are_not_those_of_sentences(version):
    sentence = r"must have the settings of text, but has those of source and target; .*muse-plugin translate\.$"
    with pytest.raises(ValueError, match=sentence):
        load_text_settings(FIXTURES / f"text_pipeline_version_{version}")


@pytest.mark.parametrize("version", [2, 3])
def test_subwords_that_are_gone_or_others_are_named(tmp_path, version):
    shutil.copytree(FIXTURES / f"text_version_{version}", tmp_path, dirs_exist_ok=True)
    text, record = load_text_settings(tmp_path)
    (tmp_path / "new").mkdir()
    save_texts(tmp_path / "new", {"text": (text.settings, text.read_subwords())}, record)
    for folder, name in ((tmp_path, EARLIER_NAME), (tmp_path / "new", FILE_NAME)):
        text, _ = load_text_settings(folder)
        place = folder / text.file
        place.write_bytes(place.read_bytes()[:5])
        with pytest.raises(ValueError, match=re.escape(str(place))):
            Tokenizer.load(text)
        place.unlink()
        with pytest.raises(FileNotFoundError, match=re.escape(f"{place}, which {folder / name} names, do not exist")):
            Tokenizer.load(text)


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(ValueError, match="'tokenizer' of a text pipeline must be one of none, moses, but got 'spacy'"):
        TextSettings("en", tokenizer="spacy")
