"""The layer of the Multi-Scale Transformer: attention within windows, an output matrix, ReLU, residual, layer norm.

Source: Guo et al. 2020 (arXiv:1912.00544), Eqs. 5, 6 and 10. There is no feed-forward network and no position: a window
of one word is the feed-forward network, and windows tell near from far. ``attention_bias.py`` has the windows,
``head_allocation.py`` says which head gets which.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.attends import SELF, AttentionWeights, HeadSource, weigh_windows
from muse_plugin.modules.attention_bias import AttentionBias, count_identity_heads
from muse_plugin.modules.branch import merge_heads, split_heads
from muse_plugin.modules.linear import Linear
from muse_plugin.modules.retained_dropout import RetainsDropout
from muse_plugin.ops.dropout import dropout
from muse_plugin.ops.linear import linear
from muse_plugin.ops.window_attention import window_attention


class MultiScaleLayer(RetainsDropout):
    """LayerNorm(x + ReLU(concat(head_1 .. head_H) W^O)), every head within its own window.

    Heads whose window is the word itself need no queries and keys: their weights are exactly 1. The rows of those
    queries and keys are parameters, as published, that no result depends on.

    Args:
        embed_dim: width C of the states.
        num_heads: number of heads H.
        head_dim: width D of a head; H * D need not be C.
        windows: what each head may look at.
        dropout: probability in [0, 1) of dropping a channel of what is added to the residual, training only.
        attention_dropout: probability in [0, 1) of dropping an attention weight, training only.
        scales_by_model: divide logits by sqrt(C), as Eq. 6 is printed, instead of by sqrt(D).

    Raises:
        ValueError: if a size is below 1.
    """

    attends_to = SELF

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        windows: AttentionBias,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        scales_by_model: bool = False,
    ) -> None:
        super().__init__()
        if min(embed_dim, num_heads, head_dim) < 1:
            raise ValueError(
                "a multi-scale layer needs a width, heads and a width of a head of at least 1, but got "
                f"embed_dim={embed_dim}, num_heads={num_heads} and head_dim={head_dim}."
            )
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.windows = windows
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.query_gain = math.sqrt(head_dim / embed_dim) if scales_by_model else 1.0
        self.identity_heads = count_identity_heads(windows, num_heads)
        width = num_heads * head_dim
        # Rows: queries and keys of the identity heads, queries of the others, keys of the others, values.
        self.in_proj = Linear(embed_dim, 3 * width)
        self.out_proj = Linear(width, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Applies the layer.

        Args:
            x: shape (B, T, C).
            lengths: number of real tokens of each sentence, shape (B,), int64, best on the CPU.
            key_padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            Shape (B, T, C). Rows at padding are finite and otherwise unspecified.
        """
        query, key, value = self.project(x)
        out = window_attention(
            query,
            key,
            value,
            self.windows(lengths),
            key_padding_mask,
            self.attention_dropout if self.drops else 0.0,
        )
        update = torch.relu(self.out_proj(merge_heads(out)))
        return self.layer_norm(x + dropout(update, self.dropout, self.drops))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of states (B, T, C), each (B, H, T, D); identity heads have values only."""
        seeing = (self.num_heads - self.identity_heads) * self.head_dim
        unread = 2 * self.identity_heads * self.head_dim
        apply = linear if self.training else F.linear
        projected = apply(x, self.in_proj.weight[unread:], self.in_proj.bias[unread:])
        query, key, value = torch.split(projected, [seeing, seeing, self.num_heads * self.head_dim], dim=-1)
        if self.query_gain != 1.0:
            query = query * self.query_gain
        heads = self.num_heads - self.identity_heads
        return split_heads(query, heads), split_heads(key, heads), split_heads(value, self.num_heads)

    def weigh_attention(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> AttentionWeights:
        """See ``Attends.weigh_attention``."""
        return weigh_windows(*self.project(x), self.windows(lengths), key_padding_mask)

    def find_heads(self) -> HeadSource:
        """See ``Attends.find_heads``."""
        return HeadSource(self.out_proj, True, self.num_heads, self.head_dim)

    def extra_repr(self) -> str:
        """Sizes for ``print(model)``."""
        return f"num_heads={self.num_heads}, head_dim={self.head_dim}, identity_heads={self.identity_heads}"
