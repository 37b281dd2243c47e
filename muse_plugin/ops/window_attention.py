"""Attention limited to a window per head and per sentence, with an optional cost of distance, and its back ends.

    out[b, h, t] = sum_s softmax_s( q[b, h, t] . k[b, h, s] / sqrt(D) - slope[h] * |d| ) v[b, h, s]

over the keys s that are no padding and whose offset d = s - (t + S - T) is in first[b, h] .. last[b, h]. The last of
the T queries is at the last of the S keys. A query that sees no key gets zeros; one that is at padding gets
any finite numbers.

Back ends, all exact:

- "reference": the formula, with a (B, H, T, S) matrix of weights.
- "dense": PyTorch's fused attention with a mask.
- "taps" (CPU): one dot product per query and key of the window, as in the dynamic convolution; for narrow windows.
- "blocks": PyTorch's fused attention between blocks of queries and the keys that their windows reach.
- "auto": heads of similar windows together, each group by the quickest of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.ops.dropout import dropout as drop
from muse_plugin.ops.dynamic_conv_cpu import dot_rows, sum_rows
from muse_plugin.ops.eager_cpu import runs_eagerly_on_cpu
from muse_plugin.ops.fused_attention import fused_attention
from muse_plugin.ops.softmax import softmax

BACKENDS = ("auto", "reference", "dense", "taps", "blocks")
# An offset beyond every sentence.
UNLIMITED = 1 << 30

# Queries that share a block of keys.
_BLOCK = 32
# On a CPU, "taps" costs as much per key as fused attention per this many keys.
_KEYS_PER_TAP = 6
# A fused product with blocks has to save at least this share of the keys.
_WORTH_BLOCKS = 0.7
# On a GPU, several groups of heads take longer than one product over this many positions: with five scales 9.0 ms
# against 3.5 for 400, 11.0 against 6.3 for 800 where the sentences are equally long and share one mask (three layers,
# float16, H200).
_FEW_ON_GPU = 512


class Windows(NamedTuple):
    """Which keys queries may see, by offset (key position minus query position), and what distance costs.

    Attributes:
        first: lowest offset, int64, shape (B or 1, H); at least -``UNLIMITED``.
        last: highest offset, the same; at most ``UNLIMITED``.
        slopes: what a logit loses per position of distance, shape (H,), or None for nothing.
    """

    first: Tensor
    last: Tensor
    slopes: Tensor | None = None

    def intersect(self, other: Windows) -> Windows:
        """What both show; slopes add up."""
        slopes = other.slopes if self.slopes is None else self.slopes
        if self.slopes is not None and other.slopes is not None:
            slopes = self.slopes + other.slopes
        return Windows(torch.maximum(self.first, other.first), torch.minimum(self.last, other.last), slopes)

    def take(self, start: int, end: int) -> Windows:
        """Those of heads start .. end - 1."""
        slopes = None if self.slopes is None else self.slopes[start:end]
        return Windows(self.first[:, start:end], self.last[:, start:end], slopes)


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    windows: Windows,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """Attends within windows.

    Args:
        query: shape (B, H, T, D). Fewer heads than ``value`` has: the first ones, whose window is one token in every
            sentence, need no queries and keys, and were left out.
        key: shape (B, H, S, D), S >= T; as many heads as ``query``.
        value: shape (B, H, S, D).
        windows: see ``Windows``. On the CPU, unless this is compiled, their ranges decide which way is quickest. Ranges
            on a GPU are never asked for: reading them would make the CPU wait.
        key_padding_mask: bool, shape (B, S), true at padding.
        dropout: probability of dropping a weight; the caller passes 0 outside training.
        backend: a name from ``BACKENDS``; a named one that cannot run raises.

    Returns:
        Tensor of shape (B, H, T, D).

    Raises:
        ValueError: if shapes do not fit or ``backend`` is unknown.
        RuntimeError: if the named back end does not run on this device.
    """
    heads = value.shape[1]
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but got {backend!r}.")
    if windows.first.shape[1] != heads or windows.last.shape[1] != heads:
        raise ValueError(
            f"windows must have one range per head, but got first {tuple(windows.first.shape)} and last "
            f"{tuple(windows.last.shape)} for {heads} heads."
        )
    if query.shape[2] > key.shape[2]:
        raise ValueError(f"there must be as many keys as queries, but got {key.shape[2]} and {query.shape[2]}.")
    if backend == "taps" and query.device.type != "cpu":
        raise RuntimeError(f"the back end taps runs on the CPU only, but got {query.device}; use backend='auto'.")
    identity_heads = heads - query.shape[1]
    alone = value[:, :identity_heads, value.shape[2] - query.shape[2] :]
    parts = [_drop_alone(alone, windows, dropout)] if identity_heads > 0 else []
    if identity_heads < heads:
        rest = value[:, identity_heads:], windows.take(identity_heads, heads)
        parts += _attend(query, key, *rest, key_padding_mask, dropout, backend)
    return _side_by_side(parts)


def _side_by_side(parts: list[Tensor]) -> Tensor:
    """Joins heads; in memory as (T, B, H, D), which is how the output projection reads them."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([part.permute(2, 0, 1, 3) for part in parts], dim=2).permute(1, 2, 0, 3)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    windows: Windows,
    key_padding_mask: Tensor | None,
    dropout: float,
    backend: str,
) -> list[Tensor]:
    """See ``window_attention``; the heads in several parts."""
    if backend in ("reference", "dense") or not runs_eagerly_on_cpu(windows.first):
        # One way for all heads, which never asks for the numbers in ``windows``.
        compute = _reference if backend == "reference" else _dense
        out = compute(query, key, value, _move(windows, query.device), key_padding_mask, dropout)
        return [_zero_rows_without_keys(out, windows, key.shape[2], key_padding_mask)]
    if query.numel() == 0:
        return [torch.zeros_like(query)]
    groups = _group(windows, query, key.shape[2], backend)
    parts = []
    for start, end, low, high, compute in groups:
        own = windows.take(start, end)
        inputs = (x[:, start:end] for x in (query, key, value))
        part = compute(*inputs, own, key_padding_mask, dropout, low, high)
        parts.append(_zero_rows_without_keys(part, own, key.shape[2], key_padding_mask))
    return parts


class _Group(NamedTuple):
    """Neighbouring heads that are computed together.

    Attributes:
        start: the first head.
        end: one after the last head.
        low: lowest offset that any of them sees in any sentence.
        high: highest.
        compute: how.
    """

    start: int
    end: int
    low: int
    high: int
    compute: Callable[..., Tensor]


def _group(windows: Windows, query: Tensor, positions: int, backend: str) -> list[_Group]:
    """Decides for every head how it is computed, and joins neighbours that are computed alike."""
    length, on_cpu = query.shape[2], query.device.type == "cpu"
    lows = windows.first.amin(0).clamp(min=1 - positions).tolist()
    highs = windows.last.amax(0).clamp(max=length - 1).tolist()
    named = {"taps": _taps, "blocks": _blocks}.get(backend)
    chosen: list[_Group] = []
    for head, (low, high) in enumerate(zip(lows, highs, strict=True)):
        low, high = min(low, length - 1), max(high, 1 - positions)
        high = max(low, high)  # an empty window
        compute = named or _choose(low, high, length, positions, on_cpu)
        last = chosen[-1] if chosen else None
        if last is not None and last.compute is compute and _go_together(last, low, high):
            chosen[-1] = last._replace(end=head + 1, low=min(last.low, low), high=max(last.high, high))
        else:
            chosen.append(_Group(head, head + 1, low, high, compute))
    return chosen


def _choose(low: int, high: int, length: int, positions: int, on_cpu: bool) -> Callable[..., Tensor]:
    if length == 1 < positions or (not on_cpu and positions <= _FEW_ON_GPU):
        return _dense  # a step of decoding, or little work: one product for all heads
    if low == high == 0 and length == positions:
        return _copy_values
    window = high - low + 1
    block = window + _BLOCK - 1
    cheapest = min(block / _WORTH_BLOCKS, positions)
    if on_cpu and window * _KEYS_PER_TAP < cheapest:
        return _taps
    return _blocks if block < _WORTH_BLOCKS * positions else _dense


def _go_together(group: _Group, low: int, high: int) -> bool:
    """Whether one more head may join: a dense product costs the same, others as much as their widest window."""
    if group.compute in (_dense, _copy_values):
        return True
    together = max(group.high, high) - min(group.low, low) + 1
    return together <= 2 * min(high - low + 1, group.high - group.low + 1)


def _move(windows: Windows, device: torch.device) -> Windows:
    slopes = None if windows.slopes is None else windows.slopes.to(device)
    return Windows(windows.first.to(device), windows.last.to(device), slopes)


def _offsets(length: int, positions: int, device: torch.device) -> Tensor:
    """Key position minus query position, shape (T, S)."""
    at = torch.arange(positions, device=device)
    return at - at[positions - length :, None]


def _make_bias(windows: Windows, offsets: Tensor, hidden: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What is added to logits.

    Args:
        windows: on the device of ``offsets``.
        offsets: broadcastable to (B or 1, H, ...) from the right, two axes.
        hidden: bool, true at keys that are not seen anyway; broadcastable, too. None if there are none.
        dtype: of the logits.

    Returns:
        Finite: half the lowest number where nothing is seen.
    """
    hides = (offsets < windows.first[:, :, None, None]) | (offsets > windows.last[:, :, None, None])
    if hidden is not None:
        hides = hides | hidden
    lowest = torch.finfo(dtype).min / 2
    if windows.slopes is None:
        return torch.zeros(hides.shape, dtype=dtype, device=hides.device).masked_fill_(hides, lowest)
    wide = torch.promote_types(dtype, torch.float32)  # what is finite there may not be in half precision
    bias = -windows.slopes.to(wide)[:, None, None] * offsets.abs()
    return bias.clamp(min=lowest).to(dtype).masked_fill(hides, lowest)


def _find_hidden(at: Tensor, positions: int, padding: Tensor | None) -> Tensor:
    """Whether there is no key at these positions, or padding: shape (B or 1, *at.shape)."""
    hidden = (at < 0) | (at >= positions)
    return hidden[None] if padding is None else hidden | padding[:, at.clamp(0, positions - 1)]


def _reference(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, padding: Tensor | None, dropout: float, *_: int
) -> Tensor:
    dtype = torch.promote_types(query.dtype, torch.float32)
    logits = torch.matmul(query.to(dtype), key.to(dtype).transpose(2, 3)) / math.sqrt(query.shape[3])
    hidden = None if padding is None else padding[:, None, None]
    logits = logits + _make_bias(windows, _offsets(query.shape[2], key.shape[2], query.device), hidden, dtype)
    weights = drop(torch.softmax(logits, dim=-1), dropout)
    return torch.matmul(weights, value.to(dtype)).to(value.dtype)


def _dense(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, padding: Tensor | None, dropout: float, *reach: int
) -> Tensor:
    length, positions = query.shape[2], key.shape[2]
    if reach:  # keys before every window are left out
        start = max(0, positions - length + min(0, reach[0]))
        key, value, positions = key[:, :, start:], value[:, :, start:], positions - start
        padding = None if padding is None else padding[:, start:]
    hidden = None if padding is None else padding[:, None, None]
    windows = _move(windows, query.device)
    bias = _make_bias(windows, _offsets(length, positions, query.device), hidden, query.dtype)
    return fused_attention(query, key, value, bias=bias, dropout=dropout)


def _copy_values(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, padding: Tensor | None, dropout: float, *_: int
) -> Tensor:
    """A window of one token: its weight is 1, whatever the query."""
    return _drop_alone(value, windows, dropout)


def _drop_alone(value: Tensor, windows: Windows, dropout: float) -> Tensor:
    """Values (B, H, T, D) times their one weight, 1, which is dropped as any other."""
    if windows.slopes is not None and windows.slopes.requires_grad:
        value = value + 0.0 * windows.slopes.sum()  # DistributedDataParallel waits for gradients
    return value if dropout == 0 else value * drop(value.new_ones(*value.shape[:3], 1), dropout)


def _taps(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, padding: Tensor | None, dropout: float, *reach: int
) -> Tensor:
    low, high = reach
    length, positions, size = query.shape[2], key.shape[2], high - low + 1
    left = -(low + positions - length)  # the window of query t begins at position t - left
    if not -positions < left < length + size:
        return torch.zeros_like(query)
    logits = dot_rows(query * (1.0 / math.sqrt(query.shape[3])), key, left, size)
    at = torch.arange(length)[:, None] + torch.arange(size) - left
    hidden = _find_hidden(at, positions, padding)[:, None]
    bias = _make_bias(windows, torch.arange(low, high + 1)[None], hidden, logits.dtype)
    weights = drop(softmax(logits + bias), dropout)
    return sum_rows(value, weights, left, None)


def _blocks(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, padding: Tensor | None, dropout: float, *reach: int
) -> Tensor:
    low, high = reach
    batch, heads, length, channels = query.shape
    positions, device = key.shape[2], query.device
    blocks = -(-length // _BLOCK)
    width = _BLOCK + high - low  # keys of a block
    before = -(low + positions - length)  # of the first query's window before the first key
    after = blocks * _BLOCK + high - low - before - positions
    queries = F.pad(query, (0, 0, 0, blocks * _BLOCK - length)).reshape(batch * heads, blocks, _BLOCK, channels)
    keys, values = (
        F.pad(x, (0, 0, before, after)).flatten(0, 1).unfold(1, width, _BLOCK).transpose(2, 3) for x in (key, value)
    )  # (B * H, blocks, width, D): views of overlapping slices

    alike, windows = _alike(windows), _move(windows, device)  # on a GPU, looking at them would wait for it
    at = torch.arange(0, blocks * _BLOCK, _BLOCK, device=device)[:, None] + torch.arange(width, device=device) - before
    hidden = _find_hidden(at, positions, padding)  # (B or 1, blocks, width)
    offsets = torch.arange(width, device=device) - torch.arange(_BLOCK, device=device)[:, None] + low
    lowest = torch.finfo(query.dtype).min / 4  # twice that is still finite
    outside = torch.zeros(hidden.shape, dtype=query.dtype, device=device).masked_fill_(hidden, lowest)[:, :, None]
    within = _make_bias(windows, offsets, None, query.dtype).clamp(min=lowest)  # (B or 1, H, block, width)
    if alike:
        within = within[:, :1]
    if within.shape[1] == 1 and len(within) == len(outside) == 1:
        bias = within + outside  # (1, blocks, block, width) for all sentences and heads
        out = fused_attention(queries, keys, values, bias=bias, dropout=dropout)
        out = out.reshape(batch, heads, blocks * _BLOCK, channels)
    else:
        parts = [x.view(batch, heads, *x.shape[1:]) for x in (queries, keys, values)]
        bias, outs = None, []
        for head in range(heads):
            if bias is None or within.shape[1] > 1:
                bias = within[:, min(head, within.shape[1] - 1), None] + outside
            q, k, v = (x[:, head] for x in parts)
            outs.append(fused_attention(q, k, v, bias=bias, dropout=dropout))
        out = torch.stack(outs, dim=1).flatten(2, 3)
    return out[:, :, :length]


def _alike(windows: Windows) -> bool:
    """Whether all heads have the same window and slope."""
    same = bool((windows.first == windows.first[:, :1]).all() and (windows.last == windows.last[:, :1]).all())
    if windows.slopes is None or not same:
        return same
    return not windows.slopes.requires_grad and bool((windows.slopes == windows.slopes[0]).all())


def _zero_rows_without_keys(out: Tensor, windows: Windows, positions: int, padding: Tensor | None) -> Tensor:
    """Zeros for queries that see no key. Where a window holds the query itself, every real query sees one."""
    device = out.device
    if runs_eagerly_on_cpu(windows.first) and bool(((windows.first <= 0) & (windows.last >= 0)).all()):
        return out
    first, last = windows.first.to(device)[:, :, None], windows.last.to(device)[:, :, None]
    at = torch.arange(positions - out.shape[2], positions, device=device)
    begin, end = (at + first).clamp(0, positions), (at + last + 1).clamp(0, positions)  # (B or 1, H, T)
    if padding is None:
        blind = end <= begin
    else:
        # How many real keys there are before each position.
        before = F.pad((~padding).long().cumsum(1), (1, 0))[:, None].expand(-1, out.shape[1], -1)
        begin, end = (x.expand(padding.shape[0], -1, -1) for x in (begin, end))
        blind = before.gather(2, end) <= before.gather(2, begin)
    return out.masked_fill(blind[..., None], 0.0)
