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

    Source: arXiv:1911.09483, section 2 (position-wise feed-forward network); ``reads`` is for the ablation of Table 7
    in the authors' journal manuscript, "we share the input projection between pointwise FFN and convolution ... we keep
    the self-attention path unchanged", read as: the hidden layer is the activation of what the convolution reads, of
    width C, and W_1 disappears.

    Args:
        embed_dim: width C.
        ffn_embed_dim: hidden width F; not used with ``reads``.
        activation: applied to the hidden layer.
        activation_dropout: probability in [0, 1) of dropping a hidden unit, training only.
        reads: name of the slice of another branch to read instead of an own projection: "value" (self-attention) or
            "conv_value" (a convolution with a projection of its own).
    """

    group = "ffn"

    def __init__(
        self,
        embed_dim: int,
        ffn_embed_dim: int,
        activation: Callable[[Tensor], Tensor],
        activation_dropout: float = 0.0,
        reads: str | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.activation_dropout = activation_dropout
        self.output_size = ffn_embed_dim if reads is None else embed_dim
        # The gradient of ReLU needs its result only.
        hidden = Projection("ffn_hidden", ffn_embed_dim, transient=activation in (F.relu, torch.relu))
        if reads is not None:
            hidden = Projection(reads, embed_dim, noisy=True, cached=True)
        self.projections = (hidden,)

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``; each position on its own."""
        hidden = projected[self.projections[0].name][:, -context.length :]
        return dropout(self.activation(hidden), self.activation_dropout, self.drops)
