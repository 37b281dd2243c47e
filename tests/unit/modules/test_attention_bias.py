"""Windows, directions and distance: the ranges they describe, and attention with them against a matrix by hand."""

import math
from itertools import product

import pytest
import torch
from support.helpers import assert_close
from support.layers import make_context, scales_of

from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.attention_bias import (
    AttentionBias,
    Direction,
    DistancePenalty,
    MultiScaleWindows,
    Scale,
    SummedBias,
    geometric_alphas,
)
from muse_plugin.modules.branch import LayerContext
from muse_plugin.ops.window_attention import UNLIMITED, window_attention

ALL = UNLIMITED
# Length of the sentence: widths of N/16, N/8, N/4, N/2.
WIDTHS = {
    10: (1, 1, 3, 5),
    22: (1, 3, 5, 11),
    50: (3, 7, 13, 25),
    100: (7, 13, 25, 51),
    109: (7, 13, 27, 55),
    201: (13, 25, 51, 101),
}


def ranges_of(bias, *lengths):
    """Pairs of first and last offset, by sentence and head."""
    windows = bias(torch.tensor(lengths))
    assert windows.first.dtype == windows.last.dtype == torch.int64
    pairs = zip(windows.first.tolist(), windows.last.tolist(), strict=True)
    return [list(zip(firsts, lasts, strict=True)) for firsts, lasts in pairs]


def attend_by_hand(query, key, value, matrices):
    """softmax(Q K^T / sqrt(D) + M) V of one sentence, head by head, row by row; zeros where all of M is -inf."""
    out = torch.zeros_like(query)
    for head, matrix in enumerate(matrices):
        for row, biases in enumerate(matrix):
            seen = [column for column, bias in enumerate(biases) if bias > -math.inf]
            if seen:
                logits = [query[0, head, row] @ key[0, head, s] / query.shape[-1] ** 0.5 + biases[s] for s in seen]
                out[0, head, row] = torch.softmax(torch.stack(logits), 0) @ value[0, head, seen]
    return out


def assert_attends(bias, length, entry):
    """Attention with ``bias`` equals that with the matrix of ``entry(head, query, key)``."""
    windows = bias(torch.tensor([length]))
    heads = windows.first.shape[1]
    query, key, value = torch.randn(3, 1, heads, length, 4, dtype=torch.float64)
    matrices = [[[entry(h, i, j) for j in range(length)] for i in range(length)] for h in range(heads)]
    actual = window_attention(query, key, value, windows)
    assert_close(actual, attend_by_hand(query, key, value, matrices), atol=1e-6, why="alphas are float32")


# ---- windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", WIDTHS)
def test_fractions_of_a_sentence_are_rounded_as_in_the_table(length):
    for divisor, width in zip((16, 8, 4, 2), WIDTHS[length], strict=True):
        assert Scale(divisor=divisor).resolve(torch.tensor([length])).tolist() == [width]


def test_a_fraction_is_odd_and_at_least_one_token():
    for length, divisor in product(range(1, 12), (1, 2, 3, 16)):
        (width,) = Scale(divisor=divisor).resolve(torch.tensor([length])).tolist()
        assert width == max(1, length // divisor) + (max(1, length // divisor) % 2 == 0)


def test_scales_of_many_sentences_are_resolved_by_each_length():
    lengths = torch.tensor([10, 100, 201])
    assert Scale(divisor=4).resolve(lengths).tolist() == [3, 25, 51]
    assert Scale(window=5).resolve(lengths).tolist() == [5, 5, 5]
    assert Scale().resolve(lengths).tolist() == [ALL] * 3


def test_scales_read_as_in_the_flag():
    assert [str(scale) for scale in scales_of("1,3,N/16,all")] == ["1", "3", "N/16", "all"]


def test_a_scale_is_the_whole_width_of_a_centred_window():
    bias = MultiScaleWindows(scales_of("1,3,5,all"))
    assert ranges_of(bias, 9) == [[(0, 0), (-1, 1), (-2, 2), (-ALL, ALL)]]
    assert_attends(bias, 7, lambda h, i, j: 0.0 if abs(i - j) <= (0, 1, 2, 7)[h] else -math.inf)


def test_windows_grow_with_the_sentence_s_own_length():
    bias = MultiScaleWindows(scales_of("1,N/16,N/8,N/4"))
    expected = [[(-(w // 2), w // 2) for w in (1, *WIDTHS[n][:3])] for n in (22, 100, 201)]
    assert ranges_of(bias, 22, 100, 201) == expected
    assert ranges_of(bias, 100) == expected[1:2]


def test_windows_of_fixed_width_are_described_once_for_all_sentences():
    assert len(ranges_of(MultiScaleWindows(scales_of("1,3,all")), 5, 6, 7)) == 1
    assert len(ranges_of(MultiScaleWindows(scales_of("1,3,N/2")), 5, 6, 7)) == 3


def test_causal_windows_end_at_the_query_and_may_be_even():
    bias = MultiScaleWindows(scales_of("1,2,3,4,all"), causal=True)
    assert ranges_of(bias, 9) == [[(0, 0), (-1, 0), (-2, 0), (-3, 0), (-ALL, 0)]]
    assert_attends(bias, 6, lambda h, i, j: 0.0 if 0 <= i - j < (1, 2, 3, 4, 9)[h] else -math.inf)


@pytest.mark.parametrize("causal", [False, True])
def test_scales_can_be_read_as_radii(causal):
    bias = MultiScaleWindows(scales_of("0,1,4,all"), causal=causal, scales_are_radii=True)
    assert ranges_of(bias, 9) == [[(-reach, 0 if causal else reach) for reach in (0, 1, 4, ALL)]]


def test_a_fraction_can_be_a_radius():
    bias = MultiScaleWindows(scales_of("N/4"), scales_are_radii=True)
    assert ranges_of(bias, 10, 22) == [[(-3, 3)], [(-5, 5)]]


@pytest.mark.parametrize(
    ("scale", "options", "words"),
    [
        (Scale(0), {}, "at least 1 token wide, but got 0"),
        (Scale(-1), {"scales_are_radii": True}, "at least 0 token wide, but got -1"),
        (Scale(divisor=4), {"causal": True}, "a decoder's scales cannot depend on the length"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(scale, options, words):
    """The sentences are in test_attention_bias_flags.py."""
    with pytest.raises(ValueError, match=words):
        MultiScaleWindows([Scale(3), scale], **options)


# ---- directions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "nearest"), [({}, 1), ({"masks_diagonal": False}, 0)])
def test_directions_leave_out_the_word_itself_unless_told_otherwise(settings, nearest):
    bias = Direction(["forward", "backward", "both"], **settings)
    assert ranges_of(bias, 7) == [[(-ALL, -nearest), (nearest, ALL), (-ALL, ALL)]]
    tests = (lambda i, j: j <= i - nearest, lambda i, j: j >= i + nearest, lambda i, j: True)
    assert_attends(bias, 5, lambda h, i, j: 0.0 if tests[h](i, j) else -math.inf)


def test_a_word_that_sees_nothing_gets_zeros():
    windows = Direction(["forward", "backward"])(torch.tensor([4]))
    out = window_attention(*torch.randn(3, 1, 2, 4, 3), windows)
    assert (out[0, 0, 0] == 0).all()  # the first word has none before it
    assert (out[0, 1, 3] == 0).all()
    assert (out[0, 0, 1:] != 0).all()
    assert (out[0, 1, :3] != 0).all()
    alone = window_attention(*torch.randn(3, 1, 2, 1, 3), Direction(["forward", "backward"])(torch.tensor([1])))
    assert (alone == 0).all()


def test_raises_error_for_an_unknown_direction():
    with pytest.raises(ValueError, match=r"^a direction must be one of forward, backward, both, but got 'upward'\.$"):
        Direction(["forward", "upward"])


# ---- distance -----------------------------------------------------------------------------------------------------


def test_logits_lose_alpha_per_word_of_distance():
    alphas = [0.0, 0.5, 1.5]
    assert_attends(DistancePenalty(alphas), 6, lambda h, i, j: -alphas[h] * abs(i - j))


def test_fixed_alphas_are_no_parameters_and_not_in_checkpoints():
    bias = DistancePenalty([1.5, 1.5])
    assert list(bias.parameters()) == []
    assert bias.state_dict() == {}
    assert bias.double()(torch.tensor([3])).slopes.dtype == torch.float64  # but they follow the module


def test_learned_alphas_are_one_parameter_per_head_with_gradients_of_their_own():
    bias = DistancePenalty([1.5, 1.5, 1.5], learned=True)
    assert [(name, p.tolist()) for name, p in bias.named_parameters()] == [("alphas", [1.5, 1.5, 1.5])]
    windows = SummedBias([MultiScaleWindows(scales_of("3,3,3")), bias])(torch.tensor([50]))
    window_attention(*torch.randn(3, 2, 3, 50, 4), windows).square().sum().backward()
    assert bias.alphas.grad.unique().numel() == 3
    assert (bias.alphas.grad != 0).all()


@pytest.mark.parametrize("heads", [1, 4, 6, 16])
def test_geometric_alphas_are_those_of_the_formula(heads):
    alphas = geometric_alphas(heads)
    assert_close(alphas, [2 ** (-8 * h / heads) for h in range(1, heads + 1)], atol=1e-12)
    assert alphas[-1] == 2**-8
    if heads == 4:
        assert alphas == [1 / 4, 1 / 16, 1 / 64, 1 / 256]


@pytest.mark.parametrize(
    ("alpha", "learned"), [(math.nan, False), (math.inf, False), (-math.inf, True), (-0.5, False), (-0.5, True)]
)
def test_raises_error_when_an_alpha_is_negative_or_not_finite(alpha, learned):
    sentence = f"^the alpha of the distance mask must be a finite number of at least 0, but got {alpha}\\.$"
    with pytest.raises(ValueError, match=sentence):
        DistancePenalty([1.5, alpha], learned)


# ---- sums ---------------------------------------------------------------------------------------------------------


def test_a_sum_is_the_sum_of_the_matrices():
    parts = [
        MultiScaleWindows(scales_of("1,3,3,all")),
        Direction(["forward", "backward", "both", "forward"]),
        DistancePenalty([0.5, 1.0, 1.5, 2.0]),
        DistancePenalty([0.25, 0.0, 1.0, 0.5], learned=True),
    ]

    def entry(h, i, j):
        window = 0.0 if abs(i - j) <= (0, 1, 1, 9)[h] else -math.inf
        direction = 0.0 if (j < i, j > i, True, j < i)[h] else -math.inf
        return window + direction - (0.75, 1.0, 2.5, 2.5)[h] * abs(i - j)

    for order in ([0, 1, 2, 3], [3, 1, 2, 0], [2, 0, 3, 1]):
        assert_attends(SummedBias([parts[i] for i in order]), 7, entry)


def test_a_sum_of_one_is_that_one():
    bias = SummedBias([MultiScaleWindows(scales_of("3,N/2"))])
    assert ranges_of(bias, 10, 22) == [[(-1, 1), (-2, 2)], [(-1, 1), (-5, 5)]]
    assert bias(torch.tensor([10])).slopes is None


def test_a_sum_has_a_row_per_sentence_as_soon_as_one_part_has():
    bias = SummedBias([Direction(["forward", "backward"]), MultiScaleWindows(scales_of("3,N/2"))])
    assert ranges_of(bias, 10, 22) == [[(-1, -1), (1, 2)], [(-1, -1), (1, 5)]]


# ---- in self-attention --------------------------------------------------------------------------------------------


def make_projected(batch=2, length=9, width=12, dtype=torch.float64):
    return {name: torch.randn(batch, length, width, dtype=dtype) for name in ("query", "key", "value")}


def test_self_attention_counts_the_tokens_of_each_sentence_itself():
    branch, projected = SelfAttention(12, 3, bias=MultiScaleWindows(scales_of("1,3,N/2"))), make_projected()
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[1, :5] = True
    together = branch(projected, make_context(9, key_padding_mask=mask))
    given = branch(projected, make_context(9, key_padding_mask=mask, lengths=torch.tensor([9, 4])))
    assert_close(together, given, atol=0, rtol=0)
    wrong = branch(projected, make_context(9, key_padding_mask=mask, lengths=torch.tensor([2, 2])))
    assert not torch.allclose(together[0], wrong[0])
    for row, real in ((0, slice(0, 9)), (1, slice(5, 9))):
        own = {name: x[row : row + 1, real] for name, x in projected.items()}
        alone = branch(own, LayerContext(length=own["query"].shape[1]))
        assert_close(together[row : row + 1, real], alone, atol=1e-12)


def test_causal_self_attention_cuts_windows_at_the_query():
    projected = make_projected()
    context = LayerContext(length=9, causal=True)
    for bias in (None, DistancePenalty([0.0] * 3), MultiScaleWindows(scales_of("all,all,all"), causal=True)):
        out = SelfAttention(12, 3, bias=bias)(projected, context)
        assert_close(out, SelfAttention(12, 3)(projected, context), atol=1e-12)
    centred = SelfAttention(12, 3, bias=MultiScaleWindows(scales_of("5,5,5")))(projected, context)
    ending = SelfAttention(12, 3, bias=MultiScaleWindows(scales_of("3,3,3"), causal=True))(projected, context)
    assert_close(centred, ending, atol=1e-12)


@pytest.mark.parametrize("bias", [MultiScaleWindows(scales_of("3,3,3")), DistancePenalty([0.5] * 3)])
def test_biased_self_attention_drops_weights_in_training_only(bias):
    projected, context = make_projected(), LayerContext(length=9)
    branch = SelfAttention(12, 3, dropout=0.5, bias=bias)
    branch.eval()
    expected = SelfAttention(12, 3, bias=bias)(projected, context)
    assert_close(branch(projected, context), expected, atol=0, rtol=0)
    branch.train()
    assert not torch.equal(branch(projected, context), branch(projected, context))


@pytest.mark.parametrize(
    ("bias", "silent"),
    [
        (None, 0),
        (MultiScaleWindows(scales_of("1,1,3,N/4")), 2),
        (MultiScaleWindows(scales_of("1,3,3,all")), 1),
        (MultiScaleWindows(scales_of("3,3,N/16,all")), 0),
        (MultiScaleWindows(scales_of("1,N/16,N/8,all")), 1),  # N/16 is one token in short sentences only
        (MultiScaleWindows(scales_of("3,1,1,all")), 0),  # only the first heads can be left out
        (MultiScaleWindows(scales_of("0,0,0,4"), scales_are_radii=True), 3),
        (MultiScaleWindows(scales_of("1,1,2,4"), causal=True), 2),
        (DistancePenalty([1.5] * 4), 0),
        (SummedBias([MultiScaleWindows(scales_of("1,1,3,3")), DistancePenalty([1.5] * 4)]), 2),
        (SummedBias([MultiScaleWindows(scales_of("1,1,3,3")), Direction(["forward"] * 4, False)]), 2),
        (SummedBias([MultiScaleWindows(scales_of("1,1,3,3")), Direction(["forward", "backward"] * 2)]), 0),
    ],
    ids=str,
)
def test_heads_of_one_token_need_neither_queries_nor_keys(bias, silent):
    branch = SelfAttention(8, 4, bias=bias)
    rows = {name: (torch.randn(8, 8), torch.randn(8)) for name in ("query", "key", "value")}
    folded = branch.fold(rows)
    assert sorted(folded) == (["key", "query"] if silent else [])
    for name, (weight, offset) in folded.items():
        assert_close(weight, rows[name][0][2 * silent :], atol=0, rtol=0)
        assert_close(offset, rows[name][1][2 * silent :], atol=0, rtol=0)
    projected = make_projected(length=20, width=8)
    fewer = {**projected, **{name: projected[name][..., 2 * silent :] for name in folded}}
    for length in (20, 1, 7):
        context = LayerContext(length=length, causal=length < 20)
        ordinary, quick = ({**x, "query": x["query"][:, -length:]} for x in (projected, fewer))
        assert_close(branch(quick, context), branch(ordinary, context), atol=1e-12)


def test_a_layer_of_heads_of_one_token_returns_the_values_in_both_forms():
    branch, projected = SelfAttention(8, 4, bias=MultiScaleWindows(scales_of("1,1,1,1"))), make_projected(width=8)
    context = LayerContext(length=9)
    assert_close(branch(projected, context), projected["value"], atol=0, rtol=0)
    folded = branch.fold({name: (torch.randn(8, 8), torch.randn(8)) for name in ("query", "key")})
    fewer = {name: projected[name][..., 8 - weight.shape[0] :] for name, (weight, _) in folded.items()}
    assert fewer["query"].shape[-1] < 8
    assert_close(branch({**projected, **fewer}, context), projected["value"], atol=0, rtol=0)


def test_printed_model_tells_what_heads_may_look_at():
    assert repr(MultiScaleWindows(scales_of("1,N/4"))) == "MultiScaleWindows(scales=[1, N/4], causal=False)"
    radii = MultiScaleWindows(scales_of("0,all"), causal=True, scales_are_radii=True)
    assert repr(radii) == "MultiScaleWindows(radii=[0, all], causal=True)"
    assert repr(Direction(["forward"])) == "Direction(directions=[forward], masks_diagonal=True)"
    assert repr(DistancePenalty([0.5, 1.0], True)) == "DistancePenalty(alphas=[0.5, 1], learned=True)"


def test_a_bias_of_no_kind_describes_nothing():
    with pytest.raises(NotImplementedError):
        AttentionBias()(torch.tensor([3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("alpha", [1e5, 3e38])
@pytest.mark.usefixtures("on_device")
def test_a_steep_alpha_leaves_the_word_itself_in_every_precision(dtype, alpha):
    projected = {name: torch.randn(2, 40, 8).to(dtype) for name in ("query", "key", "value")}
    branch = SelfAttention(8, 2, bias=DistancePenalty([alpha] * 2)).eval()
    assert_close(branch(projected, LayerContext(length=40)), projected["value"], atol=0.02, rtol=0)
