"""From states to one vector: every kind against a loop over the real words."""

import pytest
import torch
from helpers import assert_close

from muse_plugin.modules.sentence_pooling import POOLINGS, SentencePooling, max_over_tokens, mean_over_tokens

LENGTHS = (5, 1, 3)


def make_states(shift=0.0, filling=50.0, longer=0):
    """Sentences, and the same padded with large numbers; the mask of the padding."""
    rows = [torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) + shift for n in LENGTHS]
    batch = torch.full((len(rows), max(LENGTHS) + longer, 4), filling)
    for i, row in enumerate(rows):
        batch[i, : len(row)] = row
    return rows, batch, torch.arange(batch.shape[1]) >= torch.tensor(LENGTHS)[:, None]


def by_hand(kind, row):
    highest = torch.tensor([max(float(state[channel]) for state in row) for channel in range(row.shape[1])])
    average = torch.tensor([sum(float(state[channel]) for state in row) / len(row) for channel in range(row.shape[1])])
    return {
        "max": highest,
        "mean": average,
        "cls": row[0],
        "cls_max": (row[0] + highest) / 2,
        "cls_max_concat": torch.cat([row[0], highest]),
    }[kind]


def test_there_are_five_kinds():
    assert POOLINGS == ("max", "mean", "cls", "cls_max", "cls_max_concat")


@pytest.mark.parametrize("shift", [0.0, -20.0, 20.0])  # all states negative: a padding of zeros would win a maximum
@pytest.mark.parametrize("kind", POOLINGS)
def test_only_real_words_count(kind, shift):
    pooling = SentencePooling(kind)
    for longer in (0, 7):
        for filling in (50.0, 0.0, -50.0):
            rows, batch, mask = make_states(shift, filling, longer)
            out = pooling(batch, mask)
            assert out.shape == (len(rows), pooling.output_size(4))
            for i, row in enumerate(rows):
                assert_close(out[i], by_hand(kind, row))
                assert_close(pooling(row[None])[0], by_hand(kind, row))


@pytest.mark.parametrize("kind", POOLINGS)
def test_no_gradient_reaches_padding_and_all_are_finite(kind):
    _, batch, mask = make_states()
    batch.requires_grad_()
    SentencePooling(kind)(batch, mask).square().sum().backward()
    assert batch.grad.isfinite().all()
    assert (batch.grad[mask] == 0).all()
    assert batch.grad[~mask].any()


def test_a_sentence_of_padding_alone_gets_zeros():
    states, mask = torch.randn(2, 3, 4), torch.tensor([[True] * 3, [False] * 3])
    for pool in (max_over_tokens, mean_over_tokens):
        out = pool(states, mask)
        assert (out[0] == 0).all()
        assert_close(out[1:], pool(states[1:], None))


def test_kinds_that_need_a_classification_token_say_so():
    assert [kind for kind in POOLINGS if SentencePooling(kind).needs_cls] == ["cls", "cls_max", "cls_max_concat"]
    assert {kind: SentencePooling(kind).output_size(4) for kind in POOLINGS} == {
        **dict.fromkeys(POOLINGS, 4),
        "cls_max_concat": 8,
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", POOLINGS)
def test_half_precision_stays_what_it_is_and_finite(kind, dtype):
    _, batch, mask = make_states()
    out = SentencePooling(kind)(batch.to(dtype), mask)
    assert out.dtype == dtype
    assert out.isfinite().all()


def test_raises_error_for_an_unknown_kind():
    with pytest.raises(
        ValueError, match=r"^--pooling must be one of max, mean, cls, cls_max, cls_max_concat, but got 'median'\.$"
    ):
        SentencePooling("median")


def test_printed_pooling_tells_its_kind():
    assert repr(SentencePooling("cls_max")) == "SentencePooling(cls_max)"
