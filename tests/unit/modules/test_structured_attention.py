"""Structured self-attention, and penalties for heads that are alike, against loops."""

import math
import re

import pytest
import torch
from helpers import assert_close

from muse_plugin.modules.attention_heads import Heads
from muse_plugin.modules.disagreement import attention_overlap, measure_disagreement, vector_similarity
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
        heads = pooling.attend(states, mask)
        for i, row in enumerate(rows):
            expected = weights_by_hand(pooling, row)
            assert_close(heads.weights[i, :, : len(row)], expected, atol=1e-7)
            vectors = torch.stack([sum(w * s for w, s in zip(weights, row, strict=True)) for weights in expected])
            assert_close(heads.vectors[i], vectors, atol=1e-6)
            assert_close(pooling(row[None])[0], torch.cat([*vectors]), atol=1e-6)


def test_it_has_the_parameters_of_the_paper_and_refuses_no_hidden_units():
    assert sum(p.numel() for p in StructuredAttention(600).parameters()) == 350 * 600 + 30 * 350
    with pytest.raises(ValueError, match=r"^--pooling-hidden-dim must be at least 1, but got 0\.$"):
        StructuredAttention(8, hidden_size=0)


# ---- penalties ----------------------------------------------------------------------------------------------------


def test_overlap_is_the_squared_frobenius_norm():
    """Two heads on one word each, on the same word, and evenly on two words: 0, 2, 1/4 + 1/4 + 2 * 1/4."""
    apart, same, even = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]
    assert_close(attention_overlap(torch.tensor([apart, same, even])), [0.0, 2.0, 1.0])
    weights = torch.randn(2, 3, 5).double().softmax(dim=2)
    for row, actual in zip(weights.tolist(), attention_overlap(weights).tolist(), strict=True):
        total = 0.0
        for i in range(3):
            for j in range(3):
                total += (sum(row[i][t] * row[j][t] for t in range(5)) - (i == j)) ** 2
        assert actual == pytest.approx(total, abs=1e-9)


def test_similarity_is_the_mean_cosine_of_all_pairs():
    """The same direction, opposite ones, at right angles: 1, 0 (each with itself: 1), 1/2."""
    same, opposite, right = [[2.0, 0.0], [5.0, 0.0]], [[1.0, 0.0], [-3.0, 0.0]], [[1.0, 0.0], [0.0, 9.0]]
    assert_close(vector_similarity(torch.tensor([same, opposite, right])), [1.0, 0.0, 0.5])
    vectors = torch.randn(2, 3, 4).double()
    for row, actual in zip(vectors, vector_similarity(vectors).tolist(), strict=True):
        total = sum(float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a in row for b in row)
        assert actual == pytest.approx(total / 9, abs=1e-9)


def test_vectors_of_zeros_are_similar_to_none_with_finite_gradients():
    vectors = torch.zeros(1, 2, 3, requires_grad=True)
    out = vector_similarity(vectors)
    assert_close(out, [0.0])
    out.sum().backward()
    assert vectors.grad.isfinite().all()


def test_penalties_have_the_names_of_the_paper_and_no_others():
    heads = Heads(torch.randn(2, 3, 5).softmax(dim=2).bfloat16(), torch.randn(2, 3, 4).bfloat16())
    assert_close(measure_disagreement(heads, "penal"), attention_overlap(heads.weights), atol=0, rtol=0)
    assert_close(measure_disagreement(heads, "emb"), vector_similarity(heads.vectors), atol=0, rtol=0)
    assert measure_disagreement(heads, "emb").dtype == torch.float32
    sentence = "--disagreement must be none, penal or emb, but got 'sub'."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        measure_disagreement(heads, "sub")
