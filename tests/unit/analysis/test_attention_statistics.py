"""Statistics of attention against slow loops over sentences, queries and keys."""

import math

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.analysis.attention_statistics import AttentionStatistics, OffsetSums

HEADS = 3
BOUNDS = (2, 4)
ATOL = 1e-6  # float32 weights, sums in float64


def make_batch(batch, length, visible="all", left=False, generator=None):
    """Weights of sentences of random lengths; some queries of head 0 see nothing."""
    lengths = torch.randint(1, length + 1, (batch,), generator=generator)
    lengths[0] = length
    places = torch.arange(length)
    real = (places >= length - lengths[:, None]) if left else (places < lengths[:, None])
    logits = torch.randn(batch, HEADS, length, length, generator=generator) * 2
    offsets = places - places[:, None]
    allowed = {"all": offsets > -99, "until": offsets <= 0, "before": offsets < 0, "after": offsets > 0}[visible]
    seen = real[:, None, None] & allowed
    weights = torch.softmax(logits.masked_fill(~seen, -1e9), dim=-1) * seen
    weights = torch.where(seen.any(-1, keepdim=True), weights, torch.zeros(()))
    weights[0, 0, int(real[0].nonzero()[0])] = 0
    return weights, real


def list_queries(batches, head):
    """(weights of the real keys, place among them, number of keys) of every query that sees something."""
    for weights, real in batches:
        for row, words in zip(weights, real, strict=True):
            keys = words.nonzero().flatten().tolist()
            for place, query in enumerate(keys):
                values = [float(row[head, query, key]) for key in keys]
                if sum(values) > 0.5:
                    yield values, place, len(keys)


def count_choice(visible, place, keys):
    return {"all": keys, "until": place + 1, "before": place, "after": keys - place - 1}[visible]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def entropy(values):
    return -sum(value * math.log2(value) for value in values if value > 0)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(4)


@pytest.mark.parametrize("visible", ["all", "until", "before", "after"])
@pytest.mark.parametrize("left", [False, True], ids=["right padding", "left padding"])
def test_all_numbers_are_those_of_slow_loops(visible, left, generator):
    batches = [make_batch(4, 6, visible, left, generator), make_batch(3, 3, visible, left, generator)]
    statistics = AttentionStatistics(HEADS, visible, bounds=BOUNDS)
    for weights, real in batches:
        statistics.add(weights, real, real)
    whole = statistics.overall()
    assert whole.sentences == 7
    for head in range(HEADS):
        queries = list(list_queries(batches, head))
        distances = [sum(w * abs(j - i) for j, w in enumerate(values)) for values, i, _ in queries]
        assert statistics.offsets.mean_distance()[head] == pytest.approx(mean(distances), abs=ATOL)
        check_sharpness(whole, head, queries, visible)
    parts = statistics.by_length()
    assert sum(part.sentences for part in parts) == 7
    for part in parts:
        for head in range(HEADS):
            high = part.high or 99
            own = [query for query in list_queries(batches, head) if part.low <= query[2] <= high]
            check_sharpness(part, head, own, visible)


def check_sharpness(found, head, queries, visible):
    expected = {
        "entropy": mean(entropy(values) for values, _, _ in queries),
        "largest": mean(max(values) for values, _, _ in queries),
        "normalized_entropy": mean(
            entropy(values) / math.log2(count_choice(visible, i, keys))
            for values, i, keys in queries
            if count_choice(visible, i, keys) > 1
        ),
    }
    for name, value in expected.items():
        assert float(getattr(found, name)[head]) == pytest.approx(value, abs=ATOL, nan_ok=True), name


@pytest.mark.parametrize("reach", [2, 9])
def test_weight_by_offset(reach, generator):
    batches = [make_batch(4, 6, generator=generator), make_batch(2, 4, left=True, generator=generator)]
    sums = OffsetSums(HEADS, reach)
    for weights, real in batches:
        sums.add(weights, real)
    for head in range(HEADS):
        totals, pairs, queries = [0.0] * (2 * reach + 1), [0] * (2 * reach + 1), 0
        edges = [0] * (2 * reach + 1)
        for weights, real in batches:
            for row, words in zip(weights, real, strict=True):
                keys = words.nonzero().flatten().tolist()
                for query in keys:
                    queries += float(row[head, query].sum()) > 0.5
                    if float(row[head, query].sum()) > 0.5:
                        strongest = max(keys, key=lambda key: float(row[head, query, key]))
                        edges[max(-reach, min(reach, strongest - query)) + reach] += 1
                    for key in keys:
                        place = max(-reach, min(reach, key - query)) + reach
                        totals[place] += float(row[head, query, key])
                        pairs[place] += 1
        assert_close(sums.shares()[head], [total / queries for total in totals], atol=ATOL)
        assert_close(sums.strongest()[head], [edge / queries for edge in edges], atol=ATOL)
        expected = [total / count if count else math.nan for total, count in zip(totals, pairs, strict=True)]
        assert_close(sums.mean_weights()[head], expected, atol=ATOL)


def test_attention_to_another_sentence_has_no_distance_and_the_length_of_that_sentence(generator):
    weights = torch.softmax(torch.randn(2, HEADS, 3, 5, generator=generator), dim=-1)
    queries = torch.tensor([[True, True, False], [True, True, True]])
    keys = torch.ones(2, 5, dtype=torch.bool)
    statistics = AttentionStatistics(HEADS, has_offsets=False, bounds=BOUNDS)
    statistics.add(weights, queries, keys)
    assert statistics.offsets is None
    (part,) = statistics.by_length()
    assert (part.low, part.high, part.sentences) == (5, None, 2)
    rows = [weights[0, :, 0], weights[0, :, 1], weights[1, :, 0], weights[1, :, 1], weights[1, :, 2]]
    assert_close(part.largest, sum(row.double().amax(-1) for row in rows) / 5, atol=ATOL)


def test_equal_weights_have_the_largest_entropy_and_a_single_key_the_smallest():
    real = torch.ones(1, 8, dtype=torch.bool)
    flat, sharp = AttentionStatistics(1), AttentionStatistics(1)
    flat.add(torch.full((1, 1, 8, 8), 1 / 8), real, real)
    sharp.add(torch.eye(8)[None, None], real, real)
    assert [float(flat.overall().entropy), float(flat.overall().normalized_entropy)] == pytest.approx([3.0, 1.0])
    assert [float(sharp.overall().entropy), float(sharp.overall().normalized_entropy)] == [0.0, 0.0]
    assert float(sharp.overall().largest) == 1.0
