import pytest
from sacremoses import MosesDetokenizer, MosesTokenizer

from muse_plugin.evaluation import text_forms
from muse_plugin.evaluation.text_forms import (
    check_language,
    has_subwords,
    hide_unknown_words,
    make_forms,
    mark_unknown_words,
    remove_subwords,
)


def test_bpe_marks_are_removed_where_they_are():
    assert remove_subwords(["a@@ b@@ c d", "e f@@", ""]) == ["abc d", "e f", ""]
    assert remove_subwords(["a @ b", "c"]) == ["a @ b", "c"]
    assert remove_subwords(["a@@ b"], "none") == ["a@@ b"]


def test_mark_at_the_end_of_a_line_is_enough_to_be_found():
    assert remove_subwords(["a b@@"]) == ["a b"]


def test_sentencepiece_marks_are_removed_and_plain_text_keeps_its_spaces():
    assert remove_subwords(["\u2581the \u2581c at", "\u2581s at"], "sentencepiece") == ["the cat", "sat"]
    assert remove_subwords(["the cat", "sat"], "sentencepiece") == ["the cat", "sat"]


def test_subwords_are_recognised():
    assert has_subwords(["a", "b@@ c"])
    assert not has_subwords(["a", "b c"])
    assert has_subwords(["\u2581a"], "sentencepiece")
    assert not has_subwords(["a@@ b"], "sentencepiece")
    assert has_subwords(["a"], "none")


def test_only_whole_unknown_words_of_references_are_marked():
    assert mark_unknown_words(["a <unk> b <unk>", "<unk>s", "<<unk>>", "x"]) == [
        "a <<unk>> b <<unk>>",
        "<unk>s",
        "<<unk>>",
        "x",
    ]


def test_hidden_unknown_words_share_no_character_with_a_hypothesis():
    (line,) = hide_unknown_words(["<<unk>>"])
    assert len(line) == 1
    assert not set(line) & set("<unk> ")


def test_words_become_raw_text_and_back():
    words = ["&quot; Tom &apos;s dog &quot; , he said : 5 @-@ 6 &lt; 7 .", ""]
    forms = make_forms(words, is_raw=False, lang="en")
    assert forms.words == words
    assert forms.raw == ['"Tom\'s dog", he said: 5-6 < 7.', ""]
    raw = ["Tom's dog, he said.", ""]
    assert make_forms(raw, is_raw=True, lang="en") == (["Tom &apos;s dog , he said .", ""], raw)


def test_language_chooses_the_rules():
    line = "c &apos; est l&apos; homme !"
    raw = {lang: make_forms([line], is_raw=False, lang=lang).raw[0] for lang in ("fr", "en")}
    assert raw["fr"] != raw["en"]
    for lang, text in raw.items():
        assert text == MosesDetokenizer(lang=lang).detokenize(line.split())
    text = "z. B. heute"
    words = {lang: make_forms([text], is_raw=True, lang=lang).words[0] for lang in ("de", "en")}
    assert words["de"] != words["en"]
    assert words["de"] == MosesTokenizer(lang="de").tokenize(text, return_str=True)


@pytest.mark.parametrize("is_raw", [True, False])
def test_without_a_language_there_is_one_form(is_raw):
    forms = make_forms(["a b"], is_raw, None)
    assert forms == ((None, ["a b"]) if is_raw else (["a b"], None))


@pytest.mark.parametrize("lang", ["german", "xx", "DE", "de_DE", ""])
def test_unknown_language_is_refused(lang):
    with pytest.raises(ValueError, match=f"--target-lang must be the code of a language.*but got '{lang}'"):
        check_language(lang, "--target-lang")


def test_known_languages_include_all_of_moses():
    from sacremoses.corpus import NonbreakingPrefixes

    known = set(NonbreakingPrefixes().available_langs.values())
    assert len(known) > 20
    assert known <= text_forms.LANGUAGES
    for lang in ("de", "en", "vi", "zh", "ja"):
        check_language(lang, "--target-lang")
