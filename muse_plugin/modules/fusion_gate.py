"""A gate between the state of a word and what attention brings to it, both projected (arXiv:1712.02047, Eqs. 10-12).

It takes the place of the residual connection in ``distance_attention.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.linear import Linear
from muse_plugin.modules.retained_dropout import RetainsDropout
from muse_plugin.ops.dropout import dropout


class FusionGate(RetainsDropout):
    """F * S^F + (1 - F) * H^F with S^F = S W^S, H^F = H W^H and F = sigmoid(S^F + H^F + b^F).

    What is mixed are the projections, not S and H themselves.

    Args:
        embed_dim: width C.
        dropout: probability in [0, 1) of dropping a channel of the sum within the sigmoid.
        norms: have a layer norm on either projection.
    """

    def __init__(self, embed_dim: int, dropout: float = 0.0, norms: bool = True) -> None:
        super().__init__()
        self.dropout = dropout
        self.source_proj = Linear(embed_dim, embed_dim, bias=False)
        self.context_proj = Linear(embed_dim, embed_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(embed_dim))
        self.source_norm = nn.LayerNorm(embed_dim) if norms else None
        self.context_norm = nn.LayerNorm(embed_dim) if norms else None
        for projection in (self.source_proj, self.context_proj):
            nn.init.xavier_normal_(projection.weight)

    def forward(self, source: Tensor, context: Tensor) -> Tensor:
        """Mixes.

        Args:
            source: S, shape (B, T, C).
            context: H, shape (B, T, C).

        Returns:
            Shape (B, T, C).
        """
        source, context = self.source_proj(source), self.context_proj(context)
        if self.source_norm is not None and self.context_norm is not None:
            source, context = self.source_norm(source), self.context_norm(context)
        gate = torch.sigmoid(dropout(source + context + self.bias, self.dropout, self.drops))
        return gate * source + (1 - gate) * context
