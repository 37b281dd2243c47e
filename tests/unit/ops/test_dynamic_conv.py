"""Every back end of the dynamic convolution against a loop that follows the definition number by number.

What only concerns one of them is in ``test_dynamic_conv_triton.py`` and ``test_dynamic_conv_fairseq.py``.
"""

import logging
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.dynamic_conv_cases import Case, check, differentiate, slow_dynamic_conv
from support.helpers import REPOSITORY, assert_close, run_python

from muse_plugin.ops import dynamic_conv as op
from muse_plugin.ops import dynamic_conv_cpu
from muse_plugin.ops.dynamic_conv import BACKENDS, dynamic_conv

FORMULATIONS = ["reference", "band", "taps"]
ANY = ["auto", *FORMULATIONS, "triton"]
# Measured over 500 random cases with kernels of up to 31 taps: at most 1.9e-6 for values and taps of size 1.
ATOL = 5e-6


@pytest.fixture(params=ANY)
def backend(request):
    """Every back end that this machine can run on the CPU; where tensors are on a GPU, see also ``tests/gpu``."""
    if "on_device" in request.fixturenames and request.getfixturevalue("device").type != "cpu":
        if request.param in ("taps", "triton"):
            pytest.skip("of the CPU alone, or in tests/gpu")
    elif request.param == "triton":
        request.getfixturevalue("triton_on_cpu")
    return request.param


def make_inputs(batch=2, heads=3, length=5, history=0, channels=4, kernel_size=3, dtype=torch.float32):
    values = torch.randn(batch, heads, history + length, channels, dtype=dtype)
    return values, torch.randn(batch, heads, length, kernel_size, dtype=dtype)


def run(values, taps, padding_left, backend="auto", **options):
    return dynamic_conv(values, taps, padding_left=padding_left, backend=backend, **options)


@pytest.mark.parametrize("backend", FORMULATIONS)
@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=st.integers(1, 9),
    history=st.integers(0, 12),
    channels=st.integers(1, 3),
    kernels=st.lists(
        st.integers(1, 11).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))),
        min_size=1,
        max_size=3,
    ),
    has_gate=st.booleans(),
    has_mask=st.booleans(),
    seed=st.integers(0, 2**31),
)
@example(1, 1, 1, 0, 1, [(1, 0)], False, False, 0)
@example(1, 1, 2, 0, 1, [(11, 10)], False, False, 0)  # kernel longer than the sentence
@example(1, 1, 2, 0, 1, [(11, 0)], False, False, 0)
@example(1, 1, 2, 3, 1, [(11, 5)], False, True, 0)
@example(2, 2, 3, 12, 2, [(4, 3)], False, False, 0)  # history out of reach
@example(2, 2, 1, 12, 2, [(4, 3), (2, 1)], True, True, 0)  # one step of decoding
@example(2, 1, 9, 0, 2, [(3, 0), (5, 4)], True, True, 0)  # one size looks ahead, one back
def test_back_end_equals_the_loop(backend, batch, heads, length, history, channels, kernels, has_gate, has_mask, seed):
    torch.manual_seed(seed)
    sizes, lefts = [list(numbers) for numbers in zip(*kernels, strict=True)]
    values, taps = make_inputs(batch, heads, length, history, channels, sum(sizes))
    gate = torch.rand(len(sizes)) if has_gate else None
    mask = torch.rand(batch, history + length) < 0.3 if has_mask else None
    actual = run(values, taps, lefts, backend, kernel_sizes=sizes, gate=gate, key_padding_mask=mask)
    assert_close(actual, slow_dynamic_conv(values, taps, lefts, sizes, gate, mask).float(), atol=ATOL)


def test_result_by_hand(backend):
    values = torch.tensor([1.0, 10.0, 100.0]).view(1, 1, 3, 1)
    taps = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).view(1, 1, 3, 3)
    centred = run(values, taps, 1, backend)
    assert centred.flatten().tolist() == [2 * 1 + 3 * 10, 4 * 1 + 5 * 10 + 6 * 100, 7 * 10 + 8 * 100]
    causal = run(values, taps, 2, backend)
    assert causal.flatten().tolist() == [3 * 1, 5 * 1 + 6 * 10, 7 * 1 + 8 * 10 + 9 * 100]
    step = run(values, taps[:, :, 2:], 2, backend)
    assert step.flatten().tolist() == [7 * 1 + 8 * 10 + 9 * 100]
    mask = torch.tensor([[False, True, False]])
    masked = run(values, taps, 1, backend, key_padding_mask=mask)
    assert masked.flatten().tolist() == [2 * 1, 4 * 1 + 6 * 100, 8 * 100]
    # Sizes 1 and 2, both causal: taps 1, 4, 7 on their own and (2, 3), (5, 6), (8, 9).
    gate = torch.tensor([0.5, 2.0])
    both = run(values, taps, [0, 1], backend, kernel_sizes=[1, 2], gate=gate)
    assert both.flatten().tolist() == [0.5 + 6, 20 + 10 + 120, 350 + 160 + 1800]


def test_logits_go_through_one_softmax_per_kernel(backend):
    values, logits = make_inputs(kernel_size=5)
    weights = torch.cat([logits[..., :2].softmax(-1), logits[..., 2:].softmax(-1)], dim=-1)
    options = {"kernel_sizes": [2, 3], "gate": torch.tensor([0.3, 0.7])}
    actual = run(values, logits, [1, 1], backend, normalize=True, **options)
    assert_close(actual, run(values, weights, [1, 1], "reference", **options), atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        *((sizes, torch.float32) for sizes in ([1], [3], [3, 15], [2, 4], [31])),
        *(([3, 15], dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)),
    ],
)
@pytest.mark.parametrize("backend", ["band", "taps"])
def test_values_and_gradients_are_as_exact_as_those_of_the_reference(backend, sizes, dtype):
    for causal in (True, False):
        options = {"causal": causal, "dtype": dtype, "gate": len(sizes) > 1, "mask": True}
        check(Case(sizes, length=13, **options), backend)
        check(Case(sizes, length=40, history=2, normalize=False, **options), backend)


def test_all_gradients_equal_finite_differences(backend):
    for case in (
        Case([3, 2], batch=1, length=4, channels=2, dtype=torch.float64, gate=True),
        Case([4], causal=False, batch=2, heads=1, length=3, history=3, channels=2, dtype=torch.float64, mask=True),
        Case([7], batch=1, heads=1, length=3, history=1, channels=1, dtype=torch.float64, normalize=False),
    ):
        values, taps, gate, mask = case.make()
        leaves = [x.double().requires_grad_() for x in (values, taps, gate) if x is not None]

        def compute(values, taps, gate=None, case=case, mask=mask):
            return case.run(backend, values, taps, gate, mask)

        # Triton's interpreter is slow: one random direction instead of every number.
        assert torch.autograd.gradcheck(compute, leaves, fast_mode=backend == "triton")


@pytest.mark.parametrize("which", ["values", "taps", "gate"])
def test_gradients_can_be_asked_for_one_at_a_time(backend, which):
    case = Case([3, 2], length=4, gate=True)
    values, taps, gate, mask = case.make()
    expected = dict(
        zip(("values", "taps", "gate"), differentiate(case, backend, (values, taps, gate, mask))[1:], strict=True)
    )
    torch.manual_seed(6)
    weights = torch.randn(2, 2, 4, 5, dtype=torch.float64).float()
    leaf = {"values": values, "taps": taps, "gate": gate}[which].requires_grad_()
    (actual,) = torch.autograd.grad(case.run(backend, values, taps, gate, mask), leaf, weights)
    assert_close(actual.double(), expected[which], atol=1e-6)


def test_strides_of_the_inputs_do_not_matter(backend):
    # As the layer hands them over: heads cut out of (T, B, C) and transposed, history cut off, taps broadcast.
    values = torch.randn(9, 2, 12).transpose(0, 1).unflatten(-1, (3, 4)).transpose(1, 2)[:, :, 2:]
    taps = torch.randn(1, 3, 1, 5).expand(2, -1, 6, -1)
    assert not values.is_contiguous()
    assert not taps.is_contiguous()
    assert_close(run(values, taps, 4, backend), slow_dynamic_conv(values, taps, 4).float(), atol=ATOL)
    spread = torch.randn(2, 3, 6, 4, 2)[..., 0]  # not even the channels are neighbours
    every_other = torch.randn(2, 3, 6, 10)[..., ::2]
    actual = run(spread, every_other, 2, backend)
    assert_close(actual, slow_dynamic_conv(spread, every_other, 2).float(), atol=ATOL)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, ATOL), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)]
)
@pytest.mark.usefixtures("on_device")
def test_dtype_is_kept_and_the_error_is_that_of_the_dtype(backend, dtype, atol):
    values, taps = make_inputs(kernel_size=7)
    values, taps = values.to(dtype), taps.softmax(-1).to(dtype)
    actual = run(values, taps, 3, backend)
    assert actual.dtype == dtype
    assert_close(actual.double(), slow_dynamic_conv(values, taps, 3), atol=atol, why="tolerance of the dtype")


def test_kernel_of_one_tap_returns_the_values_times_the_tap(backend):
    values, taps = make_inputs(history=2, kernel_size=1)
    assert_close(run(values, taps, 0, backend), values[:, :, 2:] * taps, atol=0, rtol=0)


def test_causal_result_does_not_depend_on_later_values(backend):
    values, taps = make_inputs(length=8, kernel_size=5)
    before = run(values, taps, 4, backend)
    values[:, :, 5:] = 1e4
    after = run(values, taps, 4, backend)
    assert_close(after[:, :, :5], before[:, :, :5], atol=0, rtol=0)
    assert not torch.equal(after[:, :, 5:], before[:, :, 5:])


def test_padding_counts_as_zero_even_if_it_is_not_finite(backend):
    values, taps = make_inputs(length=6)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[0, 4:] = True
    mask[1] = True
    expected = run(values, taps, 1, backend, key_padding_mask=mask)
    assert (expected[1] == 0).all()
    values[0, :, 4:], values[1] = torch.inf, torch.nan
    assert_close(run(values, taps, 1, backend, key_padding_mask=mask), expected, atol=0, rtol=0)


def test_inputs_are_not_changed(backend):
    values, taps, gate, mask = inputs = Case([3, 5], history=2, gate=True, mask=True).make()
    copies = [x.clone() for x in inputs]
    differentiate(Case([3, 5], history=2, gate=True, mask=True), backend, inputs)
    for x, copy in zip((values, taps, gate, mask), copies, strict=True):
        assert_close(x, copy, atol=0, rtol=0)


def test_dropout_draws_the_same_taps_for_every_back_end(backend):
    case = Case([3, 4], length=9, gate=True, mask=True, dropout=0.4)
    inputs = case.make()
    expected = differentiate(case, "reference", inputs)
    for actual, e in zip(differentiate(case, backend, inputs), expected, strict=True):
        assert_close(actual, e, atol=2e-5)
    assert not torch.equal(case.run(backend, *inputs), case.run(backend, *inputs))


def test_dropout_drops_the_given_share_and_scales_the_rest():
    # With the identity as values, the result is the band of the taps itself.
    length = 60
    values = torch.eye(length).expand(4, 3, -1, -1)
    taps = torch.ones(4, 3, length, 5)
    band = run(values, taps, 2, dropout=0.2)
    seen = torch.diagonal(band, dim1=2, dim2=3)  # the middle tap of every query
    assert seen.unique().tolist() == pytest.approx([0.0, 1.25], rel=1e-5)  # rates are rounded to 1 / 65536
    assert abs((seen == 0).float().mean() - 0.2) < 0.05
    assert_close(run(values, taps, 2, dropout=0.0), run(values, taps, 2), atol=0, rtol=0)


def test_the_generator_decides_what_is_dropped(backend):
    case = Case([5], dropout=0.5)
    inputs = case.make()
    torch.manual_seed(3)
    first, second = case.run(backend, *inputs), case.run(backend, *inputs)
    torch.manual_seed(3)
    assert_close(case.run(backend, *inputs), first, atol=0, rtol=0)
    assert_close(case.run(backend, *inputs), second, atol=0, rtol=0)
    assert not torch.equal(first, second)


def test_nothing_goes_in_and_nothing_comes_out(backend):
    values, taps = make_inputs(batch=0, history=2)
    values.requires_grad_()
    out = run(values, taps, 1, backend)
    assert out.shape == (0, 3, 5, 4)
    out.sum().backward()
    assert values.grad.shape == values.shape


def test_what_lies_in_memory_does_not_reach_the_gradients(monkeypatch):
    """torch.sparse.sampled_addmm adds beta * values of its pattern, NaN for 0 * NaN."""
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: new_empty(*a, **k).fill_(float("nan")))
    values, taps = torch.randn(2, 1, 60, 4, requires_grad=True), torch.randn(2, 1, 60, 5, requires_grad=True)
    out = run(values, taps, 2, "taps")
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (values, taps)))


def test_rows_are_numbered_in_64_bits_where_32_are_too_few():
    plan = dynamic_conv_cpu._make_plan(1, 3, 3, 0)

    def number(rows):
        return dynamic_conv_cpu._number(plan, False, rows, (3, 2, 1), (2**29, 2**28, 1), 5)

    (small, starts), (large, large_starts) = number(2**31 - 1), number(2**31)
    assert {small.dtype, starts.dtype} == {torch.int32}
    assert {large.dtype, large_starts.dtype} == {torch.int64}
    expected = [5, 5 + 2**29, 5 + 2**30, 5 + 2**28, 5 + 2**28 + 2**29, 5 + 2**28 + 2**30]
    assert small.tolist() == large.tolist() == expected
    assert starts.tolist() == large_starts.tolist() == [0, 3, 6]


@pytest.mark.parametrize("width", [12, 24, 36, 13])
def test_values_are_read_where_they_lie_if_their_rows_are_aligned(width):
    # A slice of the layer's projections, time first: H * D = 12 of ``width`` columns, from the last multiple of D on.
    buffer = torch.randn(9, 2, width)
    start = (width - 12) // 4 * 4
    values = buffer[..., start : start + 12].unflatten(-1, (3, 4)).permute(1, 2, 0, 3)
    rows = dynamic_conv_cpu._find_rows(values, None)
    assert (rows.matrix.data_ptr() == buffer.data_ptr()) == (width % 4 == 0)
    plan = dynamic_conv_cpu._make_plan(1, 9, 9, 0)
    numbers, _ = dynamic_conv_cpu._number(plan, False, len(rows.matrix), *rows[1:])
    found = rows.matrix[numbers].view(2, 3, 9, 4)
    assert_close(found, values, atol=0, rtol=0)


def test_taps_warn_of_nothing(tmp_path):
    code = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
import torch
from muse_plugin.ops.dynamic_conv import dynamic_conv
warnings.simplefilter("error")
values = torch.randn(1, 1, 9, 2, requires_grad=True)
taps = torch.randn(1, 1, 9, 3, requires_grad=True)
dynamic_conv(values, taps, padding_left=1, backend="taps").sum().backward()
"""
    result = run_python(code, str(REPOSITORY), cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("backend", ["auto", "band", "reference"])
@pytest.mark.filterwarnings("ignore")
def test_compiles_into_one_graph(backend):
    case = Case([3, 5], length=6, gate=True, mask=True)
    inputs = case.make()
    expected = differentiate(case, backend, inputs)
    torch._dynamo.reset()

    def compute(*inputs):
        return case.run(backend, *inputs)

    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    leaves = [x.clone().requires_grad_() for x in inputs[:3]]
    out = compiled(*leaves, inputs[3])
    torch.manual_seed(6)
    gradients = torch.autograd.grad(out, leaves, torch.randn(out.shape, dtype=torch.float64).to(out))
    for actual, e in zip((out, *gradients), expected, strict=True):
        assert_close(actual.double(), e, atol=1e-5)


def choose(length, kernel_size, batch=20, heads=4, channels=96, device="cpu", dtype=torch.float32):
    """What "auto" stands for."""
    count = batch * heads * length * channels
    taps = torch.empty(1).expand(batch, heads, length, kernel_size)
    shape = (batch, heads, length, channels)
    values = SimpleNamespace(device=SimpleNamespace(type=device), dtype=dtype, shape=shape, numel=lambda: count)
    kernels = op.Kernels(taps, (kernel_size,), (kernel_size - 1,), None, True, None, 1.0)
    return op._choose_backend(values, kernels)


def test_auto_on_a_cpu_goes_by_the_length_beyond_the_kernel_and_by_the_size_of_the_job():
    assert choose(25, 15) == "band"
    assert choose(26, 15) == "taps"
    assert choose(57, 31) == "band"
    assert choose(58, 31) == "taps"
    assert choose(10, 3, batch=100) == "taps"
    assert choose(100, 3, batch=1, channels=250) == "band"
    assert choose(100, 3, batch=1, channels=251) == "taps"
    assert choose(1, 31, batch=5000) == "band"


def test_auto_on_a_cpu_goes_by_the_merged_kernel():
    values = SimpleNamespace(device=SimpleNamespace(type="cpu"), dtype=torch.float32, numel=lambda: 10**6)
    kernels = op.Kernels(torch.empty(1).expand(9, 4, 27, 18), (3, 15), (1, 7), None, True, None, 1.0)
    assert op._choose_backend(values, kernels) == "taps"
    assert op._choose_backend(values, kernels._replace(lefts=(0, 14))) == "band"  # 17 positions together


def test_auto_on_a_gpu_is_triton_where_triton_can_run(monkeypatch, caplog, triton_on_cpu):
    monkeypatch.setattr(op.dynamic_conv_fairseq, "is_built", lambda: False)
    assert choose(24, 15, device="cuda", dtype=torch.float16) == "triton"
    assert choose(1, 225, device="cuda") == "triton"
    assert choose(1, 226, device="cuda") == "band"
    assert choose(5000, 3, device="cuda", dtype=torch.float64) == "reference"
    monkeypatch.setattr(op, "_HAS_TRITON", False)
    op._log_missing_triton.cache_clear()
    with caplog.at_level(logging.INFO):
        assert choose(75, 3, device="cuda") == "band"
        assert choose(76, 3, device="cuda") == "reference"
    assert [record.getMessage() for record in caplog.records] == [
        "dynamic convolutions run without their GPU kernels; for those, install Triton: pip install triton"
    ]


def test_auto_gives_the_same_numbers_on_both_sides_of_its_choice(monkeypatch):
    used = []
    real = op._run
    monkeypatch.setattr(op, "_run", lambda backend, *rest: used.append(backend) or real(backend, *rest))
    for length in (23, 30_000):
        values, taps = make_inputs(2, 1, length, 0, 2, 3)
        assert_close(run(values, taps, 1), run(values, taps, 1, "reference"), atol=ATOL)
    assert used == ["band", "reference", "taps", "reference"]


def test_forward_raises_error_for_an_unknown_back_end():
    sentence = r"^backend must be one of auto, reference, band, taps, triton, fairseq_cuda, but got 'cuda'\.$"
    with pytest.raises(ValueError, match=sentence):
        run(*make_inputs(), 1, "cuda")


def test_taps_refuse_other_devices():
    assert "taps" in BACKENDS
    values, taps = (x.to("meta") for x in make_inputs())
    with pytest.raises(
        RuntimeError, match=r"^the back end taps runs on the CPU only, but got meta; use backend='auto'\.$"
    ):
        run(values, taps, 1, "taps")


@pytest.mark.parametrize("padding_left", [-1, 3])
def test_forward_raises_error_when_the_query_lies_outside_the_kernel(padding_left):
    sentence = rf"^padding_left must lie in \[0, 2\] for a kernel of 3 taps, but got {padding_left}\.$"
    with pytest.raises(ValueError, match=sentence):
        run(*make_inputs(), padding_left)


@pytest.mark.parametrize("sizes", [[], [2], [3, 1], [3, 0], [4, -1]])
def test_forward_raises_error_when_the_sizes_do_not_add_up(sizes):
    sentence = r"^kernel_sizes must be >= 1 and add up to the last axis of taps, but got \[.*\] and taps of shape \(2, "
    with pytest.raises(ValueError, match=sentence) as caught:
        run(*make_inputs(), 0, kernel_sizes=sizes)
    assert str(sizes) in str(caught.value)


def test_forward_raises_error_when_numbers_per_size_are_missing():
    values, taps = make_inputs(kernel_size=5)
    sentence = r"^padding_left must hold one number per kernel size, but got \[1\] for \[2, 3\]\.$"
    with pytest.raises(ValueError, match=sentence):
        run(values, taps, [1], kernel_sizes=[2, 3])
    sentence = r"^gate must have shape \(2,\), one weight per kernel size, but got \(3,\)\.$"
    with pytest.raises(ValueError, match=sentence):
        run(values, taps, [1, 1], kernel_sizes=[2, 3], gate=torch.ones(3))


@pytest.mark.parametrize("mask", [torch.zeros(2, 5), torch.zeros(2, 4, dtype=torch.bool)])
def test_forward_raises_error_when_the_mask_does_not_fit(mask):
    sentence = r"^key_padding_mask must be bool of shape \(B, S\) = \(2, 5\), but got torch\.\w+ of shape \(2, \d\)\.$"
    with pytest.raises(ValueError, match=sentence):
        run(*make_inputs(), 1, key_padding_mask=mask)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_forward_raises_error_when_dropout_is_no_probability(dropout):
    with pytest.raises(ValueError, match=rf"^dropout must lie in \[0, 1\), but got {dropout}\.$"):
        run(*make_inputs(), 1, dropout=dropout)


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
        run(torch.zeros(values), torch.zeros(taps), 1)
    assert str(caught.value).endswith(f"but got {values} and {taps}.")
