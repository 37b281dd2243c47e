"""Dropout that draws its mask quickly on the CPU, and keeps one byte per element for the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# A random number of 64 bits decides four elements: rates are multiples of 1 / 65536.
_LEVELS = 1 << 16


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Sets elements to zero at random and lets the others grow, so that the expectation stays what it is.

    Source: Srivastava et al. 2014, "Dropout", in the inverted form. On a CPU PyTorch's own costs more than the matrix
    product before it: numbers are drawn one by one in float32, and kept. Elsewhere, and within torch.compile, this is
    PyTorch's own.

    Args:
        x: floating point, any shape.
        rate: probability in [0, 1) of an element's being dropped; on a CPU rounded to multiples of 1 / 65536.
        training: outside training ``x`` is returned as it is.

    Returns:
        Tensor of the shape of ``x``.
    """
    if not training or rate == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    return _Masked.apply(x, *draw_mask(x.shape, rate, x.device))  # type: ignore[no-untyped-call]


def draw_mask(shape: Sequence[int], rate: float, device: torch.device) -> tuple[Tensor, float]:
    """Draws what dropout keeps, from PyTorch's default generator of the device.

    Args:
        shape: shape of the mask.
        rate: probability in (0, 1) of an element's being dropped; see ``dropout``.
        device: where the mask is made.

    Returns:
        The mask, bool, true where an element is kept, and what those grow by: 1 / (1 - rate), with the rounded rate.
    """
    if device.type != "cpu" or torch.compiler.is_compiling():
        return torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(1 - rate), 1 / (1 - rate)
    dropped = min(max(round(rate * _LEVELS), 1), _LEVELS - 1)
    count = torch.Size(shape).numel()
    numbers = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:count]
    # Comparing into numbers, and bool as int8, are what PyTorch does in whole vectors: ten times as fast as into bool.
    kept = torch.ge(numbers, dropped - _LEVELS // 2, out=numbers).to(torch.int8)
    return kept.view(torch.bool).view(shape), _LEVELS / (_LEVELS - dropped)


class _Masked(torch.autograd.Function):
    """x * mask * scale, with nothing kept but the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x * mask.view(torch.int8)).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (grad * mask.view(torch.int8)).mul_(ctx.scale), None, None
