"""Rows as PyTorch's kernels for GPUs want them; ``tests/gpu/test_fused_attention_on_gpu.py`` runs the kernels."""

import pytest
import torch
import torch.nn.functional as F
from support.helpers import assert_close

from muse_plugin.ops.fused_attention import arrange, fit_rows, fused_attention


def cut(total, first, dtype, batch=2, length=3, heads=2, channels=8):
    """Heads (B, H, T, D) out of rows of ``total`` numbers, from number ``first`` on."""
    whole = torch.randn(length, batch, total).to(dtype)
    return whole[..., first : first + heads * channels].unflatten(-1, (heads, channels)).permute(1, 2, 0, 3)


@pytest.mark.parametrize(
    ("total", "first", "dtype", "fits"),
    [
        (32, 16, torch.float16, True),
        (28, 0, torch.float16, False),
        (28, 0, torch.float32, True),
        (30, 0, torch.float32, False),
        (32, 4, torch.bfloat16, False),
        (32, 4, torch.float32, True),
    ],
)
def test_rows_are_copied_where_they_do_not_begin_at_16_bytes(total, first, dtype, fits):
    x = cut(total, first, dtype)
    fitting = fit_rows(x, True)
    assert (fitting is x) == fits
    assert torch.equal(fitting, x)
    assert all(number * x.element_size() % 16 == 0 for number in (fitting.storage_offset(), *fitting.stride()[:-1]))


def test_what_is_contiguous_but_begins_elsewhere_is_copied():
    x = torch.randn(33)[1:].view(1, 1, 4, 8)
    assert x.is_contiguous()
    assert fit_rows(x, False).storage_offset() == 0


@pytest.mark.parametrize(
    ("channels", "dtype", "width"),
    [(30, torch.float16, 32), (30, torch.float32, 32), (8, torch.float16, 8), (3, torch.float64, 4)],
)
def test_with_a_bias_rows_end_at_16_bytes_and_attention_stays_what_it_is(channels, dtype, width):
    query, key, value = (torch.randn(2, 2, 5, channels, dtype=torch.float64) for _ in range(3))
    assert fit_rows(query.to(dtype), True).shape[-1] == width
    assert fit_rows(query.to(dtype), False).shape[-1] == channels
    bias = torch.randn(2, 1, 5, 5, dtype=torch.float64)
    padded = (F.pad(x, (0, width - channels)) for x in (query, key, value))
    actual = F.scaled_dot_product_attention(*padded, attn_mask=bias, scale=channels**-0.5)
    assert_close(actual[..., :channels], fused_attention(query, key, value, bias=bias), atol=1e-12)
    assert not actual[..., channels:].any()


def test_gradients_pass_through_the_copy():
    whole = torch.randn(2, 3, 5, requires_grad=True)
    weights = torch.randn(2, 3, 4)
    (fit_rows(whole[..., 1:], False) * weights).sum().backward()
    assert torch.equal(whole.grad[..., 1:], weights)
    assert not whole.grad[..., 0].any()


def test_a_gradient_of_another_layout_is_rearranged():
    out = cut(16, 0, torch.float32)  # dense
    grad = cut(40, 8, torch.float32)
    arranged = arrange(out.stride(), grad)
    assert arranged.stride() == out.stride() != grad.stride()
    assert torch.equal(arranged, grad)
    assert arrange(out.stride(), arranged) is arranged
