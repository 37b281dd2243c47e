"""Penalties for heads that are alike, against loops."""

import math
import re

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.attention_heads import Heads
from muse_plugin.modules.disagreement import attention_overlap, penalize, vector_similarity


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
    assert_close(penalize(heads, "penal"), attention_overlap(heads.weights), atol=0, rtol=0)
    assert_close(penalize(heads, "emb"), vector_similarity(heads.vectors), atol=0, rtol=0)
    assert penalize(heads, "emb").dtype == torch.float32
    sentence = "kind must be one of penal, emb, but got 'sub'."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        penalize(heads, "sub")
