"""Gated convolutions: one merged kernel against the separate ones, padding, kernel prediction, initial values."""

import math
from itertools import product

import pytest
import torch
from support.helpers import assert_close
from support.layers import make_context

from muse_plugin.modules.gated_conv import DynamicConv, LightweightConv, StaticConv

WIDTH, HEADS, LENGTH = 8, 2, 5
KINDS = {
    "dynamic": lambda sizes, **options: DynamicConv(WIDTH, HEADS, sizes, **options),
    "lightweight": lambda sizes, **options: LightweightConv(WIDTH, HEADS, sizes, **options),
    "depthwise": lambda sizes, **options: StaticConv(WIDTH, sizes, depthwise=True, **options),
    "standard": lambda sizes, **options: StaticConv(WIDTH, sizes, depthwise=False, **options),
}


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


def run(branch, values, length=None, mask=None):
    context = make_context(values.shape[1] if length is None else length, key_padding_mask=mask)
    return branch({branch.projections[0].name: values}, context)


def slow_gated_conv(branch, values, causal):
    """The paper's sum: each kernel size on its own, one position and tap at a time, weighed by the gate."""
    batch, length, width = values.shape
    gate = torch.softmax(branch.gate, 0) if branch.gate is not None else torch.ones(1)
    out = torch.zeros_like(values)
    first_row = 0
    for index, size in enumerate(branch.kernel_sizes):
        left = size - 1 if causal else size // 2
        for t in range(length):
            if isinstance(branch, DynamicConv):
                rows = branch.kernel_weight[first_row : first_row + HEADS * size]
                kernel = torch.softmax((values[:, t] @ rows.T).view(batch, HEADS, size), -1)  # (B, H, K)
                per_channel = kernel.repeat_interleave(width // HEADS, dim=1)  # (B, C, K)
            elif isinstance(branch, LightweightConv):
                kernel = torch.softmax(branch.kernel_logits[index], -1)
                per_channel = kernel.repeat_interleave(width // HEADS, dim=0).expand(batch, -1, -1)
            for j in range(size):
                source = t + j - left
                if not 0 <= source < length:
                    continue
                if isinstance(branch, StaticConv) and branch.groups == 1:
                    term = values[:, source] @ branch.kernel_weights[index][:, :, j].T
                elif isinstance(branch, StaticConv):
                    term = values[:, source] * branch.kernel_weights[index][:, 0, j]
                else:
                    term = values[:, source] * per_channel[:, :, j]
                out[:, t] = out[:, t] + gate[index] * term
        first_row += HEADS * size
    return out


@pytest.mark.parametrize("sizes", [[7], [15, 3], [3, 9, 5], [1, 3]])
def test_merged_kernels_equal_separate_kernels_weighed_by_the_gate(make, sizes):
    for causal in (False, True):
        check_merged(make, causal, sizes)


def check_merged(make, causal, sizes):
    branch = make(sizes, causal=causal)
    if branch.gate is not None:
        torch.nn.init.normal_(branch.gate)
    values = torch.randn(2, LENGTH, WIDTH, requires_grad=True)
    target = torch.randn(2, LENGTH, WIDTH)
    leaves = [values, *branch.parameters()]
    actual, expected = run(branch, values), slow_gated_conv(branch, values, causal)
    assert_close(actual, expected, atol=2e-6, why="different summation order, measured maximum 4.8e-7")
    gradients = (torch.autograd.grad((out * target).sum(), leaves) for out in (actual, expected))
    for merged, separate in zip(*gradients, strict=True):
        assert_close(merged, separate, atol=1e-5)


@pytest.mark.parametrize("sizes", [[2], [4, 3]])
def test_even_kernels_work_where_they_are_causal(make, sizes):
    branch = make(sizes, causal=True)
    values = torch.randn(2, LENGTH, WIDTH)
    assert_close(run(branch, values), slow_gated_conv(branch, values, True), atol=5e-6)


@pytest.mark.parametrize("kind", ["dynamic", "lightweight"])
def test_kernel_of_one_tap_returns_the_values_exactly(kind):
    values = torch.randn(2, LENGTH, WIDTH)
    for causal in (False, True):
        assert_close(run(KINDS[kind]([1], causal=causal), values), values, atol=0, rtol=0)


def test_kernel_may_be_longer_than_the_sentence(make):
    for length, causal in product((1, 2), (False, True)):
        values = torch.randn(2, length, WIDTH)
        branch = make([3, 31], causal=causal)
        assert_close(run(branch, values), slow_gated_conv(branch, values, causal), atol=5e-6)


def test_taps_lost_at_the_ends_are_not_made_up_for():
    branch = DynamicConv(WIDTH, HEADS, [3], causal=True)
    torch.nn.init.zeros_(branch.kernel_weight)  # every tap weighs 1/3
    out = run(branch, torch.ones(1, 4, WIDTH))
    assert_close(out[0, :, 0], [1 / 3, 2 / 3, 1.0, 1.0], atol=1e-6)


@pytest.mark.parametrize(("use_gate", "new"), [(True, 1), (True, 2), (False, 1)])
def test_new_positions_with_history_equal_the_full_sentence(make, use_gate, new):
    branch = make([3, 7], causal=True, use_gate=use_gate)
    values = torch.randn(2, 12, WIDTH)
    assert_close(run(branch, values, length=new), run(branch, values)[:, -new:], atol=5e-6)


def test_causal_convolution_does_not_see_the_future(make):
    branch = make([3, 7], causal=True)
    values = torch.randn(2, 6, WIDTH)
    changed = values.clone()
    changed[:, 4:] += 1.0
    before, after = run(branch, values), run(branch, changed)
    assert_close(after[:, :4], before[:, :4], atol=0, rtol=0)
    assert not torch.equal(after[:, 4:], before[:, 4:])


def test_masked_padding_equals_the_sentence_alone_and_leaky_padding_does_not(make):
    values = torch.randn(2, 7, WIDTH)
    mask = torch.tensor([[True, True, False, False, False, False, True], [False] * 7])
    for mask_padding in (True, False):
        branch = make([3, 5], causal=False, mask_padding=mask_padding)
        batch, alone = run(branch, values, mask=mask), run(branch, values[:1, 2:6])
        difference = (batch[:1, 2:6] - alone).abs().max()
        assert (difference < 1e-6) == mask_padding
        assert difference < 1e-6 or difference > 1e-3


def taps_of(branch, values, length=None):
    projected = {branch.projections[0].name: values}
    return branch.taps(projected, values.shape[1] if length is None else length)


def test_kernels_are_predicted_from_the_values_at_the_query_only():
    branch = DynamicConv(WIDTH, HEADS, [3, 5], causal=False)
    values = torch.randn(2, LENGTH, WIDTH)
    changed = values.clone()
    changed[:, 2] += 1.0
    before, after = taps_of(branch, values), taps_of(branch, changed)
    assert before.shape == (2, HEADS, LENGTH, 8)
    same = (before == after).all(-1).all(1)  # (B, T)
    assert same.tolist() == [[True, True, False, True, True]] * 2
    assert_close(taps_of(branch, values, length=2), before[:, :, -2:], atol=1e-6)


def test_rows_of_the_kernel_predictor_are_size_by_size_then_head_by_head():
    branch = DynamicConv(WIDTH, HEADS, [3, 5], causal=False)
    values = torch.randn(2, LENGTH, WIDTH)
    rows = torch.nn.functional.linear(values, branch.kernel_weight)  # (B, T, rows)
    taps = taps_of(branch, values)
    assert_close(taps[:, 1, :, :3], rows[:, :, 3:6], atol=1e-6)  # head 1, size 3
    assert_close(taps[:, 1, :, 3:], rows[:, :, 6 + 5 : 6 + 10], atol=1e-6)  # head 1, size 5


@pytest.mark.parametrize("sizes", [[3], [3, 5], [5, 1, 25]])
@pytest.mark.parametrize("new", [LENGTH, 2, 1])
def test_kernels_folded_into_the_input_projection_are_the_same(sizes, new):
    for causal, use_gate, padded in product((True, False), repeat=3):
        check_folded(sizes, new, causal, use_gate, padded)


def check_folded(sizes, new, causal, use_gate, padded):
    branch = DynamicConv(WIDTH, HEADS, sizes, causal=causal, use_gate=use_gate)
    weight, bias = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH)
    x = torch.randn(2, LENGTH, WIDTH)
    values = torch.nn.functional.linear(x, weight, bias)
    mask = torch.zeros(2, LENGTH, dtype=torch.bool) if padded else None
    if mask is not None:
        mask[1, :3] = mask[0, -1] = True
    expected = run(branch, values, length=new, mask=mask)
    folded_weight, folded_bias = branch.fold({"value": (weight, bias), "key": (weight, bias)})[branch.folded_name]
    logits = torch.nn.functional.linear(x[:, -new:], folded_weight, folded_bias)
    with torch.no_grad():
        branch.kernel_weight.zero_()  # it must not be read again
    context = make_context(new, key_padding_mask=mask)
    assert_close(branch({"value": values, branch.folded_name: logits}, context), expected, atol=1e-5)


def test_without_gate_the_results_stand_side_by_side(make):
    branch = make([3, 5], causal=False, use_gate=False)
    assert branch.gate is None
    assert branch.output_size == 2 * WIDTH
    values = torch.randn(2, LENGTH, WIDTH)
    both = run(branch, values)
    assert both.shape == (2, LENGTH, 2 * WIDTH)
    for index, size in enumerate((3, 5)):
        one = make([size], causal=False)
        with torch.no_grad():
            for own, other in zip(one.parameters(), own_parameters(branch, index), strict=True):
                own.copy_(other)
        assert_close(both[..., index * WIDTH : (index + 1) * WIDTH], run(one, values), atol=1e-6)


def own_parameters(branch, index):
    """What belongs to one kernel size."""
    if isinstance(branch, DynamicConv):
        return [torch.split(branch.kernel_weight, [HEADS * size for size in branch.kernel_sizes])[index]]
    return [list(branch.parameters())[index]]


def test_gate_starts_at_one_over_the_number_of_sizes(make):
    branch = make([3, 5, 7], causal=False)
    assert branch.gate.tolist() == pytest.approx([1 / 3] * 3)
    assert_close(branch.gate_weights(), torch.full((3,), 1 / 3), atol=1e-7)


def test_a_single_size_has_no_gate(make):
    for use_gate in (True, False):
        branch = make([7], causal=False, use_gate=use_gate)
        assert branch.gate is None
        assert branch.output_size == WIDTH
        assert branch.gate_weights().tolist() == [1.0]


def test_gate_weights_follow_the_order_of_the_sizes():
    values = torch.randn(1, LENGTH, WIDTH)
    branch = DynamicConv(WIDTH, HEADS, [5, 1], causal=False)
    with torch.no_grad():
        branch.gate.copy_(torch.tensor([-50.0, 50.0]))
    assert_close(branch.gate_weights(), [0.0, 1.0], atol=1e-6)
    assert_close(run(branch, values), values, atol=1e-6)  # the kernel of one tap, alone


def test_shared_and_separate_values_ask_for_different_slices(make):
    assert make([3], causal=False).projections[0].name == "value"
    own = make([3], causal=False, share_value=False).projections[0]
    assert own.name == "conv_value"
    assert own.noisy
    assert own.cached
    assert own.size == WIDTH


def test_weight_dropout_drops_taps_in_training_only(make):
    values = torch.randn(2, LENGTH, WIDTH)
    branch = make([3, 5], causal=False, weight_dropout=0.5)
    branch.eval()
    assert_close(run(branch, values), run(branch, values), atol=0, rtol=0)
    branch.train()
    assert not torch.equal(run(branch, values), run(branch, values))


def test_weight_dropout_drops_normalised_taps_and_scales_the_rest():
    # With values of 1 the result is the sum of the kept taps, which the scale keeps at 1 on average.
    branch = DynamicConv(WIDTH, HEADS, [3, 5], causal=True, weight_dropout=0.5).train()
    torch.nn.init.zeros_(branch.kernel_weight)
    out = run(branch, torch.ones(50, 40, WIDTH))[:, 5:]
    thirds = out.unique() * 15  # kept taps weigh 2 * (1/2) * 1/3 or 2 * (1/2) * 1/5
    assert_close(thirds, thirds.round(), atol=1e-4)
    assert abs(out.mean() - 1) < 0.02


def test_the_back_end_can_be_named():
    branch = DynamicConv(WIDTH, HEADS, [3, 5], causal=False)
    values = torch.randn(2, LENGTH, WIDTH)
    expected = run(branch, values)
    branch.backend = "reference"
    assert_close(run(branch, values), expected, atol=1e-6)
    branch.backend = "none"
    with pytest.raises(ValueError, match=r"^backend must be one of auto, "):
        run(branch, values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("on_device")
def test_half_precision_is_kept_and_stays_finite(make, dtype):
    branch = make([3, 15], causal=False).to(dtype)
    values = (20 * torch.randn(2, LENGTH, WIDTH)).to(dtype)
    mask = torch.tensor([[True] * LENGTH, [False] * LENGTH])
    out = run(branch, values.requires_grad_(), mask=mask)
    assert out.dtype == dtype
    assert out.isfinite().all()
    assert (out[0] == 0).all()  # nothing but padding
    out.float().sum().backward()
    assert values.grad.isfinite().all()


def test_initial_values_are_within_the_published_bounds():
    dynamic = DynamicConv(256, 4, [3, 15], causal=False)
    assert 0.95 / 16 < dynamic.kernel_weight.abs().max() <= 1 / 16
    assert dynamic.kernel_weight.shape == (4 * 18, 256)
    standard = StaticConv(64, [3], depthwise=False, causal=False).kernel_weights[0]
    assert standard.shape == (64, 64, 3)
    assert 0.95 / math.sqrt(192) < standard.abs().max() <= 1 / math.sqrt(192)
    depthwise = StaticConv(256, [7], depthwise=True, causal=False).kernel_weights[0]
    assert depthwise.shape == (256, 1, 7)
    assert 0.95 / math.sqrt(7) < depthwise.abs().max() <= 1 / math.sqrt(7)


def test_constructor_raises_error_without_kernel_sizes(make):
    with pytest.raises(ValueError, match=r"^kernel sizes must hold at least one size, but got an empty list; "):
        make([], causal=False)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [*(("dynamic", sizes) for sizes in ([3.0], [0], [3, -1], [True], ["3"])), ("lightweight", [0]), ("standard", [0])],
)
def test_constructor_raises_error_when_a_kernel_size_is_no_positive_integer(kind, sizes):
    with pytest.raises(
        ValueError, match=r"^kernel sizes must be integers >= 1, but got \[.*\]; give e\.g\. 3,15\.$"
    ) as e:
        KINDS[kind](sizes, causal=True)
    assert str(sizes) in str(e.value)


def test_constructor_raises_error_when_a_kernel_is_even_and_not_causal(make):
    sentence = r"^kernel sizes must be odd in the encoder, .*, but got \[4\] in \[3, 4\]; use odd sizes, e\.g\. 5\.$"
    with pytest.raises(ValueError, match=sentence):
        make([3, 4], causal=False)


@pytest.mark.parametrize("kind", [DynamicConv, LightweightConv])
def test_constructor_raises_error_when_the_width_does_not_divide_into_heads(kind):
    sentence = r"^embed_dim must be divisible by the number of convolution heads, but got embed_dim=8 and 3 heads; "
    with pytest.raises(ValueError, match=sentence):
        kind(8, 3, [3], causal=False)
