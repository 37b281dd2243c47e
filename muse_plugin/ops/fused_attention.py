"""PyTorch's fused attention; the only place that calls its kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# The kernels for GPUs read rows this many bytes at a time.
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
    if query.is_cuda:
        query, key, value = align_rows(query), align_rows(key), align_rows(value)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, is_causal=causal)


def align_rows(x: Tensor) -> Tensor:
    """A copy where a row does not begin at a multiple of 16 bytes, which kernels refuse or fail on; otherwise ``x``.

    Rows of a slice have the distance of those of the whole, which is a sum of widths that the user chooses.
    """
    if all(n * x.element_size() % _ALIGNMENT == 0 for n in (x.storage_offset(), *x.stride()[:-1])):
        return x
    return x.clone(memory_format=torch.contiguous_format)
