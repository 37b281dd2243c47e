"""Rows as PyTorch's kernels for GPUs want them; ``tests/gpu/test_fused_attention_on_gpu.py`` runs the kernels."""

import pytest
import torch

from muse_plugin.ops.fused_attention import align_rows


def cut(total, first, dtype, batch=2, length=3, heads=2, channels=8):
    """Heads (B, H, T, D) out of rows of ``total`` numbers, from number ``first`` on."""
    whole = torch.randn(length, batch, total).to(dtype)
    return whole[..., first : first + heads * channels].unflatten(-1, (heads, channels)).permute(1, 2, 0, 3)


@pytest.mark.parametrize(
    ("total", "first", "dtype", "is_aligned"),
    [
        (32, 16, torch.float16, True),
        (28, 0, torch.float16, False),
        (28, 0, torch.float32, True),
        (30, 0, torch.float32, False),
        (32, 4, torch.bfloat16, False),
        (32, 4, torch.float32, True),
    ],
)
def test_rows_are_copied_where_they_do_not_begin_at_16_bytes(total, first, dtype, is_aligned):
    x = cut(total, first, dtype)
    aligned = align_rows(x)
    assert (aligned is x) == is_aligned
    assert torch.equal(aligned, x)
    assert all(number * x.element_size() % 16 == 0 for number in (aligned.storage_offset(), *aligned.stride()[:-1]))


def test_what_is_contiguous_but_begins_elsewhere_is_copied():
    x = torch.randn(33)[1:].view(1, 1, 4, 8)
    assert x.is_contiguous()
    assert align_rows(x).storage_offset() == 0


def test_gradients_pass_through_the_copy():
    whole = torch.randn(2, 3, 5, requires_grad=True)
    weights = torch.randn(2, 3, 4)
    (align_rows(whole[..., 1:]) * weights).sum().backward()
    assert torch.equal(whole.grad[..., 1:], weights)
    assert not whole.grad[..., 0].any()
