"""The position-wise network as a branch: max(0, X W_1 + b_1) W_2 + b_2, with both matrices slices of the layer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.modules.branch import Branch, LayerContext, Projection
from muse_plugin.ops.dropout import dropout


class FeedForward(Branch):
    """Feed-forward branch.

    Source: arXiv:1911.09483, section 2 (position-wise feed-forward network); ``share_value`` is the ablation of its
    Table 7, read as: the hidden layer is the activation of the shared values V, of width C, and W_1 disappears.

    Args:
        embed_dim: width C.
        ffn_embed_dim: hidden width F; not used with ``share_value``.
        activation: applied to the hidden layer.
        activation_dropout: probability in [0, 1) of dropping a hidden unit, training only.
        share_value: read the values of self-attention and convolution instead of an own projection.
    """

    group = "ffn"

    def __init__(
        self,
        embed_dim: int,
        ffn_embed_dim: int,
        activation: Callable[[Tensor], Tensor],
        activation_dropout: float = 0.0,
        share_value: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.activation_dropout = activation_dropout
        self.output_size = embed_dim if share_value else ffn_embed_dim
        # The gradient of ReLU needs its result only.
        hidden = Projection("ffn_hidden", ffn_embed_dim, transient=activation in (F.relu, torch.relu))
        if share_value:
            hidden = Projection("value", embed_dim, noisy=True, cached=True)
        self.projections = (hidden,)

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``; each position on its own."""
        hidden = projected[self.projections[0].name][:, -context.length :]
        return dropout(self.activation(hidden), self.activation_dropout, self.drops)
