"""Dynamic convolution on the CPU as weighted sums of rows: the back end "taps" of ``dynamic_conv.py``.

A query adds up a few rows of the values, each times its tap. That is what ``embedding_bag`` does with one weight per
index, and PyTorch's kernel for it (FBGEMM's on x86) keeps the sum in registers: several times as fast as a product with
a band matrix, and as fast in long sentences as in short ones. The gradient of the values is the same product with
re-ordered taps; that of the taps is one dot product per tap, a sampled matrix product.

Moving the values costs as much as computing. Rows are therefore read where they are, as a slice of the layer's
projections, and results are written with time as the first axis, as the layers want them.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Index tensors are the same in all layers of one side, forward and backward: the last ones are kept.
_PLANS = 4
_NUMBERS = 8


def sum_rows(values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
    """Adds up, for every query, the rows in its window times their taps.

    Args:
        values: shape (B, H, S, D), on the CPU, not empty.
        taps: shape (B, H, T, K), one kernel per query, used as given.
        left: the window of query t begins at position t - left; positions outside 0 .. S-1 count as zero. The window
            holds at least one position of the sentence.
        padding: bool, shape (B, S), true where the values count as zero; None if nowhere.

    Returns:
        Tensor of shape (B, H, T, D) in the dtype of ``values``, added up in float32, or float64 for float64; in memory
        as (T, B, H, D).
    """
    return _SumRows.apply(values, taps, left, padding)  # type: ignore[no-untyped-call]


def dot_rows(queries: Tensor, keys: Tensor, left: int, kernel_size: int) -> Tensor:
    """Multiplies every query with the rows in its window: what ``sum_rows`` does, read backwards.

    Args:
        queries: shape (B, H, T, D), on the CPU, not empty.
        keys: shape (B, H, S, D).
        left: the window of query t begins at position t - left.
        kernel_size: positions in a window, K.

    Returns:
        Dot products, shape (B, H, T, K), in float32, or float64 for float64; zero outside 0 .. S-1; in memory with time
        first.
    """
    return _DotRows.apply(queries, keys, left, kernel_size)  # type: ignore[no-untyped-call]


class _DotRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, left: int, kernel_size: int) -> Tensor:
        ctx.save_for_backward(queries, keys)
        ctx.left, ctx.kernel_size = left, kernel_size
        plan = _make_plan(queries.shape[2], keys.shape[2], kernel_size, left)
        products = _multiply(_copy_rows(queries, None), _find_rows(keys, None), plan)
        return plan.collect(products).permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        queries, keys = ctx.saved_tensors
        grad_queries = grad_keys = None
        if ctx.needs_input_grad[0]:
            grad_queries = sum_rows(keys, grad, ctx.left, None).to(queries.dtype)
        if ctx.needs_input_grad[1]:
            grad_keys, _ = _differentiate(queries, keys, grad, ctx.left, None, (True, False))
        return grad_queries, grad_keys, None, None


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, taps, padding)
        ctx.left = left
        plan = _make_plan(taps.shape[2], values.shape[2], taps.shape[3], left)
        rows = _find_rows(values, padding)
        out = _add(rows, plan.lay_out(_time_first(taps, rows.matrix.dtype)), plan)
        return out.to(values.dtype).permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        values, taps, padding = ctx.saved_tensors
        return *_differentiate(grad, values, taps, ctx.left, padding, ctx.needs_input_grad[:2]), None, None


def _differentiate(
    grad: Tensor, values: Tensor, taps: Tensor, left: int, padding: Tensor | None, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of ``sum_rows`` from ``values`` and ``taps``, in memory with time first; None if not needed."""
    plan = _make_plan(taps.shape[2], values.shape[2], taps.shape[3], left)
    grad_rows = _copy_rows(grad, None)
    grad_values = grad_taps = None
    if needs[1]:
        products = _multiply(grad_rows, _find_rows(values, padding), plan)
        grad_taps = plan.collect(products).to(taps.dtype).permute(1, 2, 0, 3)
    if needs[0]:
        weights = plan.transpose(_time_first(taps, grad_rows.matrix.dtype))
        grad_values = _add(grad_rows, weights, plan, backwards=True)
        if padding is not None:
            grad_values.masked_fill_(padding.t()[:, :, None, None], 0.0)
        grad_values = grad_values.to(values.dtype).permute(1, 2, 0, 3)
    return grad_values, grad_taps


class _Rows(NamedTuple):
    """Where the rows of a tensor (B, H, S, D) are in a matrix of rows of D numbers.

    Attributes:
        matrix: shape (rows, D), contiguous, at least float32.
        shape: (S, B, H).
        steps: by how many rows of the matrix one step along S, B and H goes further.
        start: the row of the first position.
    """

    matrix: Tensor
    shape: tuple[int, int, int]
    steps: tuple[int, int, int]
    start: int


def _find_rows(x: Tensor, padding: Tensor | None) -> _Rows:
    """Finds the rows of x where it is in memory; copies them where that is no matrix, or where padding is zero."""
    x = x.detach()
    batch, heads, count, channels = x.shape
    numbers = (x.stride(2), x.stride(0), x.stride(1), x.storage_offset())
    wide = x.dtype in (torch.float32, torch.float64)
    if padding is not None or not wide or x.stride(3) != 1 or any(number % channels for number in numbers):
        return _copy_rows(x, padding)
    *steps, start = (number // channels for number in numbers)
    last = start + sum(step * (size - 1) for step, size in zip(steps, (count, batch, heads), strict=True))
    matrix = x.as_strided((last + 1, channels), (channels, 1), 0)
    return _Rows(matrix, (count, batch, heads), (steps[0], steps[1], steps[2]), start)


def _copy_rows(x: Tensor, padding: Tensor | None) -> _Rows:
    """The rows of x in the order (S, B, H), with zeros at padding; a copy unless they are in it already."""
    batch, heads, count, channels = x.shape
    rows = _time_first(x, torch.promote_types(x.dtype, torch.float32))
    if padding is not None:
        rows = rows.masked_fill(padding.t()[:, :, None, None], 0.0)
    return _Rows(rows.view(-1, channels), (count, batch, heads), (batch * heads, heads, 1), 0)


def _time_first(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, H, T, D) -> (T, B, H, D), contiguous."""
    return x.detach().permute(2, 0, 1, 3).to(dtype).contiguous()


class _Plan:
    """Which positions belong together; the same for all sentences and heads. Tensors have time as their first axis.

    A query reads the positions of its window; what lies outside the sentence has weight zero and stands for the nearest
    position, which the window holds. Where the window is wider than the sentence, a query reads the whole sentence:
    that is less to read.
    """

    def __init__(self, length: int, positions: int, kernel_size: int, left: int) -> None:
        # Taps that reach no position from any query are left out.
        self.first = max(left - (length - 1), 0)
        self.last = min(positions + left, kernel_size)
        self.kernel_size, self.left = kernel_size, left - self.first
        self.length, self.positions, self.width = length, positions, self.last - self.first
        self.whole = self.width > positions
        if self.whole:
            self.sources = torch.arange(positions).expand(length, -1)
            self.queries = torch.arange(length).expand(positions, -1)
            return
        window = torch.arange(self.width)
        sources = torch.arange(length)[:, None] + (window - self.left)
        self.sources = sources.clamp(0, positions - 1)  # shape (T, columns)
        self.outside = sources != self.sources
        # The queries that read each position, shape (S, columns).
        self.queries = torch.arange(positions)[:, None] + (window + self.left - self.width + 1)
        self.queries.clamp_(0, length - 1)

    def lay_out(self, taps: Tensor) -> Tensor:
        """Taps (T, B, H, K) -> the weights of ``sources``, shape (T, B, H, columns), contiguous."""
        taps = taps[..., self.first : self.last]
        if not self.whole:
            return taps.masked_fill(self.outside[:, None, None], 0.0).contiguous()
        # Each row of the result begins one tap earlier than the row before.
        before, after = self.length - 1 - self.left, self.positions + self.left - self.width
        padded = _pad(taps, 3, before, after)
        shape = (*taps.shape[:3], self.positions)
        strides = (padded.stride(0) - 1, *padded.stride()[1:])
        return padded.as_strided(shape, strides, self.left + before).contiguous()

    def collect(self, weights: Tensor) -> Tensor:
        """Weights of ``sources`` -> taps (T, B, H, K); zero for a tap that is outside the sentence."""
        if self.whole:
            after = max(self.width + self.length - 1 - self.left - self.positions, 0)
            padded = _pad(weights, 3, self.left, after)
            shape = (*weights.shape[:3], self.width)
            weights = padded.as_strided(shape, (padded.stride(0) + 1, *padded.stride()[1:]), 0)
        else:
            weights.masked_fill_(self.outside[:, None, None], 0.0)
        if self.width < self.kernel_size:
            return _pad(weights, 3, self.first, self.kernel_size - self.last)
        return weights.contiguous()

    def transpose(self, taps: Tensor) -> Tensor:
        """Taps (T, B, H, K) -> the weights of ``queries``, shape (S, B, H, columns), contiguous."""
        if self.whole:
            return self.lay_out(taps).permute(3, 1, 2, 0).contiguous()
        # Position s gets from query s + left - j what tap j weighs: one query further is one tap back.
        taps = taps[..., self.first : self.last]
        before = max(self.width - 1 - self.left, 0)
        after = max(self.positions + self.left - self.length, 0)
        padded = _pad(taps, 0, before, after)
        start = (self.left - self.width + 1 + before) * padded.stride(0) + self.width - 1
        strides = (*padded.stride()[:3], max(padded.stride(0) - 1, 1))
        return padded.as_strided((self.positions, *taps.shape[1:]), strides, start).contiguous()


def _pad(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Zeros before and after along one axis; contiguous, which ``F.pad`` does not promise."""
    shape = list(x.shape)
    shape[dim] += before + after
    padded = x.new_zeros(shape)
    padded.narrow(dim, before, x.shape[dim]).copy_(x)
    return padded


@functools.lru_cache(maxsize=_PLANS)
def _make_plan(length: int, positions: int, kernel_size: int, left: int) -> _Plan:
    with torch.inference_mode(False):
        return _Plan(length, positions, kernel_size, left)


@functools.lru_cache(maxsize=_NUMBERS)
def _number(
    plan: _Plan, backwards: bool, rows: int, shape: tuple[int, int, int], steps: tuple[int, int, int], start: int
) -> tuple[Tensor, Tensor]:
    """Says which rows of a matrix are added up.

    Args:
        plan: says which positions of a sentence belong together.
        backwards: queries are added up for sources.
        rows: of the matrix.
        shape: see ``_Rows``, as are the last two.
        steps: see ``_Rows``.
        start: see ``_Rows``.

    Returns:
        Rows of the matrix, shape (N * columns,), for the N = T * B * H sums; and where each begins, shape (N + 1,), the
        last number being the end.
    """
    positions = plan.queries if backwards else plan.sources
    total = len(positions) * shape[1] * shape[2] * positions.shape[1]
    dtype = torch.int32 if max(rows, total) < 2**31 else torch.int64
    with torch.inference_mode(False):
        sentences, heads = (torch.arange(n, dtype=dtype) * s for n, s in zip(shape[1:], steps[1:], strict=True))
        others = (sentences[:, None] + heads).view(-1, 1) + start
        numbers = positions.to(dtype)[:, None] * steps[0] + others
        return numbers.view(-1), torch.arange(0, total + 1, positions.shape[1], dtype=dtype)


def _add(rows: _Rows, weights: Tensor, plan: _Plan, backwards: bool = False) -> Tensor:
    """Adds up rows times weights (T, B, H, columns); returns (T, B, H, D)."""
    numbers, starts = _number(plan, backwards, len(rows.matrix), *rows[1:])
    flat = weights.view(-1)
    out = torch.embedding_bag(rows.matrix, numbers, starts[:-1], mode=0, per_sample_weights=flat)[0]
    return out.view(*weights.shape[:3], -1)


def _multiply(grad: _Rows, rows: _Rows, plan: _Plan) -> Tensor:
    """The dot product of every row of ``grad``, which are in order, with those it is the sum of; (T, B, H, columns)."""
    numbers, starts = _number(plan, False, len(rows.matrix), *rows[1:])
    _silence_beta_warning()
    pattern = torch.sparse_csr_tensor(
        starts,
        numbers,
        grad.matrix.new_zeros(1).expand(numbers.numel()),  # beta = 0 multiplies them all the same: NaN would stay
        size=(len(grad.matrix), len(rows.matrix)),
        check_invariants=False,
    )
    products: Tensor = torch.sparse.sampled_addmm(pattern, grad.matrix, rows.matrix.t(), beta=0.0).values()
    return products.view(*grad.shape, -1)


@functools.lru_cache(maxsize=1)
def _silence_beta_warning() -> None:
    """PyTorch warns once per process that its CSR tensors are in beta state; users need not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(
            torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), size=(1, 1)
        )
