"""Structured self-attention against loops."""

import math

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.structured_attention import StructuredAttention

LENGTHS = (5, 1, 3)


def make_pooling():
    torch.manual_seed(4)
    pooling = StructuredAttention(4, num_heads=3, hidden_size=5).double()
    for parameter in pooling.parameters():
        torch.nn.init.normal_(parameter)
    return pooling


def weights_by_hand(pooling, states):
    scores = []
    for state in states.tolist():
        hidden = [
            math.tanh(sum(w * x for w, x in zip(row, state, strict=True))) for row in pooling.hidden.weight.tolist()
        ]
        scores.append([sum(w * x for w, x in zip(row, hidden, strict=True)) for row in pooling.heads.weight.tolist()])
    exps = [[math.exp(score[head]) for score in scores] for head in range(3)]
    return torch.tensor([[e / sum(row) for e in row] for row in exps]).double()


@torch.no_grad()
def test_weights_and_vectors_are_those_of_the_equations_and_padding_is_not_read():
    pooling = make_pooling()
    rows = [torch.randn(n, 4, generator=torch.Generator().manual_seed(n)).double() for n in LENGTHS]
    mask = torch.arange(7) >= torch.tensor(LENGTHS)[:, None]
    for filling in (50.0, math.nan):
        states = torch.full((3, 7, 4), filling).double()
        for i, row in enumerate(rows):
            states[i, : len(row)] = row
        heads = pooling(states, mask)
        for i, row in enumerate(rows):
            expected = weights_by_hand(pooling, row)
            assert_close(heads.weights[i, :, : len(row)], expected, atol=1e-7)
            vectors = torch.stack([sum(w * s for w, s in zip(weights, row, strict=True)) for weights in expected])
            assert_close(heads.vectors[i], vectors, atol=1e-6)
            assert_close(pooling(row[None]).vectors[0].flatten(), torch.cat([*vectors]), atol=1e-6)


def test_it_has_the_parameters_of_the_paper_and_refuses_no_hidden_units():
    assert sum(p.numel() for p in StructuredAttention(600).parameters()) == 350 * 600 + 30 * 350
    with pytest.raises(ValueError, match=r"^hidden_size must be at least 1, but got 0\.$"):
        StructuredAttention(8, hidden_size=0)
