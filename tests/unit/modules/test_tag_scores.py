"""Scores of tags, with a conditional random field against every tag sequence there is."""

import itertools
import re
import sys

import pytest
import torch
from support.helpers import assert_close

from muse_plugin.modules.tag_scores import TagScores

TAGS, LENGTHS = 3, (4, 1, 3, 2)


@pytest.fixture
def field():
    """A layer with a random field; the package is optional."""
    pytest.importorskip("torchcrf", reason="needs pytorch-crf")
    torch.manual_seed(4)
    scorer = TagScores(5, TAGS, crf=True)
    for parameter in scorer.crf.parameters():
        torch.nn.init.normal_(parameter)
    return scorer


def make_batch(longer=0):
    """Scores (B, T, tags) with large numbers at padding, lengths, and tags with -1 there."""
    generator = torch.Generator().manual_seed(9)
    size = max(LENGTHS)
    scores = torch.randn(len(LENGTHS), size, TAGS, generator=generator)
    tags = torch.randint(TAGS, (len(LENGTHS), size), generator=generator)
    scores = torch.cat([scores, torch.full((len(LENGTHS), longer, TAGS), 70.0)], dim=1)
    tags = torch.cat([tags, torch.zeros(len(LENGTHS), longer, dtype=torch.int64)], dim=1)
    lengths = torch.tensor(LENGTHS)
    outside = torch.arange(size + longer) >= lengths[:, None]
    return scores.masked_fill(outside[..., None], 70.0), lengths, tags.masked_fill(outside, -1)


def score_of(crf, scores, path):
    """Start, words, neighbours, end."""
    total = crf.start_transitions[path[0]] + crf.end_transitions[path[-1]]
    total = total + sum(scores[t, tag] for t, tag in enumerate(path))
    return total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))


def all_scores(crf, scores):
    paths = list(itertools.product(range(TAGS), repeat=len(scores)))
    assert len(paths) == TAGS ** len(scores)
    return paths, torch.stack([score_of(crf, scores, path) for path in paths])


@pytest.mark.parametrize("longer", [0, 3])
def test_losses_are_those_of_an_enumeration_of_all_tag_sequences(field, longer):
    scores, lengths, tags = make_batch(longer)
    losses = field.losses(scores, lengths, tags)
    assert losses.dtype == torch.float32
    for i, length in enumerate(LENGTHS):
        _, totals = all_scores(field.crf, scores[i, :length])
        expected = totals.logsumexp(0) - score_of(field.crf, scores[i, :length], tags[i, :length].tolist())
        assert_close(losses[i], expected)


@pytest.mark.parametrize("longer", [0, 3])
def test_the_best_tags_are_those_of_an_enumeration(field, longer):
    scores, lengths, _ = make_batch(longer)
    expected = []
    for i, length in enumerate(LENGTHS):
        paths, totals = all_scores(field.crf, scores[i, :length])
        expected.append(list(paths[int(totals.argmax())]))
    assert field.decode(scores, lengths) == expected
    greedy = [scores[i, :n].argmax(-1).tolist() for i, n in enumerate(LENGTHS)]
    assert expected != greedy  # neighbours decide


def test_gradients_of_the_field_are_finite_and_reach_no_padding(field):
    scores, lengths, tags = make_batch(longer=2)
    scores.requires_grad_()
    field.losses(scores, lengths, tags).sum().backward()
    outside = torch.arange(scores.shape[1]) >= lengths[:, None]
    assert (scores.grad[outside] == 0).all()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in field.crf.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("on_device")
def test_losses_of_long_sentences_are_exact_with_parameters_in_half_precision(field, dtype):
    """A sum over hundreds of words in half precision is off by whole nats, and losses become negative."""
    field.crf.to(dtype)
    scores = torch.randn(2, 400, TAGS).to(dtype) * 4
    lengths, tags = torch.tensor([400, 300]), scores.argmax(-1)
    losses = field.losses(scores, lengths, tags)
    field.crf.double()
    expected = -field.crf(scores.double(), tags, torch.arange(400) < lengths[:, None], reduction="none")
    assert losses.dtype == torch.float32
    assert_close(losses, expected.float(), atol=2e-3, why="sums of 400 numbers, thousands in float32")
    field.crf.to(dtype)
    field.losses(scores, lengths, tags).sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in field.crf.parameters())


def test_without_a_field_every_word_gets_its_best_tag():
    scorer = TagScores(5, TAGS)
    scores, lengths, _ = make_batch(longer=2)
    best = scorer.decode(scores, lengths)
    assert [len(row) for row in best] == list(LENGTHS)
    assert best == [[int(word.argmax()) for word in scores[i, :n]] for i, n in enumerate(LENGTHS)]


def test_scores_are_a_linear_map_with_dropout_in_training_only():
    scorer, states = TagScores(5, TAGS, dropout=0.5), torch.randn(2, 4, 5)
    assert not torch.equal(scorer(states), scorer(states))
    scorer.eval()
    assert_close(scorer(states), scorer.linear(states), atol=0, rtol=0)


def test_raises_error_when_the_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcrf", None)
    sentence = (
        "a conditional random field needs the package pytorch-crf, which is not installed; run 'pip install "
        "pytorch-crf', or leave it out."
    )
    with pytest.raises(ImportError, match=f"^{re.escape(sentence)}$"):
        TagScores(5, TAGS, crf=True)
    TagScores(5, TAGS)
