"""Dynamic convolution as a product with a band matrix: the back end "band" of ``dynamic_conv.py``.

For short sentences, where most of a (T, S) matrix is band. Neither the matrix nor a copy of the values is kept for the
backward pass: both are quicker to make again than to fetch from memory.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def multiply_band(values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
    """Spreads the taps over a (T, S) band matrix and multiplies once.

    Args:
        values: shape (B, H, S, D).
        taps: shape (B, H, T, K), one kernel per query, used as given.
        left: the window of query t begins at position t - left; positions outside 0 .. S-1 count as zero.
        padding: bool, shape (B, S), true where the values count as zero; None if nowhere.

    Returns:
        Tensor of shape (B, H, T, D).
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return _multiply(values, taps, left, padding)
    return _MultiplyBand.apply(values, taps, left, padding)  # type: ignore[no-untyped-call]


class _MultiplyBand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, taps, padding)
        ctx.left = left
        return _multiply(values, taps, left, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        values, taps, padding = ctx.saved_tensors
        grad_values = grad_taps = None
        if ctx.needs_input_grad[0]:
            band = _spread(taps.to(values.dtype), ctx.left, values.shape[2])
            grad_values = _mask(torch.matmul(band.transpose(2, 3), grad), padding)
        if ctx.needs_input_grad[1]:
            products = torch.matmul(grad, _mask(values, padding).transpose(2, 3))
            grad_taps = _collect(products, ctx.left, taps.shape[3]).to(taps.dtype)
        return grad_values, grad_taps, None, None


def _multiply(values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
    return torch.matmul(_spread(taps.to(values.dtype), left, values.shape[2]), _mask(values, padding))


def _mask(values: Tensor, padding: Tensor | None) -> Tensor:
    return values if padding is None else values.masked_fill(padding[:, None, :, None], 0.0)


def _spread(taps: Tensor, left: int, positions: int) -> Tensor:
    """Taps (B, H, T, K) -> band matrices (B, H, T, S)."""
    batch, heads, length, kernel_size = taps.shape
    if length == 1:
        band = taps
    else:
        # Rows of width T + K, read back with width T + K - 1: each row moves one column further right.
        width = length + kernel_size - 1
        skewed = F.pad(taps, (0, length)).reshape(batch, heads, length * (width + 1))
        band = skewed[..., : length * width].reshape(batch, heads, length, width)
    return band[..., left : left + positions]


def _collect(band: Tensor, left: int, kernel_size: int) -> Tensor:
    """Band matrices (B, H, T, S) -> taps (B, H, T, K): ``_spread`` backwards; zero where a tap meets no position."""
    batch, heads, length, positions = band.shape
    width = length + kernel_size - 1
    rows = F.pad(band, (left, width - left - positions)).reshape(batch, heads, length * width)
    return F.pad(rows, (0, length)).reshape(batch, heads, length, width + 1)[..., :kernel_size]
