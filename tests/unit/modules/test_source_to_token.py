"""Attention with a weight per word and channel, against its equations, number by number."""

import math

import pytest
import torch
from support.helpers import assert_close
from support.layers import fill_layer, pad_rows

from muse_plugin.modules.source_to_token import SourceToToken

LENGTHS = (5, 1, 3)


def make_pooling(norms=False):
    torch.manual_seed(5)
    pooling = SourceToToken(4, norms).double()
    fill_layer(pooling, std=1.0)  # weights far from even
    return pooling


def make_states(filling=50.0, longer=0):
    """Sentences, and the same padded; the mask of the padding."""
    generators = [torch.Generator(torch.get_default_device()).manual_seed(n) for n in LENGTHS]
    rows = [torch.randn(n, 4, generator=g).double() for n, g in zip(LENGTHS, generators, strict=True)]
    batch, _, mask = pad_rows(rows, filling, longer)
    return rows, batch, mask


def apply_linear(linear, vector):
    return [
        float(linear.bias[o]) + sum(float(w) * x for w, x in zip(linear.weight[o], vector, strict=True))
        for o in range(4)
    ]


def normalise(norm, vector):
    mean = sum(vector) / 4
    deviation = math.sqrt(sum((x - mean) ** 2 for x in vector) / 4 + norm.eps)
    return [(x - mean) / deviation * float(norm.weight[i]) + float(norm.bias[i]) for i, x in enumerate(vector)]


def by_hand(pooling, row):
    scores = []
    for state in row.tolist():
        hidden = apply_linear(pooling.hidden, state)
        hidden = hidden if pooling.hidden_norm is None else normalise(pooling.hidden_norm, hidden)
        score = apply_linear(pooling.scores, [x if x > 0 else math.exp(x) - 1 for x in hidden])
        scores.append(score if pooling.scores_norm is None else normalise(pooling.scores_norm, score))
    out = []
    for channel in range(4):
        weights = [math.exp(score[channel]) for score in scores]
        summed = sum(weight * float(state[channel]) for weight, state in zip(weights, row, strict=True))
        out.append(summed / sum(weights))
    return out


@torch.no_grad()
@pytest.mark.parametrize("norms", [False, True])
def test_only_real_words_count_and_each_channel_has_its_own_weights(norms):
    pooling = make_pooling(norms)
    for longer in (0, 6):
        for filling in (50.0, 0.0, -50.0, math.inf, math.nan):
            rows, batch, mask = make_states(filling, longer)
            out = pooling(batch, mask)
            for i, row in enumerate(rows):
                assert_close(out[i], by_hand(pooling, row), atol=1e-12)
                assert_close(pooling(row[None])[0], by_hand(pooling, row), atol=1e-12)


@torch.no_grad()
def test_one_word_is_its_own_vector_and_no_word_is_zero():
    pooling = make_pooling()
    states, mask = torch.randn(2, 3, 4).double(), torch.tensor([[False, True, True], [True] * 3])
    out = pooling(states, mask)
    assert_close(out[0], states[0, 0], atol=1e-12)
    assert_close(out[1], [0.0] * 4, atol=0, rtol=0)


@pytest.mark.parametrize("norms", [False, True])
def test_no_gradient_reaches_padding_and_all_are_finite(norms):
    _, batch, mask = make_states()
    mask[1] = True
    batch.requires_grad_()
    pooling = make_pooling(norms)
    pooling(batch, mask).square().sum().backward()
    assert (batch.grad[mask] == 0).all()
    assert batch.grad[~mask].all()
    assert all(p.grad.isfinite().all() for p in pooling.parameters())
    for parameter in (pooling.hidden.weight, pooling.hidden.bias, pooling.scores.weight):
        assert parameter.grad.abs().max() > 1e-3


@torch.no_grad()
def test_the_last_bias_has_no_effect():
    pooling = make_pooling()
    _, batch, mask = make_states()
    before = pooling(batch, mask)
    pooling.scores.bias += torch.randn(4)
    assert_close(pooling(batch, mask), before, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("on_device")
def test_half_precision_stays_what_it_is_and_finite(dtype):
    _, batch, mask = make_states()
    mask[1] = True
    out = make_pooling(norms=True).to(dtype)(batch.to(dtype), mask)
    assert out.dtype == dtype
    assert out.isfinite().all()


@pytest.mark.parametrize(("norms", "count"), [(False, 721_200), (True, 723_600)])
def test_it_has_the_published_number_of_parameters(norms, count):
    """Two maps from 600 to 600 channels (arXiv:1712.02047); the norms are 1,200 each."""
    assert sum(p.numel() for p in SourceToToken(600, norms).parameters()) == count
