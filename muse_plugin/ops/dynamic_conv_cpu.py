"""Dynamic convolution on the CPU as weighted sums of rows: the back end "taps" of ``dynamic_conv.py``.

A query adds up a few rows of the values, each times its tap. That is what ``embedding_bag`` does with one weight per
index, and PyTorch's kernel for it (FBGEMM's on x86) keeps the sum in registers: several times as fast as a product with
a band matrix, and as fast in long sentences as in short ones. The gradient of the values is the same product with
re-ordered taps; that of the taps is one dot product per tap, a sampled matrix product.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def sum_rows(values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
    """Adds up, for every query, the rows in its window times their taps.

    Args:
        values: shape (B, H, S, D), on the CPU, not empty.
        taps: shape (B, H, T, K), one kernel per query, used as given.
        left: the window of query t begins at position t - left; positions outside 0 .. S-1 count as zero. The window
            holds at least one position of the sentence.
        padding: bool, shape (B, S), true where the values count as zero; None if nowhere.

    Returns:
        Tensor of shape (B, H, T, D) in the dtype of ``values``, added up in float32, or float64 for float64.
    """
    result: Tensor = _SumRows.apply(values, taps, left, padding)  # type: ignore[no-untyped-call]
    return result


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, taps: Tensor, left: int, padding: Tensor | None) -> Tensor:
        plan = _Plan(taps.shape[2], values.shape[2], taps.shape[3], left)
        rows = plan.make_rows(values)
        if padding is not None:
            rows[:, :, : plan.positions].masked_fill_(padding[:, None, :, None], 0.0)
        weights = plan.lay_out(taps.detach().to(rows.dtype))
        ctx.save_for_backward(rows, weights, padding)
        ctx.plan, ctx.dtypes = plan, (values.dtype, taps.dtype)
        return _add(rows, plan.sources(), weights).to(values.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        rows, weights, padding = ctx.saved_tensors
        plan: _Plan = ctx.plan
        grad_rows = plan.make_rows(grad)
        grad_values = grad_taps = None
        if ctx.needs_input_grad[1]:
            grad_taps = plan.collect(_multiply(grad_rows, rows, plan.sources())).to(ctx.dtypes[1])
        if ctx.needs_input_grad[0]:
            grad_values = _add(grad_rows, plan.queries(), plan.transpose(weights))
            if padding is not None:
                grad_values.masked_fill_(padding[:, None, :, None], 0.0)
            grad_values = grad_values.to(ctx.dtypes[0])
        return grad_values, grad_taps, None, None


class _Plan:
    """Which rows belong together; the same for all sentences and heads.

    A query reads the rows of its window; a row of zeros behind those of the sentence stands for what lies outside.
    Where the window is wider than the sentence, a query reads the whole sentence: that is less to read.
    """

    def __init__(self, length: int, positions: int, kernel_size: int, left: int) -> None:
        # Taps that reach no position from any query are left out.
        self.first = max(left - (length - 1), 0)
        self.last = min(positions + left, kernel_size)
        self.kernel_size, self.left = kernel_size, left - self.first
        self.length, self.positions, self.width = length, positions, self.last - self.first
        self.whole = self.width > positions

    def make_rows(self, x: Tensor) -> Tensor:
        """A contiguous copy of x, shape (B, H, rows, D), at least float32, with the row of zeros where it is needed."""
        batch, heads, count, channels = x.shape
        dtype = torch.promote_types(x.dtype, torch.float32)
        rows = torch.empty(batch, heads, count + (not self.whole), channels, dtype=dtype)
        rows[:, :, :count] = x.detach()
        rows[:, :, count:] = 0.0
        return rows

    def sources(self) -> Tensor:
        """The rows of values that each query reads, shape (T, columns)."""
        if self.whole:
            return torch.arange(self.positions).expand(self.length, -1)
        rows = torch.arange(self.length)[:, None] + (torch.arange(self.width) - self.left)
        return rows.masked_fill_((rows < 0) | (rows >= self.positions), self.positions)

    def queries(self) -> Tensor:
        """The queries that read each position, shape (S, columns)."""
        if self.whole:
            return torch.arange(self.length).expand(self.positions, -1)
        rows = torch.arange(self.positions)[:, None] + (torch.arange(self.width) + self.left - self.width + 1)
        return rows.masked_fill_((rows < 0) | (rows >= self.length), self.length)

    def lay_out(self, taps: Tensor) -> Tensor:
        """Taps (B, H, T, K) -> the weights of ``sources``, shape (B, H, T, columns), contiguous."""
        taps = taps[..., self.first : self.last]
        if not self.whole:
            return taps.contiguous()
        before = self.length - 1 - self.left
        padded = _pad(taps, 3, before, self.positions + self.left - self.width)
        # Rows read back with one column less than they have: each row moves one column further right.
        return _reread(padded, self.length, self.positions, padded.shape[3] - 1, 1, self.left + before).contiguous()

    def collect(self, weights: Tensor) -> Tensor:
        """Weights of ``sources`` -> taps (B, H, T, K); zero for a tap that lies outside the sentence."""
        if self.whole:
            after = max(self.width + self.length - 1 - self.left - self.positions, 0)
            padded = _pad(weights, 3, self.left, after)
            weights = _reread(padded, self.length, self.width, padded.shape[3] + 1, 1, 0)
        if self.width < self.kernel_size:
            weights = _pad(weights, 3, self.first, self.kernel_size - self.last)
        return weights

    def transpose(self, weights: Tensor) -> Tensor:
        """Weights of ``sources`` -> the weights of ``queries``, shape (B, H, S, columns), contiguous."""
        if self.whole:
            return weights.transpose(2, 3).contiguous()
        # Position s gets from query s + left - j what tap j weighs: one row further and one column back at each step.
        # What is read beyond a sentence belongs to its neighbour, and meets the row of zeros.
        before = max(self.width - 1 - self.left, 0)
        after = self.positions + self.left - self.length
        batch, heads = weights.shape[:2]
        padded = _pad(weights.view(1, 1, -1, self.width), 2, before, after)
        start = (self.left - self.width + 1 + before) * self.width + self.width - 1
        sentence = self.length * self.width
        strides = (heads * sentence, sentence, self.width, max(self.width - 1, 1))
        return padded.as_strided((batch, heads, self.positions, self.width), strides, start).contiguous()


def _pad(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Zeros before and after along one axis; contiguous, which ``F.pad`` does not promise."""
    shape = list(x.shape)
    shape[dim] += before + after
    padded = x.new_zeros(shape)
    padded.narrow(dim, before, x.shape[dim]).copy_(x)
    return padded


def _reread(x: Tensor, rows: int, columns: int, row_stride: int, column_stride: int, start: int) -> Tensor:
    """Reads the last two axes of a contiguous tensor with other strides, from element ``start`` on."""
    batch, heads = x.shape[:2]
    size = x.shape[2] * x.shape[3]
    return x.as_strided((batch, heads, rows, columns), (heads * size, size, row_stride, column_stride), start)


def _number(batch: int, rows: Tensor, rows_per_sentence: int) -> Tensor:
    """Rows (T, columns) within a sentence -> rows among all of them, shape (B * H * T, columns)."""
    length, columns = rows.shape
    small = batch * max(length * columns, rows_per_sentence) < 2**31
    dtype = torch.int32 if small else torch.int64
    starts = torch.arange(batch, dtype=dtype) * rows_per_sentence
    return (starts[:, None, None] + rows.to(dtype)).view(batch * length, columns)


def _add(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """out[b, h, t] = sum_c weights[b, h, t, c] * rows[b, h, indices[t, c]]."""
    batch, heads, count, channels = rows.shape
    length, columns = indices.shape
    numbers = _number(batch * heads, indices, count)
    starts = torch.arange(0, numbers.numel(), columns, dtype=numbers.dtype)
    out = torch.embedding_bag(
        rows.view(-1, channels), numbers.view(-1), starts, mode=0, per_sample_weights=weights.view(-1)
    )[0]
    return out.view(batch, heads, length, channels)


def _multiply(grad: Tensor, rows: Tensor, indices: Tensor) -> Tensor:
    """out[b, h, t, c] = sum_d grad[b, h, t, d] * rows[b, h, indices[t, c], d]; skips rows of grad beyond T."""
    batch, heads, count, channels = rows.shape
    length, columns = indices.shape
    numbers = _number(batch * heads, indices, count)
    if torch.compiler.is_compiling():
        # The compiler knows no sparse tensors, and fuses this into one loop.
        left = grad[:, :, :length].reshape(-1, 1, channels)
        products = (left * rows.view(-1, channels)[numbers]).sum(-1)
    else:
        _silence_beta_warning()
        queries = torch.arange(grad.shape[2], dtype=numbers.dtype).clamp_(max=length)
        ends = torch.arange(batch * heads, dtype=numbers.dtype)[:, None] * length + queries
        ends = torch.cat([ends.flatten(), ends.new_tensor([batch * heads * length])]) * columns
        pattern = torch.sparse_csr_tensor(
            ends,
            numbers.view(-1),
            grad.new_empty(1).expand(numbers.numel()),
            size=(grad.numel() // channels, rows.numel() // channels),
            check_invariants=False,
        )
        products = torch.sparse.sampled_addmm(
            pattern, grad.view(-1, channels), rows.view(-1, channels).t(), beta=0.0
        ).values()
    return products.view(batch, heads, length, columns)


@functools.lru_cache(maxsize=1)
def _silence_beta_warning() -> None:
    """PyTorch warns once per process that its CSR tensors are in beta state; that is no news for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(
            torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), size=(1, 1)
        )
