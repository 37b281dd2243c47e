"""Every back end of the dynamic convolution against a loop that follows the definition number by number."""

import pytest
import torch
from helpers import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muse_plugin.ops.dynamic_conv import _BAND_POSITIONS_PER_TAP, BACKENDS, dynamic_conv

FORMULATIONS = [name for name in BACKENDS if name != "auto"]
# Measured over 500 random cases with kernels of up to 31 taps: at most 1.9e-6 for values and taps of size 1.
ATOL = 5e-6


def slow_dynamic_conv(values, taps, padding_left):
    """The docstring's formula, one number at a time."""
    batch, heads, positions, channels = values.shape
    length, kernel_size = taps.shape[2:]
    out = torch.zeros(batch, heads, length, channels, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                for j in range(kernel_size):
                    source = positions - length + t + j - padding_left
                    if 0 <= source < positions:
                        out[b, h, t] += taps[b, h, t, j].double() * values[b, h, source].double()
    return out


def make_inputs(batch=2, heads=3, length=5, history=0, channels=4, kernel_size=3, dtype=torch.float32):
    values = torch.randn(batch, heads, history + length, channels, dtype=dtype)
    return values, torch.randn(batch, heads, length, kernel_size, dtype=dtype)


@pytest.mark.parametrize("backend", FORMULATIONS)
@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=st.integers(1, 9),
    history=st.integers(0, 12),
    channels=st.integers(1, 3),
    kernel=st.integers(1, 11).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))),
    seed=st.integers(0, 2**31),
)
@example(batch=1, heads=1, length=1, history=0, channels=1, kernel=(1, 0), seed=0)
@example(batch=1, heads=1, length=2, history=0, channels=1, kernel=(11, 10), seed=0)  # kernel longer than the sentence
@example(batch=1, heads=1, length=2, history=0, channels=1, kernel=(11, 0), seed=0)
@example(batch=1, heads=1, length=2, history=3, channels=1, kernel=(11, 5), seed=0)
@example(batch=2, heads=2, length=3, history=12, channels=2, kernel=(4, 3), seed=0)  # history out of reach
@example(batch=2, heads=2, length=1, history=12, channels=2, kernel=(4, 3), seed=0)  # one step of decoding
def test_back_end_equals_the_loop(backend, batch, heads, length, history, channels, kernel, seed):
    torch.manual_seed(seed)
    kernel_size, padding_left = kernel
    values, taps = make_inputs(batch, heads, length, history, channels, kernel_size)
    actual = dynamic_conv(values, taps, padding_left=padding_left, backend=backend)
    assert_close(actual, slow_dynamic_conv(values, taps, padding_left).float(), atol=ATOL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_result_by_hand(backend):
    values = torch.tensor([1.0, 10.0, 100.0]).view(1, 1, 3, 1)
    taps = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).view(1, 1, 3, 3)
    centred = dynamic_conv(values, taps, padding_left=1, backend=backend)
    assert centred.flatten().tolist() == [2 * 1 + 3 * 10, 4 * 1 + 5 * 10 + 6 * 100, 7 * 10 + 8 * 100]
    causal = dynamic_conv(values, taps, padding_left=2, backend=backend)
    assert causal.flatten().tolist() == [3 * 1, 5 * 1 + 6 * 10, 7 * 1 + 8 * 10 + 9 * 100]
    step = dynamic_conv(values, taps[:, :, 2:], padding_left=2, backend=backend)
    assert step.flatten().tolist() == [7 * 1 + 8 * 10 + 9 * 100]


@pytest.mark.parametrize("length", [7, 300])
def test_back_ends_agree_in_values_and_gradients(length):
    assert {"reference", "band"} <= set(FORMULATIONS)
    values, taps = make_inputs(length=length, history=4, kernel_size=15)
    weights = torch.randn(2, 3, length, 4)
    results = {}
    for backend in FORMULATIONS:
        leaves = values.clone().requires_grad_(), taps.clone().requires_grad_()
        out = dynamic_conv(*leaves, padding_left=14, backend=backend)
        results[backend] = (out, *torch.autograd.grad((out * weights).sum(), leaves))
    for backend in FORMULATIONS:
        for actual, expected in zip(results[backend], results["reference"], strict=True):
            assert_close(actual, expected, atol=1e-5, why=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("length", "history", "kernel_size", "padding_left"), [(4, 0, 3, 1), (2, 3, 4, 3), (3, 1, 7, 3)]
)
def test_gradients_equal_finite_differences(backend, length, history, kernel_size, padding_left):
    values, taps = make_inputs(1, 2, length, history, 2, kernel_size, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda v, k: dynamic_conv(v, k, padding_left=padding_left, backend=backend),
        (values.requires_grad_(), taps.requires_grad_()),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_strides_of_the_inputs_do_not_matter(backend):
    # As the layer hands them over: heads cut out of (T, B, C) and transposed, history cut off, taps broadcast.
    values = torch.randn(9, 2, 12).transpose(0, 1).unflatten(-1, (3, 4)).transpose(1, 2)[:, :, 2:]
    taps = torch.randn(1, 3, 1, 5).expand(2, -1, 6, -1)
    assert not values.is_contiguous()
    assert not taps.is_contiguous()
    actual = dynamic_conv(values, taps, padding_left=4, backend=backend)
    assert_close(actual, slow_dynamic_conv(values, taps, 4).float(), atol=ATOL)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, ATOL), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)]
)
def test_dtype_is_kept_and_the_error_is_that_of_the_dtype(backend, dtype, atol):
    values, taps = make_inputs(kernel_size=7)
    values, taps = values.to(dtype), taps.softmax(-1).to(dtype)
    actual = dynamic_conv(values, taps, padding_left=3, backend=backend)
    assert actual.dtype == dtype
    assert_close(actual.double(), slow_dynamic_conv(values, taps, 3), atol=atol, why="tolerance of style guide 7")


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernel_of_one_tap_returns_the_values_times_the_tap(backend):
    values, taps = make_inputs(history=2, kernel_size=1)
    actual = dynamic_conv(values, taps, padding_left=0, backend=backend)
    assert_close(actual, values[:, :, 2:] * taps, atol=0, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_causal_result_does_not_depend_on_later_values(backend):
    values, taps = make_inputs(length=8, kernel_size=5)
    before = dynamic_conv(values, taps, padding_left=4, backend=backend)
    values[:, :, 5:] = 1e4
    after = dynamic_conv(values, taps, padding_left=4, backend=backend)
    assert_close(after[:, :, :5], before[:, :, :5], atol=0, rtol=0)
    assert not torch.equal(after[:, :, 5:], before[:, :, 5:])


@pytest.mark.parametrize("backend", FORMULATIONS)
def test_inputs_are_not_changed(backend):
    values, taps = make_inputs(history=2)
    copies = values.clone(), taps.clone()
    dynamic_conv(values, taps, padding_left=1, backend=backend)
    assert_close(values, copies[0], atol=0, rtol=0)
    assert_close(taps, copies[1], atol=0, rtol=0)


@pytest.mark.parametrize("length", [3 * _BAND_POSITIONS_PER_TAP, 3 * _BAND_POSITIONS_PER_TAP + 1])
def test_auto_gives_the_same_numbers_on_both_sides_of_its_choice(length):
    values, taps = make_inputs(1, 1, length, 0, 2, 3)
    expected = dynamic_conv(values, taps, padding_left=1, backend="reference")
    assert_close(dynamic_conv(values, taps, padding_left=1), expected, atol=ATOL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_goes_in_and_nothing_comes_out(backend):
    values, taps = make_inputs(batch=0, history=2)
    assert dynamic_conv(values, taps, padding_left=1, backend=backend).shape == (0, 3, 5, 4)


def test_forward_raises_error_for_an_unknown_back_end():
    with pytest.raises(ValueError, match=r"^backend must be one of auto, reference, band, but got 'cuda'\.$"):
        dynamic_conv(*make_inputs(), padding_left=1, backend="cuda")


@pytest.mark.parametrize("padding_left", [-1, 3])
def test_forward_raises_error_when_the_query_lies_outside_the_kernel(padding_left):
    sentence = rf"^padding_left must lie in \[0, 2\] for a kernel of 3 taps, but got {padding_left}\.$"
    with pytest.raises(ValueError, match=sentence):
        dynamic_conv(*make_inputs(), padding_left=padding_left)


@pytest.mark.parametrize(
    ("values", "taps"),
    [
        ((2, 3, 5, 4), (2, 3, 6, 3)),  # fewer values than queries
        ((2, 3, 5, 4), (2, 2, 5, 3)),  # heads differ
        ((2, 3, 5, 4), (1, 3, 5, 3)),  # sentences differ
        ((2, 5, 4), (2, 3, 5, 3)),
        ((2, 3, 5, 4), (2, 5, 3)),
    ],
)
def test_forward_raises_error_when_shapes_do_not_fit(values, taps):
    with pytest.raises(ValueError, match=r"^values must have shape \(B, H, S, D\) and taps .* with S >= T") as caught:
        dynamic_conv(torch.zeros(values), torch.zeros(taps), padding_left=1)
    assert str(caught.value).endswith(f"but got {values} and {taps}.")
