"""One direction of the Distance-based Self-Attention Network: masked attention, fusion gate, feed-forward network.

Source: Im and Cho 2017, arXiv:1712.02047, Eqs. 7-12. ``attention_bias.py`` has the two masks, ``fusion_gate.py`` the
gate; ``models/distance_attention_network.py`` puts both directions side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from muse_plugin.modules.attends import AttentionWeights, HeadSource, weigh_windows
from muse_plugin.modules.attention_bias import AttentionBias, Direction, DistancePenalty, SummedBias
from muse_plugin.modules.branch import check_heads, merge_heads
from muse_plugin.modules.fusion_gate import FusionGate
from muse_plugin.modules.linear import Linear
from muse_plugin.modules.retained_dropout import RetainsDropout
from muse_plugin.ops.dropout import dropout
from muse_plugin.ops.window_attention import Windows, window_attention


class MaskedAttention(nn.Module):
    """Attention to one side of the sentence, where each word of distance costs alpha (Eqs. 7-9).

    softmax(Q K^T / sqrt(D) + M_dir + alpha * M_dis) V in every head, M_dis[i, j] = -|i - j|, then W^O. A word does not
    see itself; one without a word on its side gets zeros from the heads, and so what W^O and its layer norm make of
    them.

    Args:
        embed_dim: width C; divisible by ``num_heads``.
        num_heads: number of heads H.
        direction: "forward" (earlier words) or "backward" (later words).
        alpha: what a logit loses per word of distance, the same in all heads and not trained; 0 for no distance mask.
        norms: have a layer norm on queries, keys and values (one each, over the width of a head, for all heads) and on
            the output.

    Raises:
        ValueError: if the width does not divide into heads, the direction is unknown, or alpha is negative or not
            finite.
    """

    def __init__(self, embed_dim: int, num_heads: int, direction: str, alpha: float = 1.5, norms: bool = True) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads, "attention")
        self.num_heads = num_heads
        self.attends_to = direction
        biases: list[AttentionBias] = [Direction([direction] * num_heads)]
        if alpha != 0:
            biases.append(DistancePenalty([alpha] * num_heads))
        self.bias = SummedBias(biases)
        self.in_proj = Linear(embed_dim, 3 * embed_dim, bias=False)  # rows of queries, of keys, of values
        self.out_proj = Linear(embed_dim, embed_dim)
        head_dim = embed_dim // num_heads
        self.in_norms = nn.ModuleList(nn.LayerNorm(head_dim) for _ in range(3)) if norms else None
        self.out_norm = nn.LayerNorm(embed_dim) if norms else None
        with torch.no_grad():
            for matrix in (*self.in_proj.weight.chunk(3), self.out_proj.weight):
                nn.init.xavier_normal_(matrix)
        # The bias of W^O starts in uniform(+-1 / sqrt(C)): a word without a word on its side has nothing else, and at
        # zero the layer norm would make the first gradient a hundred times as large as all others together.

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Attends.

        Args:
            x: shape (B, T, C).
            lengths: number of real words, shape (B,), int64, best on the CPU.
            key_padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            Shape (B, T, C). Rows at padding are finite and otherwise unspecified.
        """
        query, key, value = self._project(x)
        attended = window_attention(query, key, value, self.bias(lengths), key_padding_mask)
        if x.shape[1] == 1:  # a word that sees no other: DistributedDataParallel waits for gradients, also for zeros
            attended = attended + 0.0 * (query + key)
        out: Tensor = self.out_proj(merge_heads(attended))
        return out if self.out_norm is None else self.out_norm(out)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, D)."""
        batch, length, width = x.shape
        parts = self.in_proj(x).view(batch, length, 3, self.num_heads, width // self.num_heads).unbind(2)
        if self.in_norms is not None:
            parts = [norm(part) for norm, part in zip(self.in_norms, parts, strict=True)]
        query, key, value = (part.transpose(1, 2) for part in parts)
        return query, key, value

    def weigh_attention(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> AttentionWeights:
        """See ``Attends.weigh_attention``."""
        return weigh_windows(*self._project(x), self.describe_masks(lengths), key_padding_mask)

    def weigh_without_distance(
        self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None
    ) -> AttentionWeights:
        """See ``MasksDistance.weigh_without_distance``."""
        windows = self.describe_masks(lengths)._replace(slopes=None)
        return weigh_windows(*self._project(x), windows, key_padding_mask)

    def describe_masks(self, lengths: Tensor) -> Windows:
        """See ``MasksDistance.describe_masks``."""
        return self.bias(lengths)

    def parameters_after(self, path: Sequence[str]) -> list[nn.Parameter]:
        """The parameters that what W^O reads does not depend on, but for W^O itself; see ``later_parameters.py``."""
        return [] if self.out_norm is None else list(self.out_norm.parameters())

    def find_heads(self) -> HeadSource:
        """See ``Attends.find_heads``."""
        return HeadSource(self.out_proj, True, self.num_heads, self.out_proj.in_features // self.num_heads)


class DistanceAttentionBlock(RetainsDropout):
    """LN(G + FFN(G)) with G = LN(gate(S, H)) and H the masked attention of S.

    Dropout is on H and within the gate, as published, and nowhere else.

    Args:
        embed_dim: width C; divisible by ``num_heads``.
        num_heads: number of heads H.
        ffn_embed_dim: hidden width F of the feed-forward network.
        direction: "forward" (earlier words) or "backward" (later words).
        alpha: what a logit loses per word of distance; 0 for no distance mask.
        dropout: probability in [0, 1) of dropping a channel.
        norms: have layer norms on the projections of attention and gate.
        block_norms: have those of G and of the result, as published; without any norm the count of parameters is the
            published one.

    Raises:
        ValueError: see ``MaskedAttention``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        ffn_embed_dim: int,
        direction: str,
        alpha: float = 1.5,
        dropout: float = 0.0,
        norms: bool = True,
        block_norms: bool = True,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.output_size = embed_dim
        self.attention = MaskedAttention(embed_dim, num_heads, direction, alpha, norms)
        self.gate = FusionGate(embed_dim, dropout, norms)
        self.gate_norm = nn.LayerNorm(embed_dim) if block_norms else nn.Identity()
        self.ffn = nn.Sequential(Linear(embed_dim, ffn_embed_dim), nn.ReLU(), Linear(ffn_embed_dim, embed_dim))
        self.output_norm = nn.LayerNorm(embed_dim) if block_norms else nn.Identity()

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes; see ``MaskedAttention.forward``."""
        context = dropout(self.attention(x, lengths, key_padding_mask), self.dropout, self.drops)
        gated = self.gate_norm(self.gate(x, context))
        return self.output_norm(gated + self.ffn(gated))
