"""PyTorch's fused attention; the only place that calls its kernels, and that knows what those for GPUs ask for."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Kernels for GPUs read rows this many bytes at a time.
_ALIGNMENT = 16


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """softmax(Q K^T / sqrt(D) + bias) V without holding the weights (arXiv:1706.03762, Eq. 1).

    Args:
        query: shape (..., T, D); slices of a wider tensor are welcome.
        key: shape (..., S, D).
        value: shape (..., S, D).
        bias: added to the logits; broadcastable to (..., T, S).
        dropout: probability of dropping a weight.
        causal: query t sees keys up to t only; without ``bias``.

    Returns:
        Tensor of shape (..., T, D).
    """
    if not query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, is_causal=causal)
    channels, scale = query.shape[-1], 1.0 / math.sqrt(query.shape[-1])
    query, key, value = (fit_rows(x, bias is not None) for x in (query, key, value))
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=dropout, is_causal=causal, scale=scale
    )
    if out.requires_grad and not torch.compiler.is_compiling():
        # PyTorch keeps cuDNN's backward pass by the layout of the inputs, and takes it for gradients of any layout.
        out.register_hook(functools.partial(arrange, out.stride()))  # type: ignore[no-untyped-call]
    return out[..., :channels]


def fit_rows(x: Tensor, has_bias: bool) -> Tensor:
    """Rows (..., D) as the kernels want them, or ``x`` itself.

    Where a row does not begin at a multiple of 16 bytes, kernels refuse it or fail: rows of a slice have the distance
    of those of the whole, which is a sum of widths that the user chooses. With a bias, rows have to end there as well,
    or PyTorch holds all weights; zeros change no product.
    """
    spare = -x.shape[-1] % (_ALIGNMENT // x.element_size())
    if has_bias and spare > 0:
        return F.pad(x, (0, spare))
    if all(n * x.element_size() % _ALIGNMENT == 0 for n in (x.storage_offset(), *x.stride()[:-1])):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def arrange(strides: tuple[int, ...], x: Tensor) -> Tensor:
    """``x``, copied where its strides are others."""
    return x if x.stride() == strides else x.new_empty_strided(x.shape, strides).copy_(x)
