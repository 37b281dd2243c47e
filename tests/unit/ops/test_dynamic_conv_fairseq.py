"""The guard around fairseq's CUDA kernels, with stand-ins for the extension modules that behave as they do."""

import sys
from types import ModuleType

import pytest
import torch
from support.dynamic_conv_cases import Case, differentiate
from support.helpers import assert_close

from muse_plugin.ops import dynamic_conv_fairseq
from muse_plugin.ops.dynamic_conv import dynamic_conv


def convolve(x, weight, padding_left):
    """(B, C, S) with kernels (B, H, K, S) or (H, K); zeros where the real extension has no kernel."""
    size = weight.shape[-2] if weight.dim() == 4 else weight.shape[-1]
    if size not in (3, 5, 7, 15, 31, 63, 127, 255) or padding_left not in (size // 2, size - 1):
        return torch.zeros_like(x)
    batch, channels, length = x.shape
    heads = weight.shape[1] if weight.dim() == 4 else weight.shape[0]
    taps = weight.transpose(2, 3) if weight.dim() == 4 else weight[None, :, None].expand(batch, -1, length, -1)
    values = x.view(batch, heads, channels // heads, length).transpose(2, 3)
    out = dynamic_conv(values, taps, padding_left=padding_left, backend="reference")
    return out.transpose(2, 3).reshape(x.shape)


def make_module(name, calls):
    module = ModuleType(name)

    def forward(x, weight, padding_left):
        assert x.is_contiguous()
        assert weight.is_contiguous()
        calls.append(name)
        return [convolve(x, weight, padding_left)]

    def backward(grad, padding_left, x, weight):
        assert grad.is_contiguous()
        with torch.enable_grad():
            leaves = x.detach().requires_grad_(), weight.detach().requires_grad_()
            return torch.autograd.grad(convolve(*leaves, padding_left), leaves, grad)

    module.forward, module.backward = forward, backward
    return module


@pytest.fixture
def calls(monkeypatch):
    """Puts the stand-ins in place of the extensions; returns the names of those that were called."""
    calls = []
    for name in ("dynamicconv_cuda", "lightconv_cuda"):
        monkeypatch.setitem(sys.modules, name, make_module(name, calls))
    monkeypatch.setattr(dynamic_conv_fairseq, "_require_gpu", lambda values: None)
    return calls


@pytest.mark.parametrize(("causal", "dtype"), [(True, torch.float32), (False, torch.float64)])
@pytest.mark.parametrize(
    "case", [Case([3]), Case([3, 15], gate=True), Case([7], history=2, mask=True), Case([31], length=4, history=40)]
)
def test_values_and_gradients_equal_those_of_the_reference(calls, case, causal, dtype):
    case = Case(**{**vars(case), "causal": causal, "dtype": dtype})
    inputs = case.make()
    expected = differentiate(case, "reference", inputs)
    actual = differentiate(case, "fairseq_cuda", inputs)
    assert set(calls) == {"dynamicconv_cuda"}
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, atol=1e-5)


def test_one_kernel_for_all_positions_runs_in_lightconv(calls):
    values, kernel = torch.randn(2, 3, 6, 4, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    weights = torch.randn(2, 3, 6, 4)
    results = []
    for backend in ("fairseq_cuda", "reference"):
        taps = kernel[None, :, None].expand(2, -1, 6, -1)
        out = dynamic_conv(values, taps, padding_left=2, backend=backend)
        results.append((out, *torch.autograd.grad(out, (values, kernel), weights)))
    assert calls == ["lightconv_cuda"]
    for a, e in zip(*results, strict=True):
        assert_close(a, e, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "padding_left", "dtype"),
    [
        *((*pair, torch.float32) for pair in [(1, 0), (4, 3), (4, 2), (9, 4), (3, 0), (15, 6), (256, 255)]),
        (3, 1, torch.bfloat16),
    ],
)
def test_what_silently_returns_zeros_is_refused(calls, size, padding_left, dtype):
    values, taps = torch.randn(1, 2, 6, 4, dtype=dtype), torch.randn(1, 2, 6, size)
    sentence = (
        r"^fairseq's CUDA kernels take float16, float32 and float64, and 3, 5, 7, 15, 31, 63, 127, 255 taps, centred "
        rf"or causal, but got {dtype}, and {size} taps with {padding_left} of them on the left; use backend='auto'\.$"
    )
    with pytest.raises(NotImplementedError, match=sentence):
        dynamic_conv(values, taps, padding_left=padding_left, backend="fairseq_cuda")
    assert calls == []


@pytest.mark.parametrize("name", ["dynamicconv_cuda", "lightconv_cuda"])
def test_a_missing_extension_is_named_together_with_how_to_build_it(monkeypatch, name):
    monkeypatch.setattr(dynamic_conv_fairseq, "_require_gpu", lambda values: None)
    monkeypatch.setitem(sys.modules, name, None)
    kernel = torch.zeros(1, 1, 1, 3).expand(2, -1, 4, -1)
    taps = kernel if name == "lightconv_cuda" else kernel.contiguous()
    sentence = (
        rf"^the back end fairseq_cuda needs fairseq's extension {name}, which cannot be imported \(.*\); build it with "
        r"'bash scripts/build_lightconv\.sh', or use backend='auto'\.$"
    )
    with pytest.raises(ImportError, match=sentence):
        dynamic_conv(torch.zeros(2, 1, 4, 2), taps, padding_left=1, backend="fairseq_cuda")


def test_tensors_on_the_cpu_are_refused():
    sentence = r"^the back end fairseq_cuda needs tensors on a GPU, but got cpu; use backend='auto'\.$"
    with pytest.raises(RuntimeError, match=sentence):
        dynamic_conv(torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 3), padding_left=1, backend="fairseq_cuda")
