"""The dynamic convolution's GPU kernels against the reference, by the rule of ``dynamic_conv_cases.check``."""

import dataclasses
import importlib.util

import pytest
import torch
from support.dynamic_conv_cases import Case, check, differentiate
from support.helpers import assert_close

from muse_plugin.ops import dynamic_conv as op

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", [[1], [3], [3, 15], [2, 4], [31], [127]])
def test_values_and_gradients_are_as_exact_as_those_of_the_reference(triton, sizes, causal, dtype):
    options = {"causal": causal, "dtype": dtype, "device": triton, "gate": len(sizes) > 1}
    check(Case(sizes, mask=True, **options), "triton")
    check(Case(sizes, batch=7, heads=4, length=101, channels=96, dropout=0.1, **options), "triton")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [
        Case([5], batch=1, heads=3, length=33, channels=130, mask=True, dropout=0.3),
        Case([3, 5, 7, 9, 11, 13], causal=False, heads=1, gate=True, dropout=0.2),
        Case([7, 2], normalize=False, gate=True, mask=True, dropout=0.3),
        Case([4], batch=5, heads=2, length=1, history=9),
        Case([15], batch=1, heads=2, length=3, history=4),
        Case([225], batch=1, heads=1, length=5),
        Case([3, 15], batch=1500, heads=50, length=2, channels=4),  # more heads than the second axis of a grid takes
    ],
    ids=lambda case: f"{case.sizes}-{case.length}",
)
def test_blocks_channels_history_and_dropout(triton, case, dtype):
    check(dataclasses.replace(case, dtype=dtype, device=triton), "triton")


def test_auto_is_triton_and_equal_inputs_give_equal_bits(triton, monkeypatch):
    used = []
    run = op._run
    monkeypatch.setattr(op, "_run", lambda backend, *rest: used.append(backend) or run(backend, *rest))
    case = Case([3, 15], batch=16, length=60, channels=64, gate=True, mask=True, dropout=0.1, device=triton)
    inputs = case.make()
    for first, second in zip(differentiate(case, "auto", inputs), differentiate(case, "auto", inputs), strict=True):
        assert_close(first, second, atol=0, rtol=0)
    assert used == ["triton", "triton"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", [[3], [7], [31], [3, 15]])
def test_kernels_of_fairseq_agree(cuda, sizes, causal, dtype):
    if importlib.util.find_spec("dynamicconv_cuda") is None:
        pytest.skip("needs fairseq's dynamicconv_cuda, which the user builds")
    check(Case(sizes, causal, length=50, channels=16, dtype=dtype, device=cuda), "fairseq_cuda")


@pytest.mark.parametrize("padding_left", [3, 6])
def test_lightweight_kernels_of_fairseq_agree(cuda, padding_left):
    if importlib.util.find_spec("lightconv_cuda") is None:
        pytest.skip("needs fairseq's lightconv_cuda, which the user builds")
    values = torch.randn(3, 4, 50, 16, device=cuda, requires_grad=True)
    kernel = torch.randn(4, 7, device=cuda).softmax(dim=-1).requires_grad_()
    weights = torch.randn(3, 4, 50, 16, device=cuda)
    results = []
    for backend in ("fairseq_cuda", "reference"):
        taps = kernel[None, :, None].expand(3, -1, 50, -1)
        out = op.dynamic_conv(values, taps, padding_left=padding_left, backend=backend)
        results.append((out, *torch.autograd.grad(out, (values, kernel), weights)))
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, atol=1e-3)  # sums of up to 2,400 products in another order
