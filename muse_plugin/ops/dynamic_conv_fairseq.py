"""fairseq's own CUDA kernels for the dynamic convolution, for users who have built them; see ``dynamic_conv.py``.

They are the extension modules ``dynamicconv_cuda`` (one kernel per query) and ``lightconv_cuda`` (one kernel per head),
which ``scripts/build_lightconv.sh`` makes from fairseq's sources.
For a size or padding that they have no kernel for, they print a warning and return zeros: that is refused here.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

SIZES = (3, 5, 7, 15, 31, 63, 127, 255)
EXTENSIONS = ("dynamicconv_cuda", "lightconv_cuda")
DTYPES = (torch.float16, torch.float32, torch.float64)


@functools.cache
def is_built() -> bool:
    """Whether both extension modules can be imported."""
    try:
        for name in EXTENSIONS:
            _load(name)
    except ImportError:
        return False
    return True


def fits(values: Tensor, kernel_size: int, padding_left: int) -> bool:
    """Whether there is a kernel for the dtype, the size and the padding; arguments as for ``conv``."""
    has_size = kernel_size in SIZES and padding_left in (kernel_size // 2, kernel_size - 1)
    return has_size and values.dtype in DTYPES


def conv(values: Tensor, taps: Tensor, padding_left: int) -> Tensor:
    """Runs the kernels; the arguments are those of ``dynamic_conv.dynamic_conv``, with one kernel size.

    Args:
        values: shape (B, H, S, D), on a GPU.
        taps: shape (B, H, T, K), of the same dtype, used as given. Where they are one kernel per head, expanded over
            sentences and positions (strides of zero), ``lightconv_cuda`` runs; its gradient is spread over the copies.
        padding_left: taps left of the query.

    Returns:
        Tensor of shape (B, H, T, D).

    Raises:
        RuntimeError: if the tensors are not on a GPU.
        NotImplementedError: if there is no kernel for the size, padding or dtype.
        ImportError: if the extension has not been built.
    """
    _require_gpu(values)
    length, kernel_size = taps.shape[2:]
    if not fits(values, kernel_size, padding_left):
        raise NotImplementedError(
            f"fairseq's CUDA kernels take float16, float32 and float64, and {', '.join(map(str, SIZES))} taps, centred "
            f"or causal, but got {values.dtype}, and {kernel_size} taps with {padding_left} of them on the left; use "
            "backend='auto'."
        )
    positions = values.shape[2]
    shared = taps.stride(0) == 0 and taps.stride(2) == 0 and length == positions
    # The kernels want as many queries as positions: those of the history get taps of zero.
    taps = taps if shared else F.pad(taps, (0, 0, positions - length, 0))
    result: Tensor = _Conv.apply(values, taps, padding_left, shared)  # type: ignore[no-untyped-call]
    return result[:, :, positions - length :]


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, taps: Tensor, padding_left: int, is_shared: bool) -> Tensor:
        kernels = taps[0, :, 0] if is_shared else taps.transpose(2, 3)  # (H, K) or (B, H, K, S)
        ctx.extension = _load("lightconv_cuda" if is_shared else "dynamicconv_cuda")
        ctx.padding_left, ctx.shape, ctx.is_shared = padding_left, values.shape, is_shared
        inputs = _to_channels(values), kernels.contiguous()
        ctx.save_for_backward(*inputs)
        return _to_heads(ctx.extension.forward(*inputs, padding_left)[0], values.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_values, grad_taps = ctx.extension.backward(_to_channels(grad), ctx.padding_left, *ctx.saved_tensors)
        if ctx.is_shared:
            batch, _, positions, _ = ctx.shape
            grad_taps = (grad_taps / (batch * positions))[None, :, None].expand(batch, -1, positions, -1)
        else:
            grad_taps = grad_taps.transpose(2, 3)
        return _to_heads(grad_values, ctx.shape), grad_taps, None, None


def _require_gpu(values: Tensor) -> None:
    if not values.is_cuda:
        raise RuntimeError(
            f"the back end fairseq_cuda needs tensors on a GPU, but got {values.device}; use backend='auto'."
        )


def _load(name: str) -> Any:
    """Imports an extension module of fairseq."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"the back end fairseq_cuda needs fairseq's extension {name}, which cannot be imported ({error}); build it "
            "with 'bash scripts/build_lightconv.sh', or use backend='auto'."
        ) from error


def _to_channels(x: Tensor) -> Tensor:
    """(B, H, S, D) -> (B, H * D, S), contiguous."""
    return x.transpose(2, 3).flatten(1, 2).contiguous()


def _to_heads(x: Tensor, shape: torch.Size) -> Tensor:
    """(B, H * D, S) -> (B, H, S, D)."""
    return x.view(shape[0], shape[1], shape[3], shape[2]).transpose(2, 3)
