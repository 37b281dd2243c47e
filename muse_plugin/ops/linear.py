"""Products of a training step by oneDNN, on an AMD CPU, where PyTorch's own library is at half speed.

PyTorch multiplies float32 matrices by MKL, which leaves AVX-512 alone on processors that are not Intel's: 110 GFLOP/s
in place of oneDNN's 250 on a core of Zen 5 (torch 2.13). On Zen 4, whose vector units are half as wide, both reach 95.
oneDNN compiles a kernel for every new shape, about 1 ms, and keeps the last 1,024: small products stay with MKL.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.ops.eager_cpu import runs_eagerly_on_cpu

_FEWEST_ROWS = 16
_SMALLEST = 1 << 21  # multiplications


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b.

    Args:
        x: shape (..., in).
        weight: W, shape (out, in).
        bias: b, shape (out,), or None.

    Returns:
        Tensor of shape (..., out). ``F.linear``'s, but for rounding.
    """
    if not _prefers_onednn(x, weight):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of W in ``linear``.

    Args:
        grad: gradient of the result, shape (N, out).
        x: shape (N, in).

    Returns:
        Tensor of shape (out, in), in memory as its transpose where that saves oneDNN a copy of the larger matrix.
    """
    if grad.shape[1] > x.shape[1] and _prefers_onednn(x.t(), grad.t()):
        return linear(x.t(), grad.t()).t()
    return linear(grad.t(), x.t())


def add_weight_gradient(total: Tensor | None, grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Adds ``weight_gradient`` to a total of ``dtype``, in place; None is zero. Only oneDNN needs memory for a part."""
    if total is None:
        return weight_gradient(grad, x).to(dtype)
    if grad.dtype == dtype and not _prefers_onednn(grad.t(), x.t()):
        return total.addmm_(grad.t(), x)
    return total.add_(weight_gradient(grad, x))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(_lay_out(x), _lay_out(weight), bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        grad_x = linear(rows, weight.t()).view(x.shape) if needs_x else None
        grad_weight = weight_gradient(rows, x.reshape(-1, x.shape[-1])) if needs_weight else None
        return grad_x, grad_weight, rows.sum(0) if needs_bias else None


def _lay_out(x: Tensor) -> Tensor:
    """A copy of a tensor that is neither contiguous nor the transpose of such a matrix: those take a hundred times."""
    is_plain = x.is_contiguous() or (x.dim() == 2 and x.t().is_contiguous())
    return x if is_plain else x.contiguous()


def _prefers_onednn(x: Tensor, weight: Tensor) -> bool:
    if not runs_eagerly_on_cpu(x) or torch.is_autocast_enabled("cpu"):
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or not is_onednn_faster():
        return False
    rows = x.shape[:-1].numel()
    return rows >= _FEWEST_ROWS and rows * weight.numel() >= _SMALLEST


@functools.cache
def is_onednn_faster() -> bool:
    """Whether this is an AMD CPU with AVX-512, and PyTorch has oneDNN."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    cpu = Path("/proc/cpuinfo")  # other systems have MKL as it is
    return cpu.is_file() and "AuthenticAMD" in cpu.read_text(errors="replace")[:1000]
