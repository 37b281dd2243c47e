"""Fused attention over slices of a wider tensor, wherever their rows begin, against float64."""

import pytest
import torch
import torch.nn.functional as F
from support.helpers import assert_close

from muse_plugin.ops.fused_attention import fused_attention

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spare", [0, 1, 4, 12])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
@pytest.mark.parametrize("channels", [16, 15])
def test_slices_of_any_distance_and_start(channels, spare, mask, dtype, cuda):
    batch, heads, length = 3, 2, 37
    width = heads * channels
    whole = torch.randn(length, batch, spare + 3 * width, device=cuda, dtype=dtype, requires_grad=True)
    bias = None
    if mask == "padding":
        bias = torch.zeros(batch, 1, 1, length, device=cuda, dtype=dtype)
        bias[1, ..., 30:] = torch.finfo(dtype).min / 2

    def attend(x, attention):
        parts = x[..., spare:].unflatten(-1, (3, heads, channels)).permute(2, 1, 3, 0, 4)
        return attention(*parts.unbind())

    exact = whole.detach().double().requires_grad_()
    options = {"is_causal": mask == "causal", "attn_mask": None if bias is None else bias.double()}
    expected = attend(exact, lambda *qkv: F.scaled_dot_product_attention(*qkv, **options))
    actual = attend(whole, lambda *qkv: fused_attention(*qkv, bias=bias, causal=mask == "causal"))
    atol = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    assert_close(actual.double(), expected, atol=atol)
    weights = torch.randn_like(actual)
    (gradient,) = torch.autograd.grad(actual, whole, weights)
    (exact_gradient,) = torch.autograd.grad(expected, exact, weights.double())
    assert_close(gradient.double(), exact_gradient, atol=5 * atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_may_have_any_layout_one_after_the_other(dtype, cuda):
    """PyTorch looks for cuDNN's backward pass by the layout of the inputs, which is the same here."""
    heads, channels, length = 4, 64, 40
    width = heads * channels
    whole = torch.randn(length, 8, 3 * width, device=cuda, dtype=dtype, requires_grad=True)
    expected = None
    for spare in (0, width, 0):
        parts = whole.unflatten(-1, (3, heads, channels)).permute(2, 1, 3, 0, 4).unbind()
        out = fused_attention(*parts, causal=True).permute(2, 0, 1, 3).flatten(2)
        together = torch.cat([out, out.new_zeros(length, 8, spare)], dim=-1)
        (gradient,) = torch.autograd.grad(together.float().square().sum(), whole)
        expected = gradient if expected is None else expected
        assert_close(gradient, expected, atol=0, rtol=0.02)
