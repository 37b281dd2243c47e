"""Dynamic depth-wise convolution: each position brings its own kernel, shared by the channels of a head.

Source: Wu et al. 2019 (arXiv:1901.10430) as used by Zhao et al. 2019 (arXiv:1911.09483, section 2). The meaning is
written down once, in ``_reference``; the other back ends compute the same numbers faster. ``modules/gated_conv.py``
predicts the taps. Read next: ``dynamic_conv_band.py``, ``dynamic_conv_cpu.py``, ``dynamic_conv_triton.py`` and
``dynamic_conv_fairseq.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.ops import dynamic_conv_fairseq
from muse_plugin.ops.dropout import draw_mask
from muse_plugin.ops.dynamic_conv_band import multiply_band
from muse_plugin.ops.dynamic_conv_cpu import sum_rows
from muse_plugin.ops.softmax import softmax

logger = logging.getLogger(__name__)

_HAS_TRITON = importlib.util.find_spec("triton") is not None

BACKENDS = ("auto", "reference", "band", "taps", "triton", "fairseq_cuda")

# On a CPU, "band" is faster than "taps" in sentences up to 2 * window - 5, and for small jobs, where the latter take
# longer to prepare than to compute (float32, 4 heads of 96 channels, one thread, torch 2.13).
_POSITIONS_PER_TAP, _POSITIONS_LESS = 2, 5
_FEW_VALUES = 100_000
# Where neither "taps" nor "triton" runs: the band matrix costs T products per channel, the reference K passes over the
# values. They were equal at about this many positions per tap on a CPU; on a GPU this is a guess.
_BAND_POSITIONS_PER_TAP = 25


def dynamic_conv(
    values: Tensor,
    taps: Tensor,
    *,
    padding_left: int | Sequence[int],
    kernel_sizes: Sequence[int] | None = None,
    gate: Tensor | None = None,
    normalize: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """Convolves over time with a kernel per position and head.

    ``out[b, h, t] = sum_i gate[i] * sum_j taps_i[b, h, t, j] * values[b, h, S - T + t + j - padding_left[i]]``, where
    values at padding and outside ``0 .. S-1`` count as zero. Lost taps are not made up for: a kernel is never
    renormalised at the ends. Several sizes cost little more than the largest: their kernels are added up first.

    Args:
        values: shape (B, H, S, D), any float dtype and strides. The last T of the S positions belong to the queries;
            the S - T before them are history (step-by-step decoding), so S >= T.
        taps: shape (B, H, T, K), one kernel per query; several kernel sizes are side by side in the last axis.
        padding_left: taps that are left of the query, in [0, size - 1]: size - 1 is causal, size // 2 is centred for an
            odd size. One number, or one per kernel size.
        kernel_sizes: the sizes, each >= 1, which add up to K; None for the single size K.
        gate: what each kernel size weighs, shape (number of sizes,); None for 1.
        normalize: the taps are logits: each kernel goes through a softmax, in float32 or float64.
        key_padding_mask: bool, shape (B, S), true where values count as zero.
        dropout: probability in [0, 1) of dropping a tap, after the softmax; the others grow by 1 / (1 - dropout). Drawn
            by ``dropout.draw_mask`` in the same way for every back end. Pass 0 when not training.
        backend: a name from ``BACKENDS``. "auto" chooses by device and size: on a GPU triton, then fairseq_cuda, then
            band or reference (an order that was not measured); a named back end that cannot run raises.

            - reference: one shifted copy of the values per tap, the definition.
            - band: taps spread over a (T, S) matrix, then one batched product; for a handful of queries.
            - taps: weighted sums of rows with a backward of their own; CPU only.
            - triton: one fused kernel forward and one backward, NVIDIA GPUs only.
            - fairseq_cuda: fairseq's own kernels, where the user has built them; some sizes only.

    Returns:
        Tensor of shape (B, H, T, D) in the dtype of ``values``.

    Raises:
        ValueError: if shapes do not fit, a number is outside its range, or for an unknown back end.
        ImportError: if the named back end needs a package that is missing.
        RuntimeError: if the named back end cannot run on this device.
        NotImplementedError: if the named back end has no kernel for this size or dtype.
    """
    sizes = (taps.shape[-1],) if kernel_sizes is None else tuple(kernel_sizes)
    lefts = (padding_left,) * len(sizes) if isinstance(padding_left, int) else tuple(padding_left)
    _check(values, taps, sizes, lefts, gate, key_padding_mask, dropout, backend)
    # Drop history that no tap can reach.
    history = values.shape[2] - taps.shape[2]
    unreached = history - min(history, max(lefts))
    values = values[:, :, unreached:]
    padding = None if key_padding_mask is None else key_padding_mask[:, unreached:]
    keep, scale = (None, 1.0) if dropout == 0 else draw_mask(taps.shape, dropout, taps.device)
    kernels = Kernels(taps, sizes, lefts, gate, normalize, keep, scale)

    if backend == "auto":
        backend = _choose_backend(values, kernels)
    if taps.numel() == 0:
        backend = "reference"  # nothing to compute
    return _run(backend, values, kernels, padding)


class Kernels(NamedTuple):
    """What a back end needs to know about the kernels; see ``dynamic_conv``.

    Attributes:
        taps: shape (B, H, T, K).
        sizes: kernel sizes, which add up to K.
        lefts: taps left of the query, per size.
        gate: shape (number of sizes,), or None.
        normalize: the taps are logits.
        keep: bool, of the shape of ``taps``: false where a tap is dropped; None without dropout.
        scale: by how much the others grow.
    """

    taps: Tensor
    sizes: tuple[int, ...]
    lefts: tuple[int, ...]
    gate: Tensor | None
    normalize: bool
    keep: Tensor | None
    scale: float

    @property
    def look_ahead(self) -> int:
        """See ``find_look_ahead``."""
        return find_look_ahead(self.sizes, self.lefts)


def find_look_ahead(sizes: tuple[int, ...], lefts: tuple[int, ...]) -> int:
    """The largest number of taps right of the query."""
    return max(size - 1 - left for size, left in zip(sizes, lefts, strict=True))


def _check(
    values: Tensor,
    taps: Tensor,
    sizes: tuple[int, ...],
    lefts: tuple[int, ...],
    gate: Tensor | None,
    key_padding_mask: Tensor | None,
    dropout: float,
    backend: str,
) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but got {backend!r}.")
    if values.dim() != 4 or taps.dim() != 4 or values.shape[:2] != taps.shape[:2] or values.shape[2] < taps.shape[2]:
        raise ValueError(
            "values must have shape (B, H, S, D) and taps (B, H, T, K) with S >= T, "
            f"but got {tuple(values.shape)} and {tuple(taps.shape)}."
        )
    if not sizes or min(sizes) < 1 or sum(sizes) != taps.shape[3]:
        raise ValueError(
            "kernel_sizes must be >= 1 and add up to the last axis of taps, "
            f"but got {list(sizes)} and taps of shape {tuple(taps.shape)}."
        )
    if len(lefts) != len(sizes):
        raise ValueError(f"padding_left must hold one number per kernel size, but got {list(lefts)} for {list(sizes)}.")
    for left, size in zip(lefts, sizes, strict=True):
        if not 0 <= left < size:
            raise ValueError(f"padding_left must lie in [0, {size - 1}] for a kernel of {size} taps, but got {left}.")
    if gate is not None and tuple(gate.shape) != (len(sizes),):
        raise ValueError(
            f"gate must have shape ({len(sizes)},), one weight per kernel size, but got {tuple(gate.shape)}."
        )
    if key_padding_mask is not None and (
        key_padding_mask.dtype != torch.bool or key_padding_mask.shape != (values.shape[0], values.shape[2])
    ):
        raise ValueError(
            f"key_padding_mask must be bool of shape (B, S) = {(values.shape[0], values.shape[2])}, "
            f"but got {key_padding_mask.dtype} of shape {tuple(key_padding_mask.shape)}."
        )
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must lie in [0, 1), but got {dropout}.")


def _choose_backend(values: Tensor, kernels: Kernels) -> str:
    length, kernel_size = kernels.taps.shape[2:]
    # torch.compile sees through PyTorch's operations alone.
    device = "" if torch.compiler.is_compiling() else values.device.type
    if device == "cpu":
        window = max(kernels.lefts) + 1 + kernels.look_ahead
        is_quick = length <= _POSITIONS_PER_TAP * window - _POSITIONS_LESS or values.numel() <= _FEW_VALUES
        return "band" if is_quick else "taps"
    if device == "cuda":
        if _HAS_TRITON and values.dtype != torch.float64 and _fits_triton(kernels):
            return "triton"
        if _fits_fairseq(values, kernels):
            return "fairseq_cuda"
        if not _HAS_TRITON and values.dtype != torch.float64:
            _log_missing_triton()
    return "band" if length <= _BAND_POSITIONS_PER_TAP * kernel_size else "reference"


def can_run(backend: str, values: Tensor) -> bool:
    """Whether a back end runs on the device and with the dtype of ``values``; true for names that there are not."""
    if backend == "taps":
        return values.device.type == "cpu"
    if backend == "triton":
        return _HAS_TRITON and values.device.type == "cuda"
    if backend == "fairseq_cuda":
        has_dtype = values.dtype in dynamic_conv_fairseq.DTYPES
        return values.device.type == "cuda" and has_dtype and dynamic_conv_fairseq.is_built()
    return True


def _fits_triton(kernels: Kernels) -> bool:
    from muse_plugin.ops.dynamic_conv_triton import MAX_WINDOW

    return max(kernels.lefts) + kernels.look_ahead < MAX_WINDOW


def _fits_fairseq(values: Tensor, kernels: Kernels) -> bool:
    # They want as many queries as positions: in a step of decoding, most of their work would be for nothing.
    if values.shape[2] != kernels.taps.shape[2]:
        return False
    left = max(kernels.lefts)
    has_kernel = dynamic_conv_fairseq.fits(values, left + 1 + kernels.look_ahead, left)
    return has_kernel and dynamic_conv_fairseq.is_built()


@functools.cache
def _log_missing_triton() -> None:
    logger.info("dynamic convolutions run without their GPU kernels; for those, install Triton: pip install triton")


def _run(backend: str, values: Tensor, kernels: Kernels, padding: Tensor | None) -> Tensor:
    if backend == "triton":
        if not _HAS_TRITON:
            raise ImportError(
                "the back end triton needs Triton, which is not installed; run pip install triton (Linux only), "
                "or use backend='auto'."
            )
        from muse_plugin.ops import dynamic_conv_triton

        return dynamic_conv_triton.conv(values, kernels, padding)
    if backend == "reference":
        return _reference(values if padding is None else values.masked_fill(padding[:, None, :, None], 0.0), kernels)
    if backend == "taps" and values.device.type != "cpu":
        raise RuntimeError(f"the back end taps runs on the CPU only, but got {values.device}; use backend='auto'.")
    merged, left = _merge(kernels, values.dtype)
    if backend == "fairseq_cuda":
        values = values if padding is None else values.masked_fill(padding[:, None, :, None], 0.0)
        return dynamic_conv_fairseq.conv(values, merged, left)
    first = left - (values.shape[2] - merged.shape[2])
    return (multiply_band if backend == "band" else sum_rows)(values, merged, first, padding)


def _reference(values: Tensor, kernels: Kernels) -> Tensor:
    """Adds up one shifted copy of the values per kernel and tap: the definition, word for word."""
    length = kernels.taps.shape[2]
    history = values.shape[2] - length
    out = torch.zeros_like(values[:, :, history:])
    for i, weights in enumerate(_weigh(kernels, values.dtype)):
        size, left = kernels.sizes[i], kernels.lefts[i]
        first = history - left  # of the window of query 0
        before, after = max(-first, 0), size - 1 - left
        padded = F.pad(values, (0, 0, before, after))
        for j in range(size):
            start = first + before + j
            out = out + weights[..., j : j + 1] * padded[:, :, start : start + length]
    return out


def _weigh(kernels: Kernels, dtype: torch.dtype) -> list[Tensor]:
    """Softmax, dropout and gate: what each tap weighs, per kernel size."""
    weights = list(torch.split(kernels.taps, list(kernels.sizes), dim=-1))
    if kernels.normalize:
        weights = [softmax(logits) for logits in weights]
    if kernels.keep is not None:
        # As bytes: PyTorch turns them into floats four times as fast as bools, on a CPU.
        keep = torch.split(kernels.keep.view(torch.int8), list(kernels.sizes), dim=-1)
        weights = [w * (k.to(w.dtype) * kernels.scale) for w, k in zip(weights, keep, strict=True)]
    if kernels.gate is not None:
        weights = [w * g for w, g in zip(weights, kernels.gate, strict=True)]
    return [w.to(dtype) for w in weights]


def _merge(kernels: Kernels, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Adds up the kernels of several sizes, which convolution is linear in; returns the sum and its left padding."""
    left, right = max(kernels.lefts), kernels.look_ahead
    pads = [(left - own, right - (size - 1 - own)) for size, own in zip(kernels.sizes, kernels.lefts, strict=True)]
    weights = zip(_weigh(kernels, dtype), pads, strict=True)
    return functools.reduce(operator.add, (F.pad(own, pad) if any(pad) else own for own, pad in weights)), left
