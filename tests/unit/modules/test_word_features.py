"""What a word looks like: its case, shape and affixes, from the ids of its characters."""

import re

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.word_features import WordFeatures

SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-@éÉ"]
PAD = 1


def encode(*words, width=12):
    rows = [[SYMBOLS.index(c) for c in word] + [PAD] * (width - len(word)) for word in words]
    return torch.tensor([rows])


def make(kinds="case,shape,affixes", symbols=SYMBOLS):
    torch.manual_seed(1)
    return WordFeatures(kinds.split(","), symbols, PAD, 3)


def is_same(kind, one, other):
    first, second = (torch.stack(make(kind).find_features(encode(word))) for word in (one, other))
    return torch.equal(first, second)


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        ("case", "Paris", "Rome", True),
        ("case", "Paris", "paris", False),
        ("case", "PARIS", "Paris", False),
        ("case", "iPhone", "iphone", False),
        ("case", "a1", "a", False),
        ("case", "a-b", "ab", False),
        ("case", "Éa", "Maison", True),
        ("shape", "Paris", "Dublin", True),  # Xxxxx and Xxxxxx: of a run four count
        ("shape", "Par", "Pari", False),
        ("shape", "12-30", "45-99", True),
        ("shape", "12-30", "12.30", False),
        ("shape", "abcdefgh", "abcd", True),
        ("shape", "ABcd", "abCD", False),
        ("affixes", "walking", "WALKING", True),
        ("affixes", "walking", "walxing", True),  # wal, ng, ing
        ("affixes", "walking", "walked", False),
        ("affixes", "at", "at", True),
        ("affixes", "at", "ta", False),
        ("affixes", "walking", "talking", False),
    ],
)
def test_words_that_look_alike_share_their_rows(kind, one, other, same):
    assert is_same(kind, one, other) == same


def test_features_do_not_depend_on_padding_and_are_zero_where_there_is_no_word():
    features = make()
    words = ("Paris", "at", "x", "")
    narrow, wide = features(encode(*words, width=5)), features(encode(*words, width=30))
    assert narrow.shape == (1, 4, features.output_size) == (1, 4, 15)
    assert_close(narrow, wide, atol=0, rtol=0)
    assert not narrow[0, 3].any()
    assert narrow[0, :3].any(dim=-1).all()


def test_tables_learn_and_hold_nothing_of_the_dictionary():
    features = make()
    features(encode("Paris", "went")).square().sum().backward()
    assert all(table.weight.grad.any() for table in features.tables)
    assert sorted(features.state_dict()) == [f"tables.{i}.weight" for i in range(5)]


@pytest.mark.parametrize(
    ("kinds", "symbols", "sentence"),
    [
        ("case,colour", SYMBOLS, "kinds must be some of case, shape, affixes, each once, but got ['case', 'colour']."),
        ("case,case", SYMBOLS, "kinds must be some of case, shape, affixes, each once, but got ['case', 'case']."),
        (
            "shape,case",
            [symbol.lower() for symbol in SYMBOLS],
            "the feature case needs text with upper-case letters, but the characters have none; leave case out, or "
            "prepare the text as it is written.",
        ),
    ],
)
def test_raises_error_when_features_are_none_of_these_or_the_text_has_no_case(kinds, symbols, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(kinds, symbols)
