"""New text gets the words that the data has, and what is saved is what is loaded."""

import json
import re

import pytest
from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line
from hypothesis import given, settings
from hypothesis import strategies as st

from muse_plugin.text.text_settings import (
    FILE_NAME,
    TextSettings,
    load_text_settings,
    save_text_settings,
    split_characters,
)

PLAIN = TextSettings(lower_case=False, tokenizer="none", language="en")
LOWER = TextSettings(lower_case=True, tokenizer="none", language="en")
MOSES = TextSettings(lower_case=True, tokenizer="moses", language="en")
FULL = TextSettings(
    lower_case=True,
    tokenizer="none",
    language="de",
    pair=True,
    characters=True,
    format="tsv:text=1,label=2",
    splits={"train": {"sentences": 2, "words": 7, "file": "a.tsv"}},
    vocabulary={"threshold": 0, "size": 16, "from": "train"},
    arguments={"test": ["b", "c"], "valid": None},
)
odd_text = st.text(
    st.one_of(st.characters(), st.sampled_from("</s>pad \t\r\x85\u2028\u00a0\u200b\ufeff'&")), max_size=40
)


def test_words_are_split_at_white_space_and_lower_cased_on_request():
    assert PLAIN.split_words(" Don't stop,\tNOW ! ") == ["Don't", "stop,", "NOW", "!"]
    assert LOWER.split_words("Don't ÄÖ") == ["don't", "äö"]
    assert PLAIN.split_words(" \u200b ") == []


def test_moses_separates_punctuation_and_escapes_nothing():
    assert MOSES.split_words("Don't stop, Tom & Mr. Smith!") == "don 't stop , tom & mr. smith !".split()


def test_moses_follows_the_language():
    text = "C'est l'ami de M. Dupont"
    french = TextSettings(lower_case=False, tokenizer="moses", language="fr")
    english = TextSettings(lower_case=False, tokenizer="moses", language="en")
    assert french.split_words(text)[:2] == ["C'", "est"]
    assert english.split_words(text)[:2] == ["C", "'est"]


def test_special_symbols_become_ordinary_words_and_the_unknown_word_stays_unknown():
    words = LOWER.split_words("<s> </S> <pad> <mask> <unk> a<s>")
    assert words == ["&lt;s&gt;", "&lt;/s&gt;", "&lt;pad&gt;", "&lt;mask&gt;", "<unk>", "a<s>"]
    assert PLAIN.clean_words(["</s>"]) == ["&lt;/s&gt;"]


@pytest.mark.parametrize("text_settings", [PLAIN, LOWER, MOSES])
@settings(max_examples=150, deadline=None)
@given(line=odd_text)
def test_any_text_gives_words_that_fairseq_separates_alike_and_that_have_no_special_meaning(text_settings, line):
    words = text_settings.split_words(line)
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
    assert split_characters(["ab", "c"]) == ["a", "b", "\u2581", "c"]
    assert split_characters(["\u2581x"]) == ["_", "x"]
    assert split_characters([]) == []


def test_settings_are_loaded_as_they_were_saved(tmp_path):
    save_text_settings(FULL, tmp_path)
    assert load_text_settings(tmp_path) == FULL
    content = json.loads((tmp_path / FILE_NAME).read_text())
    assert content["format_version"] == 1
    assert content["language"] == "de"


def test_missing_settings_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path / FILE_NAME}, but there is no such file; make")):
        load_text_settings(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 4}, "must have format_version 1 or 2 or 3, but got 4"),
        ({"format_version": ...}, "must have format_version 1 or 2 or 3, but got None"),
        ({"format_version": True}, "must have format_version 1 or 2 or 3, but got True"),
        ({"format_version": 2}, "'strip_accents' is missing; 'split_chinese' is missing"),
        ({"tokenizer": "wordpiece"}, "'tokenizer' must be one of none, moses but is 'wordpiece'"),
        ({"strip_accents": True}, "'strip_accents' is unknown"),
        ({"vocabulary_folder": "/elsewhere"}, "'vocabulary_folder' is unknown"),
        ({"lower_case": "no"}, "'lower_case' must be bool but is 'no'"),
        ({"language": ...}, "'language' is missing"),
        ({"truecase": True}, "'truecase' is unknown"),
        ({"tokenizer": "spacy"}, "'tokenizer' must be one of none, moses but is 'spacy'"),
        ({"splits": {"train": 3}}, "'splits.train' must be an object but is 3"),
        ({"splits": {"train": {"sentences": 2, "words": 7.5, "file": "a"}}}, "'splits.train.words' must be int"),
        ({"vocabulary": {"threshold": 0, "size": 16}}, "'vocabulary.from' is missing"),
        ({"arguments": []}, "'arguments' must be dict but is []"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, change, message):
    save_text_settings(FULL, tmp_path)
    content = {**json.loads((tmp_path / FILE_NAME).read_text()), **change}
    (tmp_path / FILE_NAME).write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    with pytest.raises(ValueError, match=re.escape(message)):
        load_text_settings(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "must be a JSON file"), (b"\xff", "must be a JSON file"), (b"[]", "a JSON object, but got a list")],
)
def test_settings_that_are_no_json_object_are_refused(tmp_path, content, message):
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_text_settings(tmp_path)


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(ValueError, match="must be one of none, moses, wordpiece, but got 'spacy'; choose one"):
        TextSettings(lower_case=False, tokenizer="spacy", language="en")
