"""Dynamic depth-wise convolution: each position brings its own kernel, shared by the channels of a head.

Source: Wu et al. 2019 (arXiv:1901.10430) as used by Zhao et al. 2019 (arXiv:1911.09483, section 2). The meaning is
written down once, in ``_reference``; the other back ends compute the same numbers faster. ``modules/gated_conv.py``
predicts the taps and merges several kernel sizes into one call.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BACKENDS = ("auto", "reference", "band")

# The band matrix costs T products per channel, the loop of the reference K passes over the values. Forward and backward
# in float32 on two CPU threads are equal at about this many positions per tap: near T = 75 for 3 taps, 375 for 15, 775
# for 31 (3,000 tokens, 4 heads of 96 channels, torch 2.13).
_BAND_POSITIONS_PER_TAP = 25


def dynamic_conv(values: Tensor, taps: Tensor, *, padding_left: int, backend: str = "auto") -> Tensor:
    """Convolves over time with a kernel per position and head.

    ``out[b, h, t] = sum_j taps[b, h, t, j] * values[b, h, S - T + t + j - padding_left]``, where values outside
    ``0 .. S-1`` count as zero. Lost taps are not made up for: a kernel is never renormalised at the ends.

    Args:
        values: shape (B, H, S, D), any float dtype and strides. The last T of the S positions belong to the queries;
            the S - T before them are history (step-by-step decoding), so S >= T.
        taps: shape (B, H, T, K), one kernel per query, K >= 1; used as given (softmax is the caller's business).
        padding_left: taps that lie left of the query, in [0, K-1]: K - 1 is causal, K // 2 is centred for odd K.
        backend: "auto" chooses by length; a name from ``BACKENDS`` forces that formulation.

    Returns:
        Tensor of shape (B, H, T, D) in the dtype of ``values``.

    Raises:
        ValueError: if the shapes do not fit, if ``padding_left`` lies outside the kernel, or for an unknown back end.
    """
    _check(values, taps, padding_left, backend)
    length, kernel_size = taps.shape[2], taps.shape[3]
    history = values.shape[2] - length
    # Drop history that no tap can reach, then make the window of query t start at padded position t.
    reach = min(history, padding_left)
    values = values[:, :, history - reach :]
    left, right = padding_left - reach, kernel_size - 1 - padding_left
    if backend == "auto":
        backend = "band" if length <= _BAND_POSITIONS_PER_TAP * kernel_size else "reference"
    if backend == "band":
        return _band(values, taps, left)
    return _reference(F.pad(values, (0, 0, left, right)), taps)


def _check(values: Tensor, taps: Tensor, padding_left: int, backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but got {backend!r}.")
    if values.dim() != 4 or taps.dim() != 4 or values.shape[:2] != taps.shape[:2] or values.shape[2] < taps.shape[2]:
        raise ValueError(
            "values must have shape (B, H, S, D) and taps (B, H, T, K) with S >= T, "
            f"but got {tuple(values.shape)} and {tuple(taps.shape)}."
        )
    if not 0 <= padding_left < taps.shape[3]:
        raise ValueError(
            f"padding_left must lie in [0, {taps.shape[3] - 1}] for a kernel of {taps.shape[3]} taps, "
            f"but got {padding_left}."
        )


def _reference(padded: Tensor, taps: Tensor) -> Tensor:
    """Adds up one shifted copy of the values per tap: the definition, word for word."""
    length = taps.shape[2]
    out = torch.zeros_like(padded[:, :, :length])
    for j in range(taps.shape[3]):
        out = out + taps[..., j : j + 1] * padded[:, :, j : j + length]
    return out


def _band(values: Tensor, taps: Tensor, left: int) -> Tensor:
    """Spreads the taps over a (T, S) band matrix and multiplies once; cheap while sentences are short."""
    batch, heads, length, kernel_size = taps.shape
    if length == 1:
        band = taps
    else:
        # Rows of width T + K, read back with width T + K - 1: each row moves one column further right.
        width = length + kernel_size - 1
        skewed = F.pad(taps, (0, length)).reshape(batch, heads, length * (width + 1))
        band = skewed[..., : length * width].reshape(batch, heads, length, width)
    return torch.matmul(band[..., left : left + values.shape[2]], values)
