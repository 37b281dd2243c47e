"""What labels and tags may be, and their order."""

from pathlib import Path

import pytest
from fairseq.data import Dictionary

from muse_plugin.preparation.label_dictionary import (
    build_label_dictionary,
    check_known,
    check_label,
    check_number,
    sort_labels,
)
from muse_plugin.preparation.tag_sequences import check_bio
from muse_plugin.tasks.sentences.sentence_task import list_labels
from muse_plugin.text.bio_tags import find_bad_continuations

FILE = Path("a.txt")


def test_numeric_labels_are_sorted_by_value_and_others_by_code_points():
    assert sort_labels(["10", "9", "-1", "2.5"]) == ["-1", "2.5", "9", "10"]
    assert sort_labels(["b", "10", "9", "A"]) == ["10", "9", "A", "b"]
    assert sort_labels(["nan", "2", "10"]) == ["10", "2", "nan"]


def test_the_dictionary_has_labels_in_order_and_nothing_else(tmp_path):
    build_label_dictionary({"10": 3, "9": 5}).save(str(tmp_path / "dict.txt"))
    assert (tmp_path / "dict.txt").read_text() == "9 5\n10 3\n"


def test_invisible_characters_are_no_part_of_a_label():
    assert check_label("\ufeffpos\u200b ", 3, FILE) == "pos"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", r"needs a label, but that in line 3 of a\.txt is empty"),
        ("\u200b", r"needs a label, but that in line 3 of a\.txt is empty"),
        ("very good", r"no white space, but line 3 of a\.txt has 'very good'; if that is the text"),
        ("a\u00a0b", r"no white space, but line 3 of a\.txt"),
        ("<pad>", r"dictionaries reserve \(<s>, .*\), but line 3 of a\.txt has '<pad>'; rename it"),
        ("<mask>", "has '<mask>'"),
        ("madeupword0003", "has 'madeupword0003'"),
    ],
)
def test_bad_labels_are_refused(label, message):
    with pytest.raises(ValueError, match=message):
        check_label(label, 3, FILE)


def test_labels_that_only_begin_like_a_filler_are_labels(tmp_path):
    dictionary = Dictionary()
    for label in ("madeupword12345", "madeupwordX", "z"):
        dictionary.add_symbol(check_label(label, 3, FILE))
    dictionary.finalize(padding_factor=8)
    assert set(list_labels(dictionary, tmp_path)) == {"madeupword12345", "madeupwordX", "z"}


def test_numbers_are_written_so_that_they_read_back():
    assert [check_number(text, 1, FILE) for text in ("4.50", " 3", "1e-3")] == ["4.5", "3.0", "0.001"]


@pytest.mark.parametrize("text", ["", "good", "nan", "inf", "1_000", "1,5"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=rf"must be a finite number, but line 7 of a\.txt has '{text}'; correct it"):
        check_number(text, 7, FILE)


def test_an_unknown_label_is_named_with_its_first_line():
    check_known({"a": 4}, {"a", "b"}, FILE, "train")
    message = r"must occur in train, but line 2 of a\.txt has 'd'; known are a, b; correct"
    with pytest.raises(ValueError, match=message):
        check_known({"a": 1, "c": 5, "d": 2}, {"b", "a"}, FILE, "train")


@pytest.mark.parametrize(
    ("tags", "bad"),
    [
        ("O B-X I-X I-X O", []),
        ("I-X I-X", [0]),
        ("B-X I-Y", [1]),
        ("B-X O I-X", [2]),
        ("B-X B-X I-X", []),
        ("I-X I-Y I-Y O I-Y", [0, 1, 4]),
        ("", []),
    ],
)
def test_continuations_of_nothing_are_found_and_repaired(tags, bad):
    tags = tags.split()
    assert find_bad_continuations(tags) == bad
    repaired, count = check_bio(tags, list(range(len(tags))), FILE, repair=True)
    assert count == len(bad)
    assert find_bad_continuations(repaired) == []
    assert [i for i, (old, new) in enumerate(zip(tags, repaired, strict=True)) if old != new] == bad
    assert all(repaired[i] == tags[i].replace("I-", "B-") for i in bad)


def test_bad_tags_are_named_with_their_line():
    with pytest.raises(
        ValueError, match=r"I-X must follow B-X or I-X, but in line 6 of a\.txt it follows B-Y; correct"
    ):
        check_bio(["B-Y", "I-X"], [5, 6], FILE, repair=False)
    with pytest.raises(ValueError, match=r"in line 5 of a\.txt it follows the start of the sentence"):
        check_bio(["I-X"], [5], FILE, repair=False)


@pytest.mark.parametrize("tag", ["S-PER", "B-", "I", "PER", "o"])
def test_tags_of_another_scheme_are_refused_even_when_repairing(tag):
    with pytest.raises(ValueError, match=rf"must be O, B-KIND or I-KIND, but line 9 of a\.txt has '{tag}'; convert"):
        check_bio(["O", tag], [8, 9], FILE, repair=True)
