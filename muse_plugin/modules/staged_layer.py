"""Parallel layers that run one after the other and count as one layer: a Transformer's sublayers, for instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.parallel_layer import ParallelLayer


class StagedLayer(nn.Module):
    """Runs stages in turn, each with a residual sum and a layer norm of its own.

    Stages of one branch each, self-attention before feed-forward, are the Transformer (arXiv:1706.03762); one stage of
    several branches is the MUSE layer.
    """

    def __init__(self, stages: Sequence[ParallelLayer]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """Applies the stages; see ``ParallelLayer.forward``."""
        for number, stage in enumerate(self.stages):
            own = context if context.cache is None else replace(context, cache=context.cache.stage(number))
            x = stage(x, own)
            context.attention_weights = own.attention_weights
        return x

    def prepare_training(self, recompute: bool = False, offload: bool = False) -> None:
        """See ``ParallelLayer.prepare_training``."""
        for stage in self.stages:
            stage.prepare_training(recompute, offload)  # type: ignore[operator]
