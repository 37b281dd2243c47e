"""The dynamic convolution under torch.compile: operators that it calls as they are instead of looking inside.

Their code depends on the length of sentences (CPU), which would be compiled again for each, or is compiled already
(Triton). Results and gradients have time as the first axis in memory, as the layers around; a second operator computes
the gradients from the inputs of the first. ``dynamic_conv.py`` says what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from muse_plugin.ops.dynamic_conv_band import multiply_band, multiply_band_gradients, prefers_band
from muse_plugin.ops.dynamic_conv_cpu import sum_rows, sum_rows_gradients


def convolve_on_cpu(values: Tensor, taps: Tensor, left: int, padding: Tensor | None, backend: str) -> Tensor:
    """The back end "band" or "taps"; every other name lets the length decide, when the code runs.

    Args:
        values: shape (B, H, S, D), on the CPU.
        taps: shape (B, H, T, K), one kernel per query, used as given.
        left: the window of query t begins at position t - left.
        padding: bool, shape (B, S), true where the values count as zero; None if nowhere.
        backend: the name.

    Returns:
        Tensor of shape (B, H, T, D), in memory as (T, B, H, D).
    """
    return _heads_first(_cpu(values, taps, left, padding, backend))


def convolve_with_triton(
    values: Tensor,
    taps: Tensor,
    sizes: tuple[int, ...],
    lefts: tuple[int, ...],
    gate: Tensor | None,
    normalize: bool,
    keep: Tensor | None,
    scale: float,
    padding: Tensor | None,
) -> Tensor:
    """The back end "triton"; the arguments are those of ``dynamic_conv_triton.conv``."""
    result: Tensor = _triton(values, taps, sizes, lefts, gate, normalize, keep, scale, padding)[0]
    return _heads_first(result)


def _time_first(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (T, B, H, D), contiguous."""
    return x.permute(2, 0, 1, 3).contiguous()


def _heads_first(x: Tensor) -> Tensor:
    """(T, B, H, D) -> (B, H, T, D), a view."""
    return x.permute(1, 2, 0, 3)


def _new_time_first(like: Tensor) -> Tensor:
    return torch.empty_like(like.permute(2, 0, 1, 3), memory_format=torch.contiguous_format)


def _uses_band(values: Tensor, taps: Tensor, backend: str) -> bool:
    return backend == "band" or (backend != "taps" and prefers_band(values, *taps.shape[2:]))


@torch.library.custom_op(
    "muse_plugin::convolve_on_cpu",
    mutates_args=(),
    schema="(Tensor values, Tensor taps, SymInt left, Tensor? padding, str backend) -> Tensor",
)
def _cpu(values: Tensor, taps: Tensor, left: int, padding: Tensor | None, backend: str) -> Tensor:
    run = multiply_band if _uses_band(values, taps, backend) else sum_rows
    return _time_first(run(values, taps, left, padding))


@torch.library.custom_op(
    "muse_plugin::convolve_on_cpu_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor values, Tensor taps, SymInt left, Tensor? padding, str backend) -> (Tensor, Tensor)",
)
def _cpu_backward(
    grad: Tensor, values: Tensor, taps: Tensor, left: int, padding: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    run = multiply_band_gradients if _uses_band(values, taps, backend) else sum_rows_gradients
    grad_values, grad_taps = run(_heads_first(grad), values, taps, left, padding)
    assert grad_values is not None
    assert grad_taps is not None
    return _time_first(grad_values), _time_first(grad_taps)


@_cpu.register_fake
def _(values: Tensor, taps: Tensor, left: int, padding: Tensor | None, backend: str) -> Tensor:
    return _new_time_first(values[:, :, values.shape[2] - taps.shape[2] :])


@_cpu_backward.register_fake
def _(
    grad: Tensor, values: Tensor, taps: Tensor, left: int, padding: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    return _new_time_first(values), _new_time_first(taps)


def _save_cpu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, taps, ctx.left, padding, ctx.backend = inputs
    ctx.save_for_backward(values, taps, padding)


def _differentiate_cpu(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    values, taps, padding = ctx.saved_tensors
    gradients = _cpu_backward(grad, values, taps, ctx.left, padding, ctx.backend)
    return *map(_heads_first, gradients), None, None, None


_cpu.register_autograd(_differentiate_cpu, setup_context=_save_cpu)


@torch.library.custom_op(
    "muse_plugin::convolve_with_triton",
    mutates_args=(),
    schema="(Tensor values, Tensor taps, int[] sizes, int[] lefts, Tensor? gate, bool normalize, Tensor? keep, "
    "float scale, Tensor? padding) -> (Tensor, Tensor)",
)
def _triton(
    values: Tensor,
    taps: Tensor,
    sizes: Sequence[int],
    lefts: Sequence[int],
    gate: Tensor | None,
    normalize: bool,
    keep: Tensor | None,
    scale: float,
    padding: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The back end "triton"; the second result is what its backward needs besides the inputs."""
    from muse_plugin.ops.dynamic_conv_triton import _DynamicConv

    record = _Record()
    options = (tuple(sizes), tuple(lefts), normalize, scale)
    out = _DynamicConv.forward(record, values, taps, gate, padding, keep, *options)
    return _time_first(out), record.saved_tensors[-1]


@torch.library.custom_op(
    "muse_plugin::convolve_with_triton_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor log_sums, Tensor values, Tensor taps, int[] sizes, int[] lefts, Tensor? gate, "
    "bool normalize, Tensor? keep, float scale, Tensor? padding) -> (Tensor, Tensor, Tensor)",
)
def _triton_backward(
    grad: Tensor,
    log_sums: Tensor,
    values: Tensor,
    taps: Tensor,
    sizes: Sequence[int],
    lefts: Sequence[int],
    gate: Tensor | None,
    normalize: bool,
    keep: Tensor | None,
    scale: float,
    padding: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    from muse_plugin.ops.dynamic_conv_triton import _DynamicConv, _look_ahead, _plan

    record = _Record()
    record.save_for_backward(values, taps, gate, padding, keep, log_sums)
    options = tuple(sizes), tuple(lefts)
    record.plan = _plan(values, taps, *options, gate, normalize, keep, scale, padding)
    record.ahead = _look_ahead(*options)
    record.needs_input_grad = (True, True, gate is not None)
    with torch.no_grad():
        grad_values, grad_taps, grad_gate = _DynamicConv.backward(record, _heads_first(grad))[:3]
    assert grad_values is not None
    assert grad_taps is not None
    return _time_first(grad_values), _time_first(grad_taps), log_sums.new_empty(0) if grad_gate is None else grad_gate


class _Record:
    """Stands in for the context of an ``autograd.Function`` whose two halves are called as they are."""

    plan: Any
    ahead: Any
    needs_input_grad: Any
    saved_tensors: tuple[Any, ...]

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


@_triton.register_fake
def _(values: Tensor, taps: Tensor, sizes: Sequence[int], *rest: Any) -> tuple[Tensor, Tensor]:
    batch, heads, length, _ = taps.shape
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    log_sums = values.new_empty(batch * heads, len(sizes), length, dtype=dtype)
    return _new_time_first(values[:, :, values.shape[2] - length :]), log_sums


@_triton_backward.register_fake
def _(
    grad: Tensor,
    log_sums: Tensor,
    values: Tensor,
    taps: Tensor,
    sizes: Sequence[int],
    lefts: Sequence[int],
    gate: Tensor | None,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_gate = log_sums.new_empty(0) if gate is None else torch.empty_like(gate)
    return _new_time_first(values), _new_time_first(taps), grad_gate


def _save_triton(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, taps, ctx.sizes, ctx.lefts, gate, ctx.normalize, keep, ctx.scale, padding = inputs
    ctx.save_for_backward(output[1], values, taps, gate, keep, padding)


def _differentiate_triton(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    log_sums, values, taps, gate, keep, padding = ctx.saved_tensors
    options = (ctx.sizes, ctx.lefts, gate, ctx.normalize, keep, ctx.scale, padding)
    grad_values, grad_taps, grad_gate = _triton_backward(grad.contiguous(), log_sums, values, taps, *options)
    return (
        _heads_first(grad_values),
        _heads_first(grad_taps),
        None,
        None,
        None if gate is None else grad_gate,
        None,
        None,
        None,
        None,
    )


_triton.register_autograd(_differentiate_triton, setup_context=_save_triton)
