"""From states to one vector: every kind against a loop over the real words."""

from itertools import product

import pytest
import torch
from support.helpers import assert_close
from support.layers import pad_rows

from muse_plugin.modules.sentence_pooling import POOLINGS, SentencePooling
from muse_plugin.modules.token_reductions import max_over_tokens, mean_over_tokens

LENGTHS = (5, 1, 3)


def make_pooling(kind, norms=False):
    """A pooling of states of width 4; where it has parameters, they make weights far from even."""
    torch.manual_seed(2)
    pooling = SentencePooling(kind, 4, {"source_to_token": {"norms": norms}})
    for parameter in pooling.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return pooling.requires_grad_(False)


def make_states(shift=0.0, filling=50.0, longer=0):
    """Sentences, and the same padded with large numbers; the mask of the padding."""
    rows = [torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) + shift for n in LENGTHS]
    batch, _, mask = pad_rows(rows, filling, longer)
    return rows, batch, mask


def attend_by_hand(pooling, row):
    """The part with parameters, for one sentence: see test_source_to_token.py for its own equations."""
    (part,) = (part for part in pooling.parts if hasattr(part, "scores"))
    scores = part.scores(torch.nn.functional.elu(part.hidden(row)))
    weights = [[float(torch.exp(score[channel])) for score in scores] for channel in range(4)]
    return torch.tensor(
        [sum(w * float(s[c]) for w, s in zip(weights[c], row, strict=True)) / sum(weights[c]) for c in range(4)]
    )


def by_hand(pooling, row):
    if pooling.has_heads:
        return (
            pooling.parts[0](row[None]).vectors[0].flatten()
        )  # by hand in test_low_rank_attention.py, test_structured_attention.py
    if pooling.kind.startswith("source_to_token"):
        attended = attend_by_hand(pooling, row)
        return torch.cat([attended, row.amax(0)]) if pooling.kind.endswith("max") else attended
    highest = torch.tensor([max(float(state[channel]) for state in row) for channel in range(row.shape[1])])
    average = torch.tensor([sum(float(state[channel]) for state in row) / len(row) for channel in range(row.shape[1])])
    return {
        "max": highest,
        "mean": average,
        "cls": row[0],
        "cls_max": (row[0] + highest) / 2,
        "cls_max_concat": torch.cat([row[0], highest]),
    }[pooling.kind]


def test_there_are_nine_kinds():
    attention = ("source_to_token", "source_to_token_max", "low_rank_attention", "structured_attention")
    assert list(POOLINGS) == ["max", "mean", "cls", "cls_max", "cls_max_concat", *attention]


@pytest.mark.parametrize("kind", POOLINGS)
def test_only_real_words_count(kind):
    pooling = make_pooling(kind)
    # With a shift of -20 all states are negative: a padding of zeros would win a maximum.
    for shift, filling, longer in product((0.0, -20.0, 20.0), (50.0, 0.0, -50.0), (0, 7)):
        rows, batch, mask = make_states(shift, filling, longer)
        out, _ = pooling(batch, mask)
        assert out.shape == (len(rows), pooling.output_size)
        for i, row in enumerate(rows):
            assert_close(out[i], by_hand(pooling, row))
            assert_close(pooling(row[None])[0][0], by_hand(pooling, row))


@pytest.mark.parametrize("kind", POOLINGS)
def test_no_gradient_reaches_padding_and_all_are_finite(kind):
    _, batch, mask = make_states()
    batch.requires_grad_()
    make_pooling(kind)(batch, mask)[0].square().sum().backward()
    assert batch.grad.isfinite().all()
    assert (batch.grad[mask] == 0).all()
    assert batch.grad[~mask].any()


def test_a_sentence_of_padding_alone_gets_zeros():
    states, mask = torch.randn(2, 3, 4), torch.tensor([[True] * 3, [False] * 3])
    poolings = [make_pooling(kind) for kind in ("source_to_token", "source_to_token_max")]
    pools = [lambda *given, pooling=pooling: pooling(*given)[0] for pooling in poolings]
    for pool in (max_over_tokens, mean_over_tokens, *pools):
        out = pool(states, mask)
        assert (out[0] == 0).all()
        assert_close(out[1:], pool(states[1:], None))


def test_kinds_that_need_a_classification_token_say_so():
    assert [kind for kind in POOLINGS if SentencePooling(kind, 4).needs_cls] == ["cls", "cls_max", "cls_max_concat"]
    assert {kind: SentencePooling(kind, 4).output_size for kind in POOLINGS} == {
        **dict.fromkeys(POOLINGS, 4),
        "cls_max_concat": 8,
        "source_to_token_max": 8,
        "low_rank_attention": 15 * 4,
        "structured_attention": 30 * 4,
    }


def test_only_attention_has_parameters_and_norms_where_asked_for():
    counts = {
        (kind, n): sum(p.numel() for p in make_pooling(kind, n).parameters()) for kind in POOLINGS for n in (0, 1)
    }
    expected = {(kind, n): 40 + 16 * n if "source_to_token" in kind else 0 for kind, n in counts}
    for n in (0, 1):
        expected["low_rank_attention", n] = 4 * 4 + 4 + 2 * 4 * 15 + 4
        expected["structured_attention", n] = 4 * 350 + 350 * 30
    assert counts == expected


@pytest.mark.parametrize("kind", POOLINGS)
def test_half_precision_stays_what_it_is_and_finite(kind):
    _, batch, mask = make_states()
    for dtype in (torch.float16, torch.bfloat16):
        out = make_pooling(kind).to(dtype)(batch.to(dtype), mask)[0]
        assert out.dtype == dtype
        assert out.isfinite().all()


def test_raises_error_for_an_unknown_kind():
    kinds = "max, mean, cls, cls_max, cls_max_concat, source_to_token, source_to_token_max, low_rank_attention, "
    kinds += "structured_attention"
    with pytest.raises(ValueError, match=rf"^kind must be one of {kinds}, but got 'median'\.$"):
        SentencePooling("median", 4)


def test_printed_pooling_tells_its_kind():
    lines = [line.strip() for line in repr(SentencePooling("source_to_token_max", 4)).splitlines()]
    assert lines[:2] == ["SentencePooling(", "source_to_token_max"]
    assert "(1): Reduction(max)" in lines
