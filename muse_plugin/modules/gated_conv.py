"""Convolution branches: several kernel sizes on one set of values, combined by one learned gate.

Convolution is linear in its kernel, so the gated sum of several sizes is ONE convolution with the sum of the padded
kernels; ``ops/dynamic_conv.py`` computes it. The classes differ in where the kernels come from.
"""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.branch import Branch, LayerContext, Projection, check_heads, merge_heads, split_heads
from muse_plugin.ops.dynamic_conv import can_run, dynamic_conv
from muse_plugin.ops.softmax import softmax

logger = logging.getLogger(__name__)


def check_kernel_sizes(kernel_sizes: Sequence[int], causal: bool) -> tuple[int, ...]:
    """Returns the sizes as a tuple.

    Raises:
        ValueError: if there is none, one is not a positive integer, or one is even and the kernel is centred.
    """
    if len(kernel_sizes) == 0:
        raise ValueError("kernel sizes must hold at least one size, but got an empty list; give e.g. 3,15.")
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in kernel_sizes):
        raise ValueError(f"kernel sizes must be integers >= 1, but got {list(kernel_sizes)}; give e.g. 3,15.")
    even = [size for size in kernel_sizes if size % 2 == 0]
    if even and not causal:
        raise ValueError(
            f"kernel sizes must be odd in the encoder, where a kernel is centred on its token, but got {even} in "
            f"{list(kernel_sizes)}; use odd sizes, e.g. {even[0] + 1}."
        )
    return tuple(kernel_sizes)


class GatedConv(Branch):
    """Base of the convolution branches: kernel sizes, gate, and what they read.

    Source: arXiv:1911.09483, section 2: Conv = sum_i softmax(a)_i Conv_{k_i}, with one scalar a_i per kernel size,
    starting at 1/K. Without gate the results are concatenated and the output projection weighs them.

    Args:
        embed_dim: width C.
        kernel_sizes: widths in tokens; odd unless ``causal``.
        causal: a kernel ends at its token (decoder) instead of being centred on it (encoder).
        weight_dropout: probability in [0, 1) of dropping a kernel weight, training only.
        use_gate: combine several sizes by the gate; a single size needs none and has none.
        share_value: read self-attention's values (the paper's shared projection) instead of an own projection.
        mask_padding: values at padding count as zero, so that a sentence does not depend on its batch. False is the
            published behaviour: padding leaks into its neighbours.

    Raises:
        ValueError: see ``check_kernel_sizes``.
    """

    group = "self"
    output_gain = math.sqrt(3.0)

    def __init__(
        self,
        embed_dim: int,
        kernel_sizes: Sequence[int],
        *,
        causal: bool,
        weight_dropout: float = 0.0,
        use_gate: bool = True,
        share_value: bool = True,
        mask_padding: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_sizes = check_kernel_sizes(kernel_sizes, causal)
        self.causal = causal
        self.weight_dropout = weight_dropout
        self.mask_padding = mask_padding
        count = len(self.kernel_sizes)
        self.gate = nn.Parameter(torch.full((count,), 1.0 / count)) if use_gate and count > 1 else None
        self.output_size = embed_dim if use_gate else embed_dim * count
        name = "value" if share_value else "conv_value"
        self.projections = (Projection(name, embed_dim, noisy=True, cached=True),)

    def gate_weights(self) -> Tensor:
        """The softmax of the gate, shape (number of kernel sizes,); ones where there is no gate."""
        if self.gate is None:
            return torch.ones(len(self.kernel_sizes))
        return torch.softmax(self.gate, dim=0, dtype=torch.float32)

    def _read(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """The values, zero at padding if asked: (B, S, C), without history that no kernel reaches."""
        values = projected[self.projections[0].name]
        left = max(map(self._padding_left, self.kernel_sizes))
        start = max(0, values.shape[1] - context.length - left)
        values = values[:, start:]
        if not self.mask_padding or context.key_padding_mask is None:
            return values
        return values.masked_fill(context.key_padding_mask[:, start:].unsqueeze(-1), 0.0)

    def _padding_left(self, kernel_size: int) -> int:
        return kernel_size - 1 if self.causal else kernel_size // 2

    def extra_repr(self) -> str:
        """Sizes for ``print(model)``."""
        return f"kernel_sizes={self.kernel_sizes}, causal={self.causal}, weight_dropout={self.weight_dropout}"


@functools.cache
def _say_once(backend: str, device: str) -> None:
    logger.info("the back end %s of convolutions cannot run here (%s): auto takes its place", backend, device)


class _HeadConv(GatedConv):
    """Softmax-normalised kernels shared by the channels of a head.

    Attributes:
        backend: that of ``ops/dynamic_conv.py``, "auto" unless changed. One that cannot run raises in training; in
            evaluation, which may be elsewhere, "auto" takes its place.
    """

    has_logits = False

    def __init__(self, embed_dim: int, num_heads: int, kernel_sizes: Sequence[int], **options: bool | float) -> None:
        super().__init__(embed_dim, kernel_sizes, **options)  # type: ignore[arg-type]
        check_heads(embed_dim, num_heads, "convolution")
        self.num_heads = num_heads
        self.backend = "auto"

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``."""
        values = split_heads(projected[self.projections[0].name], self.num_heads)
        taps = self.taps(projected, context.length)
        mask = context.key_padding_mask if self.mask_padding else None
        if self.gate is not None:
            return self._convolve(values, taps, self.kernel_sizes, self.gate_weights(), mask)
        parts = torch.split(taps, list(self.kernel_sizes), dim=-1)
        sizes = self.kernel_sizes
        results = [self._convolve(values, part, (size,), None, mask) for part, size in zip(parts, sizes, strict=True)]
        return results[0] if len(results) == 1 else torch.cat(results, dim=-1)

    def taps(self, projected: Mapping[str, Tensor], length: int) -> Tensor:
        """The kernels of the last ``length`` positions, as logits if ``has_logits``.

        Returns:
            Tensor of shape (B, H, length, sum of the kernel sizes), size by size.
        """
        raise NotImplementedError

    def _choose_backend(self, values: Tensor) -> str:
        if self.training or can_run(self.backend, values):
            return self.backend
        _say_once(self.backend, values.device.type)
        return "auto"

    def _convolve(
        self, values: Tensor, taps: Tensor, sizes: tuple[int, ...], gate: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        out = dynamic_conv(
            values,
            taps,
            padding_left=[self._padding_left(size) for size in sizes],
            kernel_sizes=sizes,
            gate=gate,
            normalize=self.has_logits,
            key_padding_mask=mask,
            dropout=self.weight_dropout if self.drops else 0.0,
            backend=self._choose_backend(values),
        )
        return merge_heads(out)


class DynamicConv(_HeadConv):
    """Dynamic convolution: every position predicts its kernel from its own value vector V.

    Source: Wu et al. 2019 (arXiv:1901.10430) as changed by arXiv:1911.09483: no GLU, no own input projection, kernels
    predicted from V without bias, normalised over all K weights even at the ends of the sentence.

    Args:
        embed_dim: width C; divisible by ``num_heads``.
        num_heads: number of kernels H; C / H neighbouring channels share one.
        kernel_sizes: see ``GatedConv``, as are the remaining options.
    """

    has_logits = True
    head_order: Tensor | None

    def __init__(self, embed_dim: int, num_heads: int, kernel_sizes: Sequence[int], **options: bool | float) -> None:
        super().__init__(embed_dim, num_heads, kernel_sizes, **options)
        # Rows: for each size, head by head, tap by tap.
        self.kernel_weight = nn.Parameter(torch.empty(num_heads * sum(self.kernel_sizes), embed_dim))
        bound = 1.0 / math.sqrt(embed_dim)
        nn.init.uniform_(self.kernel_weight, -bound, bound)
        by_size = torch.split(torch.arange(len(self.kernel_weight)), [num_heads * size for size in self.kernel_sizes])
        order = torch.cat([rows.view(num_heads, -1) for rows in by_size], dim=1).flatten()
        self.register_buffer("head_order", order if len(by_size) > 1 else None, persistent=False)
        self.folded_name = f"{self.projections[0].name}.kernel_logits"

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``; quicker where the input projection has computed the kernels as well, see ``fold``."""
        logits = projected.get(self.folded_name)
        if logits is None:
            return super().forward(projected, context)
        sizes = len(self.kernel_sizes)
        taps = softmax(logits.view(*logits.shape[:2], self.num_heads, sizes, -1))
        if self.gate is not None:
            taps = (taps * self.gate_weights()[:, None]).sum(dim=3, keepdim=True)
        values = self._read(projected, context)
        taps = taps.to(values.dtype).transpose(1, 2)  # (B, H, T, sizes or 1, window)
        results = [self._convolve_window(values, part.squeeze(3)) for part in torch.split(taps, 1, dim=3)]
        return results[0] if len(results) == 1 else torch.cat(results, dim=-1)

    def _convolve_window(self, values: Tensor, taps: Tensor) -> Tensor:
        """Values (B, S, C), taps that stand for the largest size (B, H, T, K) -> (B, T, C)."""
        if self.causal and taps.shape[2] == 1:
            # A step of decoding is one product with the last positions, and every call that it does not make counts.
            reach = min(values.shape[1], taps.shape[3])
            window = split_heads(values[:, values.shape[1] - reach :], self.num_heads)
            return merge_heads(torch.matmul(taps[..., taps.shape[3] - reach :], window))
        left = self._padding_left(max(self.kernel_sizes))
        heads = split_heads(values, self.num_heads)
        return merge_heads(dynamic_conv(heads, taps, padding_left=left, backend=self._choose_backend(heads)))

    def taps(self, projected: Mapping[str, Tensor], length: int) -> Tensor:
        """See ``_HeadConv.taps``."""
        # Time first, as the values are in memory: no copy.
        values = projected[self.projections[0].name][:, -length:].transpose(0, 1)
        return split_heads(torch.matmul(values, self._rows_by_head().t()).transpose(0, 1), self.num_heads)

    def fold(self, rows: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """See ``Branch.fold``: kernels predicted from V = W x + b are a linear function of x as well.

        Rows are head by head, size by size, weight by weight, where every size has the window of the largest: weights
        that it does not have get a bias of -inf, so that softmax and sum are one call for all sizes.
        """
        weight, bias = rows[self.projections[0].name]
        heads = self._rows_by_head().to(weight.dtype).t().view(-1, self.num_heads, sum(self.kernel_sizes))
        largest = max(self.kernel_sizes)
        weights, biases = [], []
        for size, part in zip(self.kernel_sizes, torch.split(heads, list(self.kernel_sizes), dim=2), strict=True):
            before = self._padding_left(largest) - self._padding_left(size)
            pad = (before, largest - size - before)
            weights.append(F.pad(torch.tensordot(weight.t(), part, 1), pad))  # (C_in, H, largest)
            biases.append(F.pad(torch.tensordot(bias, part, 1), pad, value=-torch.inf))  # (H, largest)
        folded = torch.stack(weights, dim=2).flatten(1).t().contiguous()
        return {self.folded_name: (folded, torch.stack(biases, dim=1).flatten())}

    def _rows_by_head(self) -> Tensor:
        """``kernel_weight`` head by head, size by size, tap by tap."""
        return self.kernel_weight if self.head_order is None else self.kernel_weight.index_select(0, self.head_order)


class LightweightConv(_HeadConv):
    """Lightweight convolution (arXiv:1901.10430): as ``DynamicConv``, with one learned kernel for all positions."""

    def __init__(self, embed_dim: int, num_heads: int, kernel_sizes: Sequence[int], **options: bool | float) -> None:
        super().__init__(embed_dim, num_heads, kernel_sizes, **options)
        self.kernel_logits = nn.ParameterList(
            nn.init.xavier_uniform_(nn.Parameter(torch.empty(num_heads, size))) for size in self.kernel_sizes
        )

    def taps(self, projected: Mapping[str, Tensor], length: int) -> Tensor:
        """See ``_HeadConv.taps``."""
        values = projected[self.projections[0].name]
        weights = [torch.softmax(logits, dim=-1, dtype=torch.float32) for logits in self.kernel_logits]
        taps = torch.cat(weights, dim=-1).to(values.dtype)  # (H, sum of sizes)
        return taps[None, :, None].expand(values.shape[0], -1, length, -1)


class StaticConv(GatedConv):
    """Ordinary convolution with learned weights and no softmax, for the comparisons of Table 6.

    Args:
        embed_dim: width C.
        kernel_sizes: see ``GatedConv``, as are the remaining options.
        depthwise: one kernel per channel (a depth-wise separable convolution together with the output projection)
            instead of a full C x C kernel per tap.
    """

    def __init__(
        self, embed_dim: int, kernel_sizes: Sequence[int], *, depthwise: bool, **options: bool | float
    ) -> None:
        super().__init__(embed_dim, kernel_sizes, **options)  # type: ignore[arg-type]
        self.groups = embed_dim if depthwise else 1
        self.kernel_weights = nn.ParameterList()
        for size in self.kernel_sizes:
            weight = nn.Parameter(torch.empty(embed_dim, embed_dim // self.groups, size))
            bound = 1.0 / math.sqrt(weight.shape[1] * size)
            self.kernel_weights.append(nn.init.uniform_(weight, -bound, bound))

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``."""
        values = self._read(projected, context)
        kernels = [F.dropout(kernel, self.weight_dropout, self.drops) for kernel in self.kernel_weights]
        if self.gate is not None:
            kernels = [self.merge(kernels)]
        results = [self.convolve(values, kernel, context.length) for kernel in kernels]
        return results[0] if len(results) == 1 else torch.cat(results, dim=-1)

    def merge(self, kernels: list[Tensor]) -> Tensor:
        """Weighs kernels of several sizes by the gate and adds them up, each padded to the largest size."""
        largest, padded = max(self.kernel_sizes), []
        for weight, kernel, size in zip(self.gate_weights(), kernels, self.kernel_sizes, strict=True):
            left = self._padding_left(largest) - self._padding_left(size)
            padded.append(F.pad(kernel * weight.to(kernel.dtype), (left, largest - size - left)))
        return functools.reduce(operator.add, padded)

    def convolve(self, values: Tensor, kernel: Tensor, length: int) -> Tensor:
        """Applies a kernel of shape (C, C or 1, K) to values of shape (B, S, C); returns shape (B, length, C)."""
        padding_left = self._padding_left(kernel.shape[-1])
        reach = min(values.shape[1] - length, padding_left)
        channels = values[:, values.shape[1] - length - reach :].transpose(1, 2)
        channels = F.pad(channels, (padding_left - reach, kernel.shape[-1] - 1 - padding_left))
        return F.conv1d(channels, kernel.to(channels.dtype), groups=self.groups).transpose(1, 2)
