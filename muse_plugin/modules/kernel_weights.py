"""What the convolution branches learnt: their kernels, averaged over the words of a corpus, for figures about them.

A dynamic convolution has another kernel at every word; ``watch_kernels`` shows them as the model reads, and
``MeanKernel`` keeps nothing but their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Optional, Union

import torch
from torch import Tensor, nn

from muse_plugin.modules.attends import AttentionWeights, watch_attention
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.gated_conv import DynamicConv, LightweightConv
from muse_plugin.ops.softmax import softmax

HeadConv = Union[DynamicConv, LightweightConv]


def find_kernels(root: nn.Module) -> list[HeadConv]:
    """The convolutions with softmax-normalised kernels, from the bottom; ``StaticConv`` has none."""
    return [module for module in root.modules() if isinstance(module, (DynamicConv, LightweightConv))]


def list_offsets(module: HeadConv, kernel_size: int) -> list[int]:
    """What each tap of a kernel reads: positions after (positive) or before (negative) its word, in tokens."""
    first = -(kernel_size - 1) if module.causal else -(kernel_size // 2)
    return list(range(first, first + kernel_size))


def watch_kernels(
    modules: Sequence[HeadConv], receive: Callable[[int, Tensor, Optional[Tensor]], None]
) -> AbstractContextManager[None]:
    """Computes kernels while a model runs, and hands them over; in evaluation mode, without gradients.

    Args:
        modules: of ``find_kernels``, those that are wanted.
        receive: called whenever one of them runs, with its place in ``modules``; its kernels, shape (B, H, T, sum of
            kernel sizes), size by size, each with a sum of 1; and the padding mask of the T positions, shape (B, T),
            None if the module was told of none.
    """
    return watch_attention(modules, lambda number, found: receive(number, *found), _weigh)


def _weigh(module: HeadConv, projected: Mapping[str, Tensor], context: LayerContext) -> AttentionWeights:
    """The kernels and the mask of ``watch_kernels``; not weighed by the gate."""
    taps, mask = module.taps(projected, context.length), context.key_padding_mask
    if module.has_logits:
        parts = torch.split(taps, list(module.kernel_sizes), dim=-1)
        taps = torch.cat([softmax(part) for part in parts], dim=-1)
    return AttentionWeights(taps.float(), None if mask is None else mask[:, -context.length :])


class MeanKernel:
    """The mean of the kernels of one module over the words of a corpus."""

    def __init__(self, module: HeadConv) -> None:
        self.kernel_sizes = module.kernel_sizes
        self.words = 0
        self._sums = torch.zeros(module.num_heads, sum(module.kernel_sizes), dtype=torch.float64)

    def add(self, kernels: Tensor, real: Tensor) -> None:
        """Adds the kernels of a batch.

        Args:
            kernels: shape (B, H, T, sum of kernel sizes).
            real: bool, shape (B, T), true at words that count.
        """
        self._sums += torch.einsum("bhtw,bt->hw", kernels.double(), real.double()).cpu()
        self.words += int(real.sum())

    def means(self) -> list[Tensor]:
        """For each kernel size the mean kernel of every head, shape (H, size), float64; each row has a sum of 1.

        Raises:
            ValueError: if no word was read.
        """
        if self.words == 0:
            raise ValueError("a mean kernel needs at least one word, but none was read; give more sentences.")
        return list(torch.split(self._sums / self.words, list(self.kernel_sizes), dim=-1))
