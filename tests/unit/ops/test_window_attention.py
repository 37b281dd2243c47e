"""Attention within windows: every back end against a loop over the visible keys, and what holds for all of them."""

import math
import re
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import Results, assert_close

from muse_plugin.ops import dynamic_conv_cpu
from muse_plugin.ops import window_attention as op
from muse_plugin.ops.dynamic_conv_cpu import dot_rows
from muse_plugin.ops.window_attention import BACKENDS, UNLIMITED, Windows, window_attention

TRAINING = ["auto", "dense", "taps", "blocks"]
EVERY = ["reference", *TRAINING]
HEADS, BATCH, CHANNELS = 3, 2, 4
ALL = UNLIMITED
# First and last offset of each head.
RANGES = {
    "one token": ((0, 0), (0, 0), (0, 0)),
    "three tokens": ((-1, 1), (-1, 1), (-1, 1)),
    "different widths": ((0, 0), (-1, 1), (-3, 3)),
    "unequal sides": ((-4, 0), (0, 2), (-1, 5)),
    "off the diagonal": ((-5, -3), (2, 3), (-1, 1)),
    "one neighbour": ((-1, -1), (1, 1), (-2, -2)),
    "wider than the sentence": ((-40, 40), (-25, 0), (0, 60)),
    "unlimited": ((-ALL, ALL), (-ALL, ALL), (-ALL, ALL)),
    "one-sided": ((-ALL, -1), (1, ALL), (-ALL, 0)),
    "ahead": ((1, ALL), (2, ALL), (1, 40)),
    "empty": ((1, 0), (3, -3), (0, 0)),
    "out of reach": ((100, 200), (-200, -100), (-ALL, -50)),
    "all but one empty": ((1, 0), (-1, 1), (1, 0)),
}
SLOPES = {"no slopes": None, "slopes": [0.0, 0.5, 1.5]}
PADDING = ["none", "left", "right", "whole"]
# Padding, queries, keys.
CASES = [("none", 9, 9), ("left", 13, 13), ("right", 13, 13), ("whole", 9, 9), ("left", 4, 9), ("none", 1, 9)]


def make_windows(ranges, slopes=None, dtype=torch.float64):
    """Ranges are pairs per head, or lists of those per sentence."""
    table = torch.tensor(ranges)
    table = table[None] if table.dim() == 2 else table
    return Windows(table[..., 0], table[..., 1], None if slopes is None else torch.tensor(slopes, dtype=dtype))


def make_inputs(length=9, positions=9, dtype=torch.float64, batch=BATCH, heads=HEADS, channels=CHANNELS, scale=1.0):
    """Slices of one buffer, time first, as the layers of the model have them."""
    buffer = scale * torch.randn(positions, batch, 3 * heads * channels, dtype=torch.float64).to(dtype)
    query, key, value = (part.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for part in buffer.chunk(3, -1))
    return query[:, :, positions - length :], key, value


def make_padding(kind, positions, batch=BATCH):
    """The first sentence has none, the last a third of its positions or all."""
    if kind == "none":
        return None
    mask = torch.zeros(batch, positions, dtype=torch.bool)
    count = positions if kind == "whole" else positions // 3
    mask[-1, : count if kind != "right" else 0] = True
    if kind == "right":
        mask[-1, positions - count :] = True
    return mask


def find_visible(windows, length, positions, padding=None):
    """Which keys are seen, bool, shape (B or 1, H, T, S), by the definition."""
    offsets = torch.arange(positions) - (torch.arange(length) + positions - length)[:, None]
    seen = (offsets >= windows.first[..., None, None]) & (offsets <= windows.last[..., None, None])
    return seen if padding is None else seen & ~padding[:, None, None]


def find_real(length, padding):
    """Queries that are at no padding, shape (B or 1, 1, T, 1)."""
    if padding is None:
        return torch.ones(1, 1, length, 1, dtype=torch.bool)
    return ~padding[:, None, padding.shape[1] - length :, None]


def slow_window_attention(query, key, value, windows, padding=None):
    """The definition, one query at a time, in float64."""
    batch, heads, length, channels = query.shape
    positions = key.shape[2]
    seen = find_visible(windows, length, positions, padding).expand(batch, heads, -1, -1)
    query, key, value = query.double(), key.double(), value.double()
    out = torch.zeros_like(query)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                keys = seen[b, h, t].nonzero().flatten()
                if len(keys) == 0:
                    continue
                logits = key[b, h, keys] @ query[b, h, t] / math.sqrt(channels)
                if windows.slopes is not None:
                    logits = logits - windows.slopes[h] * (keys - (t + positions - length)).abs()
                weights = torch.exp(logits - logits.max())
                out[b, h, t] = (weights / weights.sum()) @ value[b, h, keys]
    return out


def differentiate(backend, inputs, windows, padding=None, real_only=True):
    """The result, and the gradients of query, key, value and slopes; only real queries count."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    if windows.slopes is not None:
        leaves.append(windows.slopes.detach().requires_grad_())
        windows = windows._replace(slopes=leaves[-1])
    out = window_attention(*leaves[:3], windows, padding, backend=backend)
    real = find_real(out.shape[2], padding) if real_only else torch.ones(1, dtype=torch.bool)
    weights = torch.randn(
        out.shape, dtype=torch.float64, device=out.device, generator=torch.Generator(out.device).manual_seed(6)
    )
    loss = (out.double() * weights).masked_fill(~real, 0.0).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]
    return [out.detach().masked_fill(~real, 0.0), *gradients]


@pytest.fixture
def elsewhere(request, on_device, device):
    """New tensors are on the device asked for; a back end that is of the CPU alone is skipped on others."""
    if request.getfixturevalue("backend") == "taps" and device.type != "cpu":
        pytest.skip("of the CPU alone")


@pytest.fixture
def short_blocks(monkeypatch):
    """Several blocks in a short sentence."""
    monkeypatch.setattr(op, "_BLOCK", 4)


# ---- the definition -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", RANGES)
def test_reference_equals_a_loop_over_the_visible_keys(ranges):
    for slopes, (padding, length, positions) in product(SLOPES.values(), CASES):
        windows = make_windows(RANGES[ranges], slopes)
        inputs, mask = make_inputs(length, positions), make_padding(padding, positions)
        actual = window_attention(*inputs, windows, mask, backend="reference")
        expected = slow_window_attention(*inputs, windows, mask)
        real = find_real(length, mask)  # the result at padding is unspecified
        assert_close(actual.masked_fill(~real, 0.0), expected.masked_fill(~real, 0.0), atol=1e-12)


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.usefixtures("short_blocks")
def test_back_ends_equal_the_reference_in_values_and_gradients(ranges):
    for slopes, (padding, length, positions) in product(SLOPES.values(), CASES):
        windows = make_windows(RANGES[ranges], slopes)
        inputs, mask = make_inputs(length, positions), make_padding(padding, positions)
        expected = differentiate("reference", inputs, windows, mask)
        for backend in TRAINING:
            for a, e in zip(differentiate(backend, inputs, windows, mask), expected, strict=True):
                assert_close(a, e, atol=1e-12, why=f"{backend}, {length} queries, {positions} keys, padding {padding}")


@pytest.mark.parametrize("backend", TRAINING)
@pytest.mark.usefixtures("short_blocks")
def test_every_sentence_may_have_windows_of_its_own(backend):
    windows = make_windows([[(-1, 1), (0, 0), (-5, -3)], [(-4, 4), (-2, 2), (1, ALL)]], [0.0, 0.3, 1.0])
    for padding, length, positions in CASES:
        inputs, mask = make_inputs(length, positions), make_padding(padding, positions)
        expected = differentiate("reference", inputs, windows, mask)
        for a, e in zip(differentiate(backend, inputs, windows, mask), expected, strict=True):
            assert_close(a, e, atol=1e-12)
    inputs = make_inputs()
    for row in (0, 1):
        alone = Windows(windows.first[row : row + 1], windows.last[row : row + 1], windows.slopes)
        together = window_attention(*inputs, windows, backend=backend)[row : row + 1]
        single = window_attention(*(x[row : row + 1] for x in inputs), alone, backend=backend)
        assert_close(together, single, atol=1e-12)


@pytest.mark.parametrize("backend", TRAINING)
@pytest.mark.usefixtures("short_blocks")
def test_equal_slopes_have_gradients_of_their_own(backend):
    windows, inputs = make_windows(RANGES["three tokens"], [0.5] * HEADS), make_inputs(13, 13)
    *_, expected = differentiate("reference", inputs, windows)
    *_, actual = differentiate(backend, inputs, windows)
    assert expected.unique().numel() == HEADS
    assert_close(actual, expected, atol=1e-12)


@pytest.mark.parametrize("backend", TRAINING)
def test_inputs_may_lie_in_memory_in_any_way(backend):
    windows = make_windows(RANGES["different widths"], [0.1, 0.2, 0.3])
    sliced = make_inputs(40, 40)
    expected = differentiate(backend, sliced, windows)
    for layout in (torch.Tensor.contiguous, lambda x: x.transpose(2, 3).contiguous().transpose(2, 3)):
        for a, e in zip(differentiate(backend, [layout(x) for x in sliced], windows), expected, strict=True):
            assert_close(a, e, atol=1e-12)


@st.composite
def draw_ranges(draw, heads, positions):
    """Windows of any place and width, often of equal neighbours; some empty, some unlimited."""
    reach = st.one_of(st.integers(-positions - 3, positions + 3), st.sampled_from([-ALL, ALL]))
    kinds = draw(st.lists(st.tuples(reach, reach), min_size=1, max_size=heads))
    ranges = [kinds[min(head, len(kinds) - 1)] for head in range(heads)]
    return [pair if draw(st.booleans()) else (min(pair), max(pair)) for pair in ranges]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_random_windows_lengths_and_padding(data):
    batch, heads = data.draw(st.integers(1, 3), "batch"), data.draw(st.integers(1, 4), "heads")
    length = data.draw(st.integers(1, 40), "length")
    positions = length + data.draw(st.one_of(st.just(0), st.integers(0, 40)), "history")
    rows = batch if data.draw(st.booleans(), "windows per sentence") else 1
    ranges = [data.draw(draw_ranges(heads, positions), "ranges") for _ in range(rows)]
    slopes = data.draw(st.none() | st.lists(st.floats(-0.5, 2), min_size=heads, max_size=heads), "slopes")
    torch.manual_seed(data.draw(st.integers(0, 2**31), "seed"))
    windows = make_windows(ranges, slopes)
    mask = None
    if data.draw(st.booleans(), "padded"):
        counts = torch.tensor(data.draw(st.lists(st.integers(0, positions), min_size=batch, max_size=batch), "padding"))
        at = torch.arange(positions)
        mask = at < counts[:, None] if data.draw(st.booleans(), "left") else at >= positions - counts[:, None]
    inputs = make_inputs(length, positions, batch=batch, heads=heads, channels=data.draw(st.integers(1, 3), "channels"))
    expected = differentiate("reference", inputs, windows, mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "_BLOCK", data.draw(st.sampled_from([1, 3, 8, 32]), "block"))
        for backend in ("auto", data.draw(st.sampled_from(["taps", "blocks", "dense"]), "backend")):
            for a, e in zip(differentiate(backend, inputs, windows, mask), expected, strict=True):
                assert_close(a, e, atol=1e-10, why=backend)


@pytest.mark.parametrize(("ranges", "length"), [("different widths", 4), ("off the diagonal", 3), ("one-sided", 4)])
@pytest.mark.parametrize("backend", ["taps", "dense", "blocks"])
def test_gradcheck(backend, ranges, length, monkeypatch):
    monkeypatch.setattr(op, "_BLOCK", 2)
    mask = torch.tensor([[True, False, False, False]])
    leaves = [x.detach().requires_grad_() for x in make_inputs(length, 4, batch=1, channels=1)]
    slopes = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64, requires_grad=True)

    def compute(query, key, value, slopes):
        windows = make_windows(RANGES[ranges])._replace(slopes=slopes)
        out = window_attention(query, key, value, windows, mask, backend=backend)
        return out.masked_fill(~find_real(length, mask), 0.0)

    assert torch.autograd.gradcheck(compute, (*leaves, slopes))


# ---- dot products of rows -----------------------------------------------------------------------------------------

WINDOWS_OF_ROWS = [(1, 3), (0, 1), (4, 5), (0, 4), (-2, 3), (5, 20), (12, 14), (-8, 2), (9, 3)]


@pytest.mark.parametrize(("left", "size"), WINDOWS_OF_ROWS)
def test_dot_rows_by_hand(left, size):
    queries, keys, _ = make_inputs(9, 9 + 5)
    products = dot_rows(queries, keys, left, size)
    assert products.shape == (BATCH, HEADS, 9, size)
    for t in range(9):
        for j in range(size):
            position = t - left + j
            inside = 0 <= position < keys.shape[2]
            expected = (queries[:, :, t] * keys[:, :, position if inside else 0]).sum(-1) * inside
            assert_close(products[:, :, t, j], expected, atol=1e-12)


@pytest.mark.parametrize(("left", "size", "history"), [(1, 3, 0), (-2, 3, 2), (5, 12, 2), (2, 9, 0)])
def test_dot_rows_gradcheck(left, size, history):
    queries, keys, _ = make_inputs(3, 3 + history, heads=2, channels=1)
    leaves = queries.detach().requires_grad_(), keys.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: dot_rows(q, k, left, size), leaves)
    for leaf in leaves:  # one gradient without the other
        leaf.requires_grad_(False)
        assert torch.autograd.gradcheck(lambda q, k: dot_rows(q, k, left, size), leaves)
        leaf.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dot_rows_of_half_precision_are_added_up_in_float32(dtype):
    queries, keys, _ = (x.requires_grad_() for x in make_inputs(dtype=dtype, channels=64))
    products = dot_rows(queries, keys, 1, 3)
    assert products.dtype == torch.float32
    assert_close(products, dot_rows(queries.float(), keys.float(), 1, 3), atol=1e-5)
    gradients = torch.autograd.grad(products.sum(), (queries, keys))
    assert [gradient.dtype for gradient in gradients] == [dtype, dtype]


# ---- queries that see nothing -------------------------------------------------------------------------------------

BLIND = ["off the diagonal", "one neighbour", "one-sided", "ahead", "empty", "out of reach", "all but one empty"]


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.usefixtures("short_blocks")
def test_a_query_that_sees_no_key_gets_exactly_zero(backend):
    for ranges, padding, length in product(BLIND, PADDING, (9, 4)):
        windows = make_windows(RANGES[ranges])
        # What a query at padding gets where windows hold the query itself is unspecified.
        elsewhere = ((windows.first > 0) | (windows.last < 0))[..., None]
        inputs, mask = make_inputs(length, 9), make_padding(padding, 9)
        out = window_attention(*inputs, windows, mask, backend=backend)
        seeing = find_visible(windows, length, 9, mask).any(-1).expand(BATCH, -1, -1)
        blind = ~seeing & (elsewhere | find_real(length, mask)[..., 0])
        assert blind.any(), ranges
        assert (out[blind] == 0).all(), ranges
        assert (out[seeing] != 0).all(), ranges


@pytest.mark.parametrize("backend", TRAINING)
@pytest.mark.usefixtures("short_blocks", "elsewhere")
def test_a_query_that_sees_no_key_gives_no_gradient(backend):
    windows = make_windows([(-ALL, -1), (1, ALL), (1, 0)])
    inputs = [x.detach().requires_grad_() for x in make_inputs()]
    out = window_attention(*inputs, windows, backend=backend)
    blind = ~find_visible(windows, 9, 9).any(-1).expand(BATCH, -1, -1)
    for gradient in torch.autograd.grad(out[blind].sum(), inputs):
        assert (gradient == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["reference", *TRAINING])
@pytest.mark.usefixtures("short_blocks", "elsewhere")
def test_everything_stays_finite_forward_and_backward(backend, dtype):
    every = ("one token", "different widths", "off the diagonal", "one-sided", "empty")
    for ranges, padding in product(every, ("none", "left", "whole")):
        windows = make_windows(RANGES[ranges], [0.0, 1.5, 30.0], torch.float32)
        inputs, mask = make_inputs(13, 13, dtype, scale=8.0), make_padding(padding, 13)
        out, *gradients = differentiate(backend, inputs, windows, mask, real_only=False)
        assert out.dtype == dtype
        assert out.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", TRAINING)
@pytest.mark.usefixtures("short_blocks", "elsewhere")
def test_error_is_near_that_of_the_reference_in_the_same_dtype(backend, dtype):
    atol = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    mask = make_padding("left", 13)
    for ranges in ("three tokens", "different widths", "off the diagonal", "unlimited", "one-sided"):
        inputs, windows = make_inputs(13, 13, dtype), make_windows(RANGES[ranges], [0.0, 0.25, 1.5], torch.float32)
        exact = differentiate("reference", [x.double() for x in inputs], windows, mask)
        own = differentiate("reference", inputs, windows, mask)
        found = differentiate(backend, inputs, windows, mask)
        for e, r, a in zip(exact, own, found, strict=True):
            error, allowed = (a.double() - e).abs().max(), 2 * (r.double() - e).abs().max() + atol
            assert error <= allowed * max(1.0, e.abs().max().item())


# ---- padding and batch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", *TRAINING])
@pytest.mark.usefixtures("short_blocks")
def test_what_stands_at_padding_changes_no_real_position(backend):
    for ranges, padding in product(("different widths", "unequal sides", "one-sided", "unlimited"), ("left", "right")):
        check_padding(backend, ranges, padding)


def check_padding(backend, ranges, padding):
    windows, mask = make_windows(RANGES[ranges], [0.0, 0.5, 1.0]), make_padding(padding, 13)
    query, key, value = make_inputs(13, 13)
    before = window_attention(query, key, value, windows, mask, backend=backend)
    outside = mask[:, None, :, None]
    query, key, value = (torch.where(outside, 1e4 * torch.randn_like(x), x) for x in (query, key, value))
    after = window_attention(query, key, value, windows, mask, backend=backend)
    real = (~mask)[:, None].expand(-1, HEADS, -1)
    assert_close(after[real], before[real], atol=0, rtol=0)


@pytest.mark.parametrize(
    ("backend", "left"), [*((backend, True) for backend in ("reference", *TRAINING)), ("auto", False)]
)
@pytest.mark.usefixtures("short_blocks")
def test_a_sentence_alone_equals_itself_in_a_batch(backend, left):
    lengths = [17, 11, 4, 1]
    ranges = [[(0, 0), (-(n // 8), n // 8), (-(n // 4), -1)] for n in lengths]  # from its own length
    windows = make_windows(ranges, [0.0, 0.1, 1.0])
    inputs = make_inputs(17, 17, batch=4)
    spans = [slice(17 - n, 17) if left else slice(0, n) for n in lengths]
    mask = torch.ones(4, 17, dtype=torch.bool)
    for row, span in enumerate(spans):
        mask[row, span] = False
    together = window_attention(*inputs, windows, mask, backend=backend)
    for row, span in enumerate(spans):
        own = Windows(windows.first[row : row + 1], windows.last[row : row + 1], windows.slopes)
        alone = window_attention(*(x[row : row + 1, :, span] for x in inputs), own, backend=backend)
        assert_close(together[row : row + 1, :, span], alone, atol=1e-12)


# ---- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("backend", EVERY)
def test_windows_wider_than_the_sentence_are_plain_attention(backend, padding):
    query, key, value = make_inputs(13, 13)
    mask = make_padding(padding, 13)
    expected = F.scaled_dot_product_attention(query, key, value, None if mask is None else ~mask[:, None, None])
    real = find_real(13, mask)
    for wide in (ALL, 12, 500):
        out = window_attention(query, key, value, make_windows([(-wide, wide)] * 3), mask, backend=backend)
        assert_close(out.masked_fill(~real, 0.0), expected.masked_fill(~real, 0.0), atol=1e-12)


@pytest.mark.parametrize("backend", EVERY)
def test_windows_that_end_at_the_query_are_causal_attention(backend):
    query, key, value = make_inputs(13, 13)
    out = window_attention(query, key, value, make_windows([(-ALL, 0)] * 3), backend=backend)
    assert_close(out, F.scaled_dot_product_attention(query, key, value, is_causal=True), atol=1e-12)


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.usefixtures("short_blocks")
def test_windows_of_one_token_return_the_values(backend, slopes):
    for length, positions in ((13, 13), (4, 13)):
        query, key, value = make_inputs(length, positions)
        windows = make_windows(RANGES["one token"], SLOPES[slopes])
        out = window_attention(query, key, value, windows, backend=backend)
        assert_close(out, value[:, :, positions - length :], atol=0, rtol=0)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.usefixtures("short_blocks")
def test_slopes_of_zero_are_no_slopes(backend):
    inputs = make_inputs(13, 13)
    for ranges in ("different widths", "one-sided", "unlimited"):
        none = window_attention(*inputs, make_windows(RANGES[ranges]), backend=backend)
        zero = window_attention(*inputs, make_windows(RANGES[ranges], [0.0] * 3), backend=backend)
        assert_close(zero, none, atol=1e-14)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.usefixtures("short_blocks")
def test_weights_fall_with_the_distance_on_both_sides(backend):
    # Equal logits, and values that show the weights.
    zeros, values = torch.zeros(1, 3, 7, 7, dtype=torch.float64), torch.eye(7, dtype=torch.float64).expand(1, 3, 7, 7)
    windows = make_windows([(-2, 2)] * 3, [0.0, math.log(2), math.log(4)])
    weights = window_attention(zeros, zeros, values, windows, backend=backend)[0, :, 3]
    for head, row in enumerate(([1, 1, 1, 1, 1], [1 / 4, 1 / 2, 1, 1 / 2, 1 / 4], [1 / 16, 1 / 4, 1, 1 / 4, 1 / 16])):
        assert_close(weights[head], [0, *(w / sum(row) for w in row), 0], atol=1e-12)


@pytest.mark.parametrize("backend", ["auto", "reference", "taps", "blocks"])
def test_first_heads_of_one_token_need_no_queries_and_keys(backend):
    for length, positions in ((13, 13), (4, 13), (1, 13)):
        inputs, mask = make_inputs(length, positions), make_padding("left", positions)
        windows = make_windows([(0, 0), (0, 0), (-2, 2)], [0.0, 0.5, 1.0])
        expected = window_attention(*inputs, windows, mask, backend=backend)
        query, key, value = inputs
        for silent in (1, 2):
            out = window_attention(query[:, silent:], key[:, silent:], value, windows, mask, backend=backend)
            real = find_real(length, mask)
            assert_close(out.masked_fill(~real, 0.0), expected.masked_fill(~real, 0.0), atol=1e-12)
    windows = make_windows([(0, 0)] * 3)
    nothing = window_attention(query[:, 3:], key[:, 3:], value, windows, backend=backend)
    assert_close(nothing, value[:, :, -1:], atol=0, rtol=0)


def test_an_empty_batch_has_an_empty_result():
    inputs = make_inputs(batch=0)
    assert window_attention(*inputs, make_windows(RANGES["three tokens"])).shape == (0, HEADS, 9, CHANNELS)


def test_windows_intersect_and_slopes_add_up():
    one = make_windows([[(-3, 3), (0, 0)], [(-5, 5), (-1, 1)]])
    two = make_windows([(-ALL, -1), (-4, 0)], [0.5, 1.0])
    both, back = one.intersect(two), two.intersect(one)
    assert both.first.tolist() == back.first.tolist() == [[-3, 0], [-5, -1]]
    assert both.last.tolist() == back.last.tolist() == [[-1, 0], [-1, 0]]
    assert both.slopes.tolist() == back.slopes.tolist() == [0.5, 1.0]
    assert two.intersect(two).slopes.tolist() == [1.0, 2.0]
    assert one.intersect(one).slopes is None


def test_taking_heads_takes_their_slopes_along():
    part = make_windows([(-3, 3), (0, 0), (-1, 2)], [0.5, 1.0, 2.0]).take(1, 3)
    assert (part.first.tolist(), part.last.tolist(), part.slopes.tolist()) == ([[0, -1]], [[0, 2]], [1.0, 2.0])


# ---- dropout ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", *TRAINING])
@pytest.mark.parametrize("reach", [0, 1, 6, ALL])
def test_dropout_drops_the_given_share_of_weights_and_keeps_their_mean(backend, reach, monkeypatch):
    monkeypatch.setattr(op, "_BLOCK", 16)  # auto then has a way of its own for each reach
    rate, positions = 0.25, 60
    zeros = torch.zeros(2, 3, positions, positions)  # equal logits, and values that show the weights
    windows = make_windows([(-reach, reach)] * 3)
    if backend == "auto":
        expected = {0: op._copy_values, 1: op._taps, 6: op._blocks, ALL: op._dense}[reach]
        assert [group.compute for group in op._group(windows, zeros, positions, "auto")] == [expected]
    values = torch.eye(positions).expand(2, 3, -1, -1)
    weights = window_attention(zeros, zeros, values, windows, dropout=rate, backend=backend)
    seen = find_visible(windows, positions, positions).expand(2, 3, -1, -1)
    even = (seen / seen.sum(-1, keepdim=True))[seen]
    kept = weights[seen] != 0
    # Four standard deviations of the share of the n weights that are dropped.
    deviation = 4 * math.sqrt(rate * (1 - rate) / kept.numel())
    assert abs((~kept).float().mean() - rate) < deviation
    assert_close(weights[seen][kept], even[kept] / (1 - rate), atol=1e-6)
    assert (weights[~seen] == 0).all()
    assert_close(weights.sum(-1).mean(), 1.0, atol=deviation / (1 - rate), why="the mean of the sums of weights")
    again = window_attention(zeros, zeros, values, windows, dropout=rate, backend=backend)
    assert not torch.equal(again, weights)


def test_heads_without_queries_drop_their_one_weight_as_others_do():
    rate, positions = 0.25, 200
    zeros, ones = torch.zeros(4, 2, positions, 4), torch.ones(4, 3, positions, 4)
    windows = make_windows([(0, 0), (0, 0), (-2, 2)])
    out = window_attention(zeros[:, 1:], zeros[:, 1:], ones, windows, dropout=rate)
    for head in range(2):
        dropped = (out[:, head] == 0).all(dim=-1)
        assert_close(out[:, head][~dropped], torch.full((int((~dropped).sum()), 4), 1 / (1 - rate)), atol=1e-6)
        assert abs(dropped.float().mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / dropped.numel())


# ---- which way is chosen, and what it costs -----------------------------------------------------------------------


def ways_of(ranges, length, positions=None):
    positions = length if positions is None else positions
    windows = make_windows(ranges)
    query = torch.zeros(1, windows.first.shape[1], length, 2)
    groups = op._group(windows, query, positions, "auto")
    assert [group.start for group in groups] == [0, *(group.end for group in groups[:-1])]
    assert groups[-1].end == windows.first.shape[1]
    return [(group.compute.__name__.lstrip("_"), group.end - group.start) for group in groups]


def centred(*widths):
    return [(-(width // 2), width // 2) for width in widths]


@pytest.mark.parametrize(
    ("ranges", "length", "expected"),
    [
        (centred(3), 200, [("taps", 1)]),
        (centred(7), 200, [("taps", 1)]),
        (centred(51), 400, [("blocks", 1)]),
        (centred(51), 60, [("dense", 1)]),
        (centred(301), 400, [("dense", 1)]),
        (centred(1), 200, [("copy_values", 1)]),
        ([(-ALL, ALL)], 200, [("dense", 1)]),
        ([(-ALL, 0)], 200, [("dense", 1)]),
        ([(-30, 0)], 200, [("blocks", 1)]),
        ([(-2, 0)], 200, [("taps", 1)]),
        ([(-1, -1)], 200, [("taps", 1)]),  # one token, but not the query's
        (centred(3), 3, [("dense", 1)]),
        # Neighbours are computed together where that costs little.
        (centred(3, 3, 5), 200, [("taps", 3)]),
        (centred(1, 1, 3, 3, 51, 301, 301), 400, [("copy_values", 2), ("taps", 2), ("blocks", 1), ("dense", 2)]),
        (centred(51, 61, 201), 600, [("blocks", 2), ("blocks", 1)]),
        (centred(1, 7, 7), 200, [("copy_values", 1), ("taps", 2)]),
        ([(-3, -2), (2, 3)], 200, [("taps", 1), ("taps", 1)]),
        (centred(3, 51, 3), 400, [("taps", 1), ("blocks", 1), ("taps", 1)]),
        ([(-ALL, ALL), (-ALL, -1), (1, ALL)], 100, [("dense", 3)]),
    ],
)
def test_auto_chooses_by_window_and_length(ranges, length, expected):
    assert ways_of(ranges, length) == expected


def test_auto_chooses_by_the_widest_window_of_all_sentences():
    assert ways_of([centred(3), centred(51)], 400) == [("blocks", 1)]
    assert ways_of([centred(1), centred(1)], 400) == [("copy_values", 1)]
    assert ways_of([centred(1), centred(3)], 400) == [("taps", 1)]


@pytest.mark.parametrize("widths", [(1, 3, 301), (3, 3, 3)])
def test_auto_computes_a_step_of_decoding_as_one_product(widths):
    assert ways_of([(1 - width, 0) for width in widths], 1, 300) == [("dense", 3)]


def test_auto_leaves_taps_to_the_cpu_and_short_sentences_on_a_gpu_to_one_product():
    assert op._choose(-1, 1, 200, 200, on_cpu=True) is op._taps
    assert op._choose(-1, 1, 513, 513, on_cpu=False) is op._blocks
    assert op._choose(0, 0, 513, 513, on_cpu=False) is op._copy_values
    assert op._choose(-1, 1, 512, 512, on_cpu=False) is op._choose(0, 0, 512, 512, on_cpu=False) is op._dense


@pytest.mark.parametrize("backend", TRAINING)
def test_the_chosen_way_is_the_one_that_computes(backend, monkeypatch):
    calls = []
    for name in ("_dense", "_taps", "_blocks", "_copy_values"):
        way = getattr(op, name)

        def record(*args, name=name, way=way):
            calls.append((name, args[0].shape[1]))
            return way(*args)

        monkeypatch.setattr(op, name, record)
    window_attention(*make_inputs(300, 300, torch.float32), make_windows(centred(1, 3, 51)), backend=backend)
    assert (
        calls
        == {
            "auto": [("_copy_values", 1), ("_taps", 1), ("_blocks", 1)],
            "dense": [("_dense", 3)],
            "taps": [("_taps", 1)] * 3,
            "blocks": [("_blocks", 1), ("_blocks", 1), ("_blocks", 1)],
        }[backend]
    )


def measure(backend, length, ranges, slopes=None):
    """The largest tensor of forward and backward pass, and the sum of all."""
    dynamic_conv_cpu._make_plan.cache_clear()  # so that its tensors count
    mask = torch.zeros(1, length, dtype=torch.bool)
    mask[:, :5] = True
    with Results() as results:
        inputs = make_inputs(length, length, torch.float32, batch=1)
        differentiate(backend, inputs, make_windows(ranges, slopes, torch.float32), mask)
    sizes = [made.numel() for _, made in results.made if made.layout == torch.strided]
    return max(sizes), sum(sizes)


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("backend", ["auto", "taps", "blocks"])
def test_narrow_windows_need_no_matrix_of_all_queries_and_keys(backend, slopes):
    ranges, length = centred(1, 5, 5), 2000
    largest, total = measure(backend, length, ranges, SLOPES[slopes])
    assert largest < length * length / 8
    # Twice the sentence is twice the work.
    assert total < 2.2 * measure(backend, length // 2, ranges, SLOPES[slopes])[1]


def test_the_measure_sees_the_matrix_of_the_dense_product():
    for backend, ranges in (("dense", centred(1, 5, 5)), ("auto", [(-ALL, ALL)] * 3)):
        assert measure(backend, 600, ranges)[0] >= 600 * 600


def test_wider_windows_of_a_long_sentence_are_computed_in_blocks():
    largest, _ = measure("auto", 2000, centred(51, 51, 51))
    assert largest < 2000 * 2000 / 4


def test_compiled_attention_equals_the_reference():
    mask = make_padding("left", 13)

    def compute(query, key, value, first, last, slopes):
        return window_attention(query, key, value, Windows(first, last, slopes), mask)

    compiled = torch.compile(compute, dynamic=True, fullgraph=True, backend="eager")
    for ranges in ("different widths", "one-sided", "empty"):
        inputs, windows = make_inputs(13, 13), make_windows(RANGES[ranges], [0.0, 0.5, 1.5])
        expected = window_attention(*inputs, windows, mask, backend="reference")
        real = find_real(13, mask)
        actual = compiled(*inputs, *windows)
        assert_close(actual.masked_fill(~real, 0.0), expected.masked_fill(~real, 0.0), atol=1e-12)


# ---- errors -------------------------------------------------------------------------------------------------------


def test_raises_error_for_an_unknown_back_end():
    sentence = f"^backend must be one of {', '.join(BACKENDS)}, but got 'sparse'\\.$"
    with pytest.raises(ValueError, match=sentence):
        window_attention(*make_inputs(), make_windows(RANGES["one token"]), backend="sparse")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_raises_error_when_there_is_not_one_window_per_head(count):
    windows = make_windows([(0, 0)] * count)
    sentence = re.escape(
        f"windows must have one range per head, but got first (1, {count}) and last (1, {count}) for 3 heads."
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        window_attention(*make_inputs(), windows)
    good = make_windows([(0, 0)] * 3)
    with pytest.raises(ValueError, match=re.escape(f"got first (1, 3) and last (1, {count}) for 3 heads.")):
        window_attention(*make_inputs(), good._replace(last=windows.last))


def test_raises_error_when_there_are_more_queries_than_keys():
    query, key, value = make_inputs()
    with pytest.raises(ValueError, match=r"^there must be as many keys as queries, but got 7 and 9\.$"):
        window_attention(query, key[:, :, :7], value[:, :, :7], make_windows(RANGES["one token"]))


def test_raises_error_when_taps_shall_run_elsewhere_than_on_the_cpu():
    inputs = (x.to("meta") for x in make_inputs())
    sentence = r"^the back end taps runs on the CPU only, but got meta; use backend='auto'\.$"
    with pytest.raises(RuntimeError, match=sentence):
        window_attention(*inputs, make_windows(RANGES["three tokens"]), backend="taps")


def test_windows_are_looked_at_before_they_are_on_the_device():
    """Reading them on a GPU would wait for it; tensors of the device "meta" cannot be read at all."""
    query, key, value = (x.to("meta") for x in make_inputs(600, 600))
    out = window_attention(query, key, value, make_windows(RANGES["three tokens"]), backend="blocks")
    assert out.shape == query.shape


def test_slopes_have_a_gradient_where_every_window_is_one_token(on_device):
    windows = make_windows([(0, 0), (0, 0)], [0.5, 1.0])
    slopes = windows.slopes.requires_grad_()
    query, key, value = torch.randn(3, 2, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    for heads in (2, 1, 0):  # queries of so many; the others have values alone
        out = window_attention(query[:, :heads], key[:, :heads], value, windows._replace(slopes=slopes))
        (gradient,) = torch.autograd.grad(out.sum(), slopes)
        assert gradient.tolist() == [0.0, 0.0]
