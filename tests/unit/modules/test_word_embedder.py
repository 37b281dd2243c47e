"""What stands for a word before the encoder: tables and characters side by side."""

import re

import pytest
import torch
from support.helpers import assert_close
from torch import nn

from muse_plugin.modules.character_encoder import CharacterEncoder
from muse_plugin.modules.word_embedder import WordEmbedder
from muse_plugin.modules.word_features import WordFeatures

TOKENS = torch.tensor([[4, 5, 6], [7, 5, 1]])
CHARACTERS = torch.tensor([[[4, 5], [6, 1], [4, 4]], [[5, 5], [6, 1], [1, 1]]])


def make_tables():
    return nn.Embedding(9, 6, 1), nn.Embedding(9, 3, 1), CharacterEncoder("cnn", 7, 1, 4, 2)


def test_tables_and_characters_stand_side_by_side_before_the_linear_map():
    words, extra, characters = make_tables()
    embedder = WordEmbedder(words, 8, extra, characters)
    expected = torch.cat([words(TOKENS), extra(TOKENS), characters(CHARACTERS)], dim=-1)
    assert expected.shape == (2, 3, 11)
    assert_close(embedder(TOKENS, CHARACTERS), embedder.projection(expected))


@pytest.mark.parametrize(("always", "width", "maps"), [(True, 6, True), (False, 6, False), (False, 8, True)])
def test_the_linear_map_is_there_always_or_where_widths_differ(always, width, maps):
    words, _, _ = make_tables()
    embedder = WordEmbedder(words, width, always_project=always)
    assert (embedder.projection is not None) == maps
    out = embedder(TOKENS)
    assert out.shape == (2, 3, width)
    if not maps:
        assert_close(out, words(TOKENS), atol=0, rtol=0)


def test_widths_are_those_of_all_parts_together():
    words, extra, characters = make_tables()
    assert WordEmbedder(words, 11, extra, characters, always_project=False).projection is None
    assert WordEmbedder(words, 9, extra, always_project=False).projection is None
    assert WordEmbedder(words, 6, extra, always_project=False).projection is not None


def test_dropout_acts_before_the_linear_map_in_training_only():
    words, extra, _ = make_tables()
    embedder = WordEmbedder(words, 9, extra, dropout=0.5, always_project=False)
    assert ((embedder(TOKENS) == 0).float().mean() - 0.5).abs() < 0.3
    assert not torch.equal(embedder(TOKENS), embedder(TOKENS))
    embedder.eval()
    assert torch.equal(embedder(TOKENS), embedder(TOKENS))


def test_raises_error_when_characters_are_missing():
    words, _, characters = make_tables()
    sentence = (
        "this embedder reads the characters of every word, but the data have none; prepare them with their characters."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        WordEmbedder(words, 8, characters=characters)(TOKENS)


def test_features_stand_behind_characters_and_need_them():
    words, extra, characters = make_tables()
    features = WordFeatures(["shape"], ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "1"], 1, 5)
    embedder = WordEmbedder(words, 8, extra, characters, features=features)
    expected = torch.cat([words(TOKENS), extra(TOKENS), characters(CHARACTERS), features(CHARACTERS)], dim=-1)
    assert_close(embedder(TOKENS, CHARACTERS), embedder.projection(expected))
    with pytest.raises(ValueError, match="this embedder reads the characters of every word"):
        WordEmbedder(words, 8, features=features)(TOKENS)


def test_dropped_words_are_unknown_but_keep_their_characters_in_training_only():
    words, _, characters = make_tables()
    torch.manual_seed(1)
    embedder = WordEmbedder(words, 8, None, characters, always_project=False, word_dropout=0.5, unknown_idx=3)
    many = torch.full((1, 1000), 5)
    many[0, 500:] = 1  # padding stays what it is
    out = embedder(many, CHARACTERS[:1, :1].expand(1, 1000, 2))
    is_unknown = (out[0, :, :6] == words.weight[3]).all(dim=-1)
    assert 0.4 < is_unknown[:500].float().mean() < 0.6
    assert not is_unknown[500:].any()
    assert_close(out[0, :, 6:], characters(CHARACTERS[:1, :1])[0].expand(1000, 2))
    embedder.eval()
    assert_close(embedder(many, CHARACTERS[:1, :1].expand(1, 1000, 2))[0, :500, :6], words.weight[5].expand(500, 6))
