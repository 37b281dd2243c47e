"""A linear map whose weight never changes again, laid out once for the machine: for inference only.

Decoding one sentence multiplies a handful of rows with every weight of the model, so that reading the weights is the
cost. On the CPU, oneDNN's blocked layout reads them two to three times as fast as the plain one for up to about 50
rows, and 8-bit weights are a quarter of the bytes.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BACKENDS = ("auto", "plain", "onednn", "int8")


class PackedLinear:
    """x W^T + b, with a copy of W in the layout of a back end.

    Not a module on purpose: the copy belongs to no checkpoint and follows no optimiser.

    Args:
        weight: W, shape (out, in); copied, later changes have no effect.
        bias: b, shape (out,), or None.
        backend: "auto" is "onednn" for float32 on a CPU whose PyTorch has it, and "plain" otherwise. "int8" rounds W to
            8 bits per output row (symmetric) and x to 8 bits per call; CPU only.

    Raises:
        ValueError: for an unknown back end.
        RuntimeError: if the named back end cannot run this weight; it never falls back.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, backend: str = "auto") -> None:
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but got {backend!r}.")
        weight = weight.detach()
        self.bias = None if bias is None else bias.detach().clone()
        self.out_features, self.in_features = weight.shape
        if backend == "auto":
            backend = "onednn" if _runs_onednn(weight) else "plain"
        self.backend = backend
        self._packed: Any
        if backend == "plain":
            self._packed = weight.clone()
        elif backend == "onednn":
            if not _runs_onednn(weight):
                raise RuntimeError(
                    "the back end onednn needs float32 on a CPU and PyTorch built with oneDNN, but got "
                    f"{weight.dtype} on {weight.device}; use backend='plain'."
                )
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        else:
            self._packed = _pack_int8(weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Applies the map.

        Args:
            x: shape (..., in), in the dtype of the weight (float32 for int8).

        Returns:
            Tensor of shape (..., out).
        """
        if self.backend == "plain":
            return F.linear(x, self._packed, self.bias)
        if self.backend == "onednn":
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return torch.ops.quantized.linear_dynamic(x.contiguous(), self._packed, _REDUCE_RANGE)

    def parameters(self) -> tuple[Tensor, Tensor]:
        """W, shape (out, in), and b, shape (out,); of the back end "plain" alone, with zeros where there is no bias."""
        if self.backend != "plain":
            raise RuntimeError(f"only the back end plain keeps the weight as it was given, but this is {self.backend}.")
        weight: Tensor = self._packed
        return weight, weight.new_zeros(self.out_features) if self.bias is None else self.bias


# Without VNNI, fbgemm adds pairs of 8-bit products in 16 bits, which can overflow; 7 bits for x prevents that, as
# PyTorch's own default for x86 does.
_REDUCE_RANGE = True


def _runs_onednn(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _pack_int8(weight: Tensor, bias: Tensor | None) -> Any:
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise RuntimeError(
            f"8-bit weights need a float32 model on the CPU, but got {weight.dtype} on {weight.device}; "
            "compute there, or without 8-bit weights."
        )
    engines = [engine for engine in torch.backends.quantized.supported_engines if engine != "none"]
    if not engines or not hasattr(torch, "quantize_per_channel"):
        raise RuntimeError(
            f"8-bit weights need PyTorch's quantised linear layer for the CPU, but torch {torch.__version__} has the "
            f"engines {engines or 'none'}; drop the 8-bit option, or install torch 2.4 to 2.13."
        )
    scales = (weight.abs().amax(dim=1) / 127.0).clamp(min=1e-12)
    zeros = torch.zeros(weight.shape[0], dtype=torch.int64)
    with warnings.catch_warnings():
        # PyTorch announces the end of its quantised tensors; their successor for the CPU (oneDNN's qlinear) took five
        # times as long for one sentence on a CPU with AVX2 and without VNNI.
        warnings.simplefilter("ignore", UserWarning)
        rounded = torch.quantize_per_channel(weight.contiguous(), scales, zeros, axis=0, dtype=torch.qint8)
    return torch.ops.quantized.linear_prepack(rounded, bias)
