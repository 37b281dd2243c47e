"""Triton kernels of the dynamic convolution, forward and backward; ``dynamic_conv.py`` says what they compute.

A program computes a block of queries of one head. It reads their taps straight into a band matrix (queries x positions
of the window), where softmax, dropout, gate and the sum over kernel sizes are element-wise, and multiplies the band
with the values of the window in one product on the tensor cores. Nothing is written but the result and, per query and
kernel size, the logarithm of the softmax's denominator. The backward pass is one kernel as well; the gradient of the
values is gathered with a transposed band, not scattered, so there are no atomics and equal inputs give equal bits.

Range: float16, bfloat16, float32 and float64, with sums in float32 (float64 for float64); any strides; windows of up to
``MAX_WINDOW`` positions. On CPU tensors the kernels run through Triton's interpreter, with TRITON_INTERPRET=1.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: N803
# No "from __future__ import annotations": some versions of Triton look for tl.constexpr itself.

import contextlib
import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from muse_plugin.ops.dynamic_conv import Kernels, find_look_ahead

# Queries per program, and columns of its band: the next power of two of queries + window - 1. More queries need more
# registers, fewer leave more columns empty: 16 queries with 32 columns for windows that fit, 32 with 64 for up to 33
# positions. Of 18 sizes that were timed on an H200 in float16, these and the warps below were the quickest or near it.
_FEW_QUERIES, _QUERIES = 16, 32
_MAX_COLUMNS = 256
MAX_WINDOW = _MAX_COLUMNS - _QUERIES + 1
_COLUMNS_PER_WARP, _MAX_WARPS = 16, 8
# Channels per product, and values per product in all (window x channels): bands and values of usual kernels stay in
# registers, and shared memory suffices on small GPUs.
_MAX_CHANNELS = 64
_MAX_TILE = 4096
# The numbers of each kernel size reach a kernel packed in one compile-time integer, twelve bits each.
_MAX_TAPS = 4095


@triton.jit
def _load_tile(start, rows, columns, count_rows, count_columns, stride_row, stride_column):
    """Loads rows x columns; zero outside of [0, count)."""
    inside = ((rows >= 0) & (rows < count_rows))[:, None] & (columns < count_columns)[None, :]
    offsets = rows[:, None].to(tl.int64) * stride_row + columns[None, :] * stride_column
    return tl.load(start + offsets, mask=inside, other=0.0)


@triton.jit
def _store_tile(tile, start, rows, columns, count_rows, count_columns, stride_row, stride_column):
    """Stores rows x columns, but for what is outside of [0, count)."""
    inside = (rows < count_rows)[:, None] & (columns < count_columns)[None, :]
    offsets = rows[:, None].to(tl.int64) * stride_row + columns[None, :] * stride_column
    tl.store(start + offsets, tile, mask=inside)


@triton.jit
def _load_weights(
    taps, log_sum, queries, tap, inside, stride_tt, stride_tk, NORMALIZE: tl.constexpr, ACC: tl.constexpr
):
    """Loads what the taps weigh before dropout, with the denominators of the softmax known; zero where not inside."""
    offsets = queries[:, None].to(tl.int64) * stride_tt + tap * stride_tk
    if NORMALIZE:
        logits = tl.load(taps + offsets, mask=inside, other=-float("inf")).to(ACC)
        return tl.exp(logits - log_sum[:, None])
    return tl.load(taps + offsets, mask=inside, other=0.0).to(ACC)


@triton.jit
def _multiply(a, b, OPERAND: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr):
    return tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision=PRECISION, out_dtype=ACC)


@triton.jit
def _dynamic_conv_fwd_kernel(
    values, taps, gate, padding, keep, out, log_sums,
    num_heads, length, positions, channels,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_tb, stride_th, stride_tt, stride_tk,
    stride_ob, stride_oh, stride_ot, stride_od,
    stride_pb, stride_ps,
    COUNT: tl.constexpr, SIZES: tl.constexpr, FIRSTS: tl.constexpr, LEFTS: tl.constexpr, TOTAL: tl.constexpr,
    REACH: tl.constexpr, NORMALIZE: tl.constexpr, HAS_GATE: tl.constexpr, HAS_PADDING: tl.constexpr,
    HAS_KEEP: tl.constexpr, SCALE: tl.constexpr, ACC: tl.constexpr, OPERAND: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)  # among all heads of all sentences
    b, h = head // num_heads, head % num_heads
    row, column = tl.arange(0, BLOCK), tl.arange(0, COLUMNS)
    queries = tl.program_id(1) * BLOCK + row
    sources = tl.program_id(1) * BLOCK + (positions - length) - REACH + column
    real = queries < length

    band = tl.zeros([BLOCK, COLUMNS], dtype=ACC)
    for i in tl.static_range(COUNT):
        first = (FIRSTS >> (12 * i)) & 4095
        size = (SIZES >> (12 * i)) & 4095
        left = (LEFTS >> (12 * i)) & 4095
        tap = column[None, :] - row[:, None] + (left - REACH)
        inside = (tap >= 0) & (tap < size) & real[:, None]
        start = taps + b * stride_tb + h * stride_th + first * stride_tk
        offsets = queries[:, None].to(tl.int64) * stride_tt + tap * stride_tk
        if NORMALIZE:
            logits = tl.load(start + offsets, mask=inside, other=-float("inf")).to(ACC)
            top = tl.where(real, tl.max(logits, axis=1), 0.0)  # queries beyond the end have no logits: keep NaN out
            weights = tl.exp(logits - top[:, None])
            total = tl.where(real, tl.sum(weights, axis=1), 1.0)
            weights = weights / total[:, None]
            tl.store(log_sums + (head * COUNT + i) * length + queries, top + tl.log(total), mask=real)
        else:
            weights = tl.load(start + offsets, mask=inside, other=0.0).to(ACC)
        if HAS_KEEP:
            kept = tl.load(keep + (head * length + queries[:, None]) * TOTAL + first + tap, mask=inside, other=0)
            weights = tl.where(kept != 0, weights * SCALE, 0.0)
        if HAS_GATE:
            weights = weights * tl.load(gate + i).to(ACC)
        band += weights

    if HAS_PADDING:
        inside = (sources >= 0) & (sources < positions)
        padded = tl.load(padding + b * stride_pb + sources * stride_ps, mask=inside, other=1)
        sources = tl.where(padded != 0, -1, sources)  # such values count as zero, even if they are not finite
    for d0 in range(0, channels, CHANNELS):
        d = d0 + tl.arange(0, CHANNELS)
        window = _load_tile(
            values + b * stride_vb + h * stride_vh, sources, d, positions, channels, stride_vs, stride_vd
        )
        result = _multiply(band.to(window.dtype), window, OPERAND, ACC, PRECISION)
        start = out + b * stride_ob + h * stride_oh
        _store_tile(result, start, queries, d, length, channels, stride_ot, stride_od)


@triton.jit
def _dynamic_conv_bwd_kernel(
    values, taps, gate, padding, keep, grad, log_sums, grad_values, grad_taps, grad_gates,
    num_heads, length, positions, channels,
    stride_vb, stride_vh, stride_vs, stride_vd,
    stride_tb, stride_th, stride_tt, stride_tk,
    stride_gb, stride_gh, stride_gt, stride_gd,
    stride_dvb, stride_dvh, stride_dvs, stride_dvd,
    stride_dtb, stride_dth, stride_dtt, stride_dtk,
    stride_pb, stride_ps,
    COUNT: tl.constexpr, SIZES: tl.constexpr, FIRSTS: tl.constexpr, LEFTS: tl.constexpr, TOTAL: tl.constexpr,
    REACH: tl.constexpr, AHEAD: tl.constexpr, NORMALIZE: tl.constexpr, HAS_GATE: tl.constexpr,
    HAS_PADDING: tl.constexpr, HAS_KEEP: tl.constexpr, SCALE: tl.constexpr, ACC: tl.constexpr, OPERAND: tl.constexpr,
    PRECISION: tl.constexpr, NEEDS_VALUES: tl.constexpr, NEEDS_TAPS: tl.constexpr,
    BLOCK: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // num_heads, head % num_heads
    history = positions - length
    begin = tl.program_id(1) * BLOCK
    narrow, wide = tl.arange(0, BLOCK), tl.arange(0, COLUMNS)
    grad += b * stride_gb + h * stride_gh
    taps += b * stride_tb + h * stride_th
    keep += head * length * TOTAL

    if NEEDS_TAPS:
        # Gradients of the taps of a block of queries: products[r, c] is that of the tap from query r to position c.
        queries = begin + narrow
        sources = begin + history - REACH + wide
        real = queries < length
        if HAS_PADDING:
            inside = (sources >= 0) & (sources < positions)
            padded = tl.load(padding + b * stride_pb + sources * stride_ps, mask=inside, other=1)
            sources = tl.where(padded != 0, -1, sources)
        products = tl.zeros([BLOCK, COLUMNS], dtype=ACC)
        for d0 in range(0, channels, CHANNELS):
            d = d0 + tl.arange(0, CHANNELS)
            window = _load_tile(
                values + b * stride_vb + h * stride_vh, sources, d, positions, channels, stride_vs, stride_vd
            )
            own = _load_tile(grad, queries, d, length, channels, stride_gt, stride_gd)
            products += _multiply(own, tl.trans(window), OPERAND, ACC, PRECISION)
        for i in tl.static_range(COUNT):
            first = (FIRSTS >> (12 * i)) & 4095
            size = (SIZES >> (12 * i)) & 4095
            left = (LEFTS >> (12 * i)) & 4095
            tap = wide[None, :] - narrow[:, None] + (left - REACH)
            inside = (tap >= 0) & (tap < size) & real[:, None]
            log_sum = tl.zeros([BLOCK], dtype=ACC)
            if NORMALIZE:
                log_sum = tl.load(log_sums + (head * COUNT + i) * length + queries, mask=real, other=0.0)
            weights = _load_weights(
                taps + first * stride_tk, log_sum, queries, tap, inside, stride_tt, stride_tk, NORMALIZE, ACC
            )
            gradient = products
            if HAS_KEEP:
                kept = tl.load(keep + queries[:, None] * TOTAL + first + tap, mask=inside, other=0)
                gradient = tl.where(kept != 0, products * SCALE, 0.0)
            mean = tl.sum(weights * gradient, axis=1)
            if HAS_GATE:
                # One sum per block; they are added up afterwards, in a fixed order.
                place = (tl.program_id(1) * tl.num_programs(0) + head) * COUNT + i
                tl.store(grad_gates + place, tl.sum(mean, axis=0))
            if NORMALIZE:
                gradient = weights * (gradient - mean[:, None])
            if HAS_GATE:
                gradient = gradient * tl.load(gate + i).to(ACC)
            start = grad_taps + b * stride_dtb + h * stride_dth + first * stride_dtk
            offsets = queries[:, None].to(tl.int64) * stride_dtt + tap * stride_dtk
            tl.store(start + offsets, gradient, mask=inside)

    if NEEDS_VALUES:
        # Gradients of a block of positions: band[r, c] is what position c weighs for query r of those that reach it.
        sources = begin + narrow
        queries = begin - history - AHEAD + wide
        real = (queries >= 0) & (queries < length)
        band = tl.zeros([COLUMNS, BLOCK], dtype=ACC)
        for i in tl.static_range(COUNT):
            first = (FIRSTS >> (12 * i)) & 4095
            size = (SIZES >> (12 * i)) & 4095
            left = (LEFTS >> (12 * i)) & 4095
            tap = narrow[None, :] - wide[:, None] + (left + AHEAD)
            inside = (tap >= 0) & (tap < size) & real[:, None]
            log_sum = tl.zeros([COLUMNS], dtype=ACC)
            if NORMALIZE:
                log_sum = tl.load(log_sums + (head * COUNT + i) * length + queries, mask=real, other=0.0)
            weights = _load_weights(
                taps + first * stride_tk, log_sum, queries, tap, inside, stride_tt, stride_tk, NORMALIZE, ACC
            )
            if HAS_KEEP:
                kept = tl.load(keep + queries[:, None] * TOTAL + first + tap, mask=inside, other=0)
                weights = tl.where(kept != 0, weights * SCALE, 0.0)
            if HAS_GATE:
                weights = weights * tl.load(gate + i).to(ACC)
            band += weights
        zero = sources >= positions
        if HAS_PADDING:
            zero = tl.load(padding + b * stride_pb + sources * stride_ps, mask=sources < positions, other=1) != 0
        for d0 in range(0, channels, CHANNELS):
            d = d0 + tl.arange(0, CHANNELS)
            window = _load_tile(grad, queries, d, length, channels, stride_gt, stride_gd)
            result = _multiply(tl.trans(band.to(window.dtype)), window, OPERAND, ACC, PRECISION)
            result = tl.where(zero[:, None], 0.0, result)
            start = grad_values + b * stride_dvb + h * stride_dvh
            _store_tile(result, start, sources, d, positions, channels, stride_dvs, stride_dvd)


def _pack(numbers: tuple[int, ...]) -> int:
    return sum(number << (12 * i) for i, number in enumerate(numbers))


_DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64}


def _is_interpreted() -> bool:
    return not isinstance(_dynamic_conv_fwd_kernel, triton.runtime.JITFunction)


def _choose_operand(values: Tensor) -> tl.dtype:
    """What products take: the dtype of the values, but Triton's interpreter cannot multiply bfloat16."""
    return tl.float32 if values.dtype == torch.bfloat16 and _is_interpreted() else _DTYPES[values.dtype]


def _choose_precision(values: Tensor) -> str:
    """float32 on tensor cores as three products of shorter numbers, nearly as exact as one; elsewhere plainly."""
    if values.dtype != torch.float32 or not values.is_cuda or torch.version.cuda is None:
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(values.device)[0] >= 8 else "ieee"


def _plan(values: Tensor, kernels: Kernels, padding: Tensor | None) -> dict[str, Any]:
    """The compile-time arguments that both kernels have in common, and the block sizes."""
    return {
        **_choose_blocks(kernels.sizes, kernels.lefts, values.shape[3]),
        "TOTAL": kernels.taps.shape[3],
        "NORMALIZE": kernels.normalize,
        "HAS_GATE": kernels.gate is not None,
        "HAS_PADDING": padding is not None,
        "HAS_KEEP": kernels.keep is not None,
        "SCALE": kernels.scale,
        "ACC": tl.float64 if values.dtype == torch.float64 else tl.float32,
        "OPERAND": _choose_operand(values),
        "PRECISION": _choose_precision(values),
    }


@functools.cache
def _choose_blocks(sizes: tuple[int, ...], lefts: tuple[int, ...], channels: int) -> dict[str, int]:
    """What depends on nothing but the shape of the kernels, once: on a GPU, Python is what small batches wait for."""
    reach, ahead = max(lefts), find_look_ahead(sizes, lefts)
    window = reach + ahead + 1
    queries = _FEW_QUERIES if window <= _FEW_QUERIES + 1 else _QUERIES
    columns = triton.next_power_of_2(queries + window - 1)
    channels = max(16, min(_MAX_CHANNELS, _MAX_TILE // columns, triton.next_power_of_2(channels)))
    return {
        "COUNT": len(sizes),
        "SIZES": _pack(sizes),
        "FIRSTS": _pack(tuple(sum(sizes[:i]) for i in range(len(sizes)))),
        "LEFTS": _pack(lefts),
        "REACH": reach,
        "BLOCK": queries,
        "COLUMNS": columns,
        "CHANNELS": channels,
        "num_warps": min(_MAX_WARPS, columns // _COLUMNS_PER_WARP),
    }


def _new_time_first(like: Tensor, count: int) -> Tensor:
    """An empty tensor of shape (B, H, count, D), in memory (count, B, H, D) as the layers around have it."""
    batch, heads, _, channels = like.shape
    return like.new_empty(count, batch, heads, channels).permute(1, 2, 0, 3)


def _launch(
    kernel: Any,
    plan: dict[str, Any],
    rows: int,
    tensors: list[Tensor | None],
    strided: list[Tensor | None],
    **flags: Any,
) -> None:
    """Starts a kernel with one program per block of ``rows`` positions and head.

    Args:
        kernel: the kernel.
        plan: what ``_plan`` returns.
        rows: positions to divide into blocks.
        tensors: the kernel's pointers; a tensor that is missing is one that the kernel does not touch.
        strided: those with four axes whose strides it gets, in order; those of the padding, tensors[3], follow.
        **flags: further compile-time arguments.
    """
    values, taps = tensors[0], tensors[1]
    assert values is not None
    assert taps is not None
    batch, heads, positions, channels = values.shape
    pointers = [values if tensor is None else tensor for tensor in tensors]
    pointers = [tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in pointers]
    strides = [stride for tensor in strided for stride in ((0,) * 4 if tensor is None else tensor.stride())]
    strides += (0, 0) if tensors[3] is None else tensors[3].stride()
    device = torch.cuda.device(values.device) if values.is_cuda else contextlib.nullcontext()
    with device:
        kernel[(batch * heads, triton.cdiv(rows, plan["BLOCK"]))](
            *pointers, heads, taps.shape[2], positions, channels, *strides, **plan, **flags
        )


class _DynamicConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, taps: Tensor, gate: Tensor | None, kernels: Kernels, padding: Tensor | None
    ) -> Tensor:
        plan = _plan(values, kernels, padding)
        batch, heads, length, _ = taps.shape
        out = _new_time_first(values, length)
        accumulator = torch.promote_types(values.dtype, torch.float32)
        log_sums = values.new_empty(batch * heads, plan["COUNT"], length, dtype=accumulator)
        pointers = [values, taps, gate, padding, kernels.keep, out, log_sums]
        _launch(_dynamic_conv_fwd_kernel, plan, length, pointers, [values, taps, out])
        ctx.save_for_backward(values, taps, gate, padding, kernels.keep, log_sums)
        ctx.plan, ctx.ahead = plan, kernels.look_ahead
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, taps, gate, padding, keep, log_sums = ctx.saved_tensors
        plan = ctx.plan
        batch, heads, positions, _ = values.shape
        needs_values, needs_taps, needs_gate = ctx.needs_input_grad[:3]
        grad_values = _new_time_first(values, positions) if needs_values else None
        grad_taps = torch.empty_like(taps) if needs_taps or needs_gate else None
        blocks = triton.cdiv(positions, plan["BLOCK"])
        grad_gates = log_sums.new_empty(blocks, batch * heads, plan["COUNT"]) if gate is not None else None
        pointers = [values, taps, gate, padding, keep, grad, log_sums, grad_values, grad_taps, grad_gates]
        _launch(
            _dynamic_conv_bwd_kernel,
            plan,
            positions,
            pointers,
            [values, taps, grad, grad_values, grad_taps],
            AHEAD=ctx.ahead,
            NEEDS_VALUES=needs_values,
            NEEDS_TAPS=needs_taps or needs_gate,
        )
        grad_gate = None
        if needs_gate:
            assert grad_gates is not None
            grad_gate = grad_gates.sum((0, 1)).to(gate.dtype)
        return grad_values, grad_taps if needs_taps else None, grad_gate, None, None


def conv(values: Tensor, kernels: Kernels, padding: Tensor | None) -> Tensor:
    """Runs the kernels; the arguments are those of ``dynamic_conv.dynamic_conv``, checked.

    Args:
        values: shape (B, H, S, D), not empty.
        kernels: on the same device.
        padding: bool, shape (B, S), true where values count as zero; None if nowhere.

    Returns:
        Tensor of shape (B, H, T, D), in memory as (T, B, H, D).

    Raises:
        RuntimeError: on a device without Triton.
        NotImplementedError: if the window or the number of taps is too large.
    """
    if not values.is_cuda and not _is_interpreted():
        raise RuntimeError(
            f"the back end triton needs a GPU, but got tensors on {values.device}; use backend='auto', or set "
            "TRITON_INTERPRET=1 before the program starts to try the kernels on the CPU."
        )
    window, taps = max(kernels.lefts) + kernels.look_ahead + 1, kernels.taps
    if window > MAX_WINDOW or taps.shape[3] > _MAX_TAPS:
        raise NotImplementedError(
            f"the back end triton takes windows of up to {MAX_WINDOW} positions and {_MAX_TAPS} taps in all, but got "
            f"{window} and {taps.shape[3]}; use backend='band'."
        )
    return _DynamicConv.apply(values, taps, kernels.gate, kernels, padding)  # type: ignore[no-untyped-call]
