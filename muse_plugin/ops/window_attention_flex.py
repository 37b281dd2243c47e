"""Attention within windows by PyTorch's FlexAttention: the back end "flex" of ``window_attention.py``.

On a GPU it compiles a kernel that skips blocks of keys outside every window. Elsewhere it is computed plainly: a check
of the meaning, not a quick way.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    first: Tensor,
    last: Tensor,
    slopes: Tensor | None,
    key_padding_mask: Tensor | None,
) -> Tensor:
    """See ``window_attention``; a query that sees no key gets any finite numbers.

    Args:
        query: shape (B, H, T, D).
        key: shape (B, H, S, D).
        value: shape (B, H, S, D).
        first: lowest offset, shape (B or 1, H), on the device of ``query``, as is all that follows.
        last: highest offset.
        slopes: shape (H,), or None.
        key_padding_mask: shape (B, S), or None.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    batch, heads, length, _ = query.shape
    positions = key.shape[2]
    firsts, lasts = (x.expand(batch, heads).contiguous() for x in (first, last))

    def sees(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        offset = s - (t + positions - length)
        within = (offset >= firsts[b, h]) & (offset <= lasts[b, h])
        return within if key_padding_mask is None else within & ~key_padding_mask[b, s]

    def penalise(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        assert slopes is not None
        return score - slopes[h] * (s - (t + positions - length)).abs()

    on_gpu = query.device.type == "cuda"
    mask = create_block_mask(sees, batch, heads, length, positions, device=str(query.device), _compile=on_gpu)
    result: Tensor = _get_kernel(on_gpu)(
        query, key, value, score_mod=None if slopes is None else penalise, block_mask=mask
    )
    return torch.nan_to_num(result)


@functools.cache
def _get_kernel(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention
