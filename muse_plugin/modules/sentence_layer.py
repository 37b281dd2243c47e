"""Layers of sentence models within the encoder of a translation model.

Sentence models hand their layers states (B, T, C), lengths and a padding mask; the encoder of a translation model hands
its own states (T, B, C) and a ``LayerContext``.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from muse_plugin.modules.branch import LayerContext


class SentenceLayer(nn.Module):
    """Runs a layer of a sentence model where a ``ParallelLayer`` can be.

    Args:
        layer: called with states (B, T, C), lengths (B,) on the CPU, and a padding mask (B, T) or None; returns
            (B, T, C).
    """

    _recomputes = _offloads = False

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """Applies the layer.

        Args:
            x: shape (T, B, C).
            context: of an encoder, with ``lengths``.

        Returns:
            Shape (T, B, C).
        """
        if not (self._recomputes and self.training and torch.is_grad_enabled()):
            return self._compute(x, context)
        with save_on_cpu() if self._offloads else nullcontext():
            return checkpoint(self._compute, x, context, use_reentrant=False)

    def _compute(self, x: Tensor, context: LayerContext) -> Tensor:
        result: Tensor = self.layer(x.transpose(0, 1), context.lengths, context.key_padding_mask)
        return result.transpose(0, 1)

    def prepare_training(self, recompute: bool = False, offload: bool = False) -> None:
        """See ``ParallelLayer.prepare_training``."""
        self._recomputes, self._offloads = recompute, offload
