"""Words as characters to vectors: each word against itself alone, against a loop, and what padding may not do."""

import re

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.character_encoder import CHARACTER_ENCODERS, CharacterEncoder

PAD, SYMBOLS = 1, 12
SENTENCES = [[[4, 5, 6], [7], [8, 9, 10, 11, 4]], [[5, 5]], [[6, 4], [3, 9, 9]]]
KINDS = CHARACTER_ENCODERS[1:]


def make(kind, **settings):
    torch.manual_seed(2)
    return CharacterEncoder(kind, SYMBOLS, PAD, embed_dim=5, output_size=6, **settings).eval()


def make_batch(longer_words=0, longer_sentences=0):
    longest = max(map(len, SENTENCES)) + longer_sentences
    width = max(len(word) for words in SENTENCES for word in words) + longer_words
    batch = torch.full((len(SENTENCES), longest, width), PAD)
    for i, words in enumerate(SENTENCES):
        for j, word in enumerate(words):
            batch[i, j, : len(word)] = torch.tensor(word)
    return batch


def test_there_are_two_kinds():
    assert KINDS == ("cnn", "bilstm")


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_is_encoded_by_itself_whatever_stands_next_to_it(kind):
    encoder = make(kind)
    for longer in ((0, 0), (4, 3)):
        out = encoder(make_batch(*longer))
        assert out.shape == (3, 3 + longer[1], 6)
        for i, words in enumerate(SENTENCES):
            for j, word in enumerate(words):
                assert_close(out[i, j], encoder(torch.tensor([[word]]))[0, 0])
            assert (out[i, len(words) :] == 0).all()


def test_convolution_is_the_maximum_over_windows_of_three_characters():
    encoder = make("cnn")
    weight, bias = encoder.conv.weight, encoder.conv.bias
    for word in (word for words in SENTENCES for word in words):
        rows = encoder.embedding.weight[word]
        states = []
        for t in range(len(rows)):
            seen = [(tap, t + tap - 1) for tap in range(3) if 0 <= t + tap - 1 < len(rows)]
            states.append(bias + sum(weight[:, :, tap] @ rows[at] for tap, at in seen))
        assert_close(encoder(torch.tensor([[word]]))[0, 0], torch.stack(states).amax(0))


def test_the_maximum_of_negative_numbers_is_not_that_of_padding():
    encoder = make("cnn")
    with torch.no_grad():
        encoder.conv.bias.fill_(-100)
    out = encoder(make_batch(longer_words=3))
    assert (out[0, :3] < -90).all()


def test_recurrence_keeps_the_last_state_of_either_direction():
    encoder = make("bilstm")
    for word in (word for words in SENTENCES for word in words):
        _, (last, _) = encoder.lstm(encoder.embedding.weight[word][None])
        assert_close(encoder(torch.tensor([[word]]))[0, 0], last.flatten())


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_characters_matters_and_all_parameters_learn(kind):
    encoder = make(kind)
    assert not torch.allclose(encoder(torch.tensor([[[4, 5, 6]]])), encoder(torch.tensor([[[6, 5, 4]]])), atol=1e-3)
    encoder(make_batch(2, 2)).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    assert not encoder.embedding.weight.grad[PAD].any()
    assert not encoder.embedding.weight[PAD].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_nothing_but_padding_gives_zeros(kind):
    out = make(kind)(torch.full((2, 3, 4), PAD))
    assert out.shape == (2, 3, 6)
    assert not out.any()


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_stays_what_it_is_and_finite(kind):
    encoder = make(kind).bfloat16()
    out = encoder(make_batch(1, 1))
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
    assert_close(out.float(), make(kind)(make_batch(1, 1)), atol=0.03, why="bfloat16 has 8 bits")


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_in_training_only(kind):
    encoder, batch = make(kind, dropout=0.5), make_batch()
    assert_close(encoder(batch), make(kind)(batch), atol=0, rtol=0)
    encoder.train()
    assert not torch.equal(encoder(batch), encoder(batch))


def test_raises_error_when_the_width_of_two_directions_is_odd():
    sentence = "output_size must be even for bilstm, half for each direction, but got 7."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CharacterEncoder("bilstm", SYMBOLS, PAD, 5, 7)
    assert CharacterEncoder("cnn", SYMBOLS, PAD, 5, 7)(make_batch()).shape == (3, 3, 7)


@pytest.mark.parametrize("kind", ["none", "lstm"])
def test_raises_error_for_an_unknown_kind(kind):
    with pytest.raises(ValueError, match=rf"^kind must be one of cnn, bilstm, but got '{kind}'\.$"):
        CharacterEncoder(kind, SYMBOLS, PAD, 5, 6)
