"""Parallel layers that run one after the other and count as one layer: a Transformer's sublayers, for instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.parallel_layer import ParallelLayer


class StagedLayer(nn.Module):
    """Runs stages in turn, each with a residual sum and a layer norm of its own.

    Stages of one branch each, self-attention before feed-forward, are the Transformer (arXiv:1706.03762); one stage of
    several branches is the MUSE layer.

    Args:
        stages: what runs, from the first.
    """

    def __init__(self, stages: Sequence[ParallelLayer]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor, *, cache: LayerCache | None = None, **options: Any) -> tuple[Tensor, Tensor | None]:
        """Applies the stages.

        Args:
            x: shape (T, B, C).
            cache: history for step-by-step decoding, extended in place.
            **options: see ``ParallelLayer.forward``.

        Returns:
            The new x, shape (T, B, C), and the weights of cross-attention, or None.
        """
        found = None
        for number, stage in enumerate(self.stages):
            x, weights = stage(x, cache=None if cache is None else cache.stage(number), **options)
            found = weights if weights is not None else found
        return x, found

    def compile_training(self, recompute: bool = False) -> None:
        """See ``ParallelLayer.compile_training``."""
        for stage in self.stages:
            stage.compile_training(recompute)  # type: ignore[operator]
