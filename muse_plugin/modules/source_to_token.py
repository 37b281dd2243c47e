"""From states to one vector by attention with a weight per word and channel.

Source: Shen et al. 2018, "DiSAN", arXiv:1709.04696 (source2token self-attention); Im and Cho 2017, arXiv:1712.02047,
adds the layer norms. ``sentence_pooling.py`` offers it to every encoder.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.linear import Linear


class SourceToToken(nn.Module):
    """sum_t P_t * u_t with P = softmax over words, for each channel on its own, of ELU(u W_1 + b_1) W_2 + b_2.

    b_2, and the bias of the layer norm behind it, shift all words alike: the result does not depend on them.

    Args:
        embed_dim: width C of states and of the hidden layer.
        norms: have a layer norm on either linear map.
    """

    def __init__(self, embed_dim: int, norms: bool = False) -> None:
        super().__init__()
        self.output_size = embed_dim
        self.hidden = Linear(embed_dim, embed_dim)
        self.scores = Linear(embed_dim, embed_dim)
        self.hidden_norm = nn.LayerNorm(embed_dim) if norms else None
        self.scores_norm = nn.LayerNorm(embed_dim) if norms else None

    def forward(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Pools.

        Args:
            states: shape (B, T, C).
            padding_mask: bool, shape (B, T), true at padding, which gets no weight; None if there is none.

        Returns:
            Shape (B, C); zeros for a sentence without real words.
        """
        outside = None if padding_mask is None else padding_mask.unsqueeze(-1)
        if outside is not None:
            states = states.masked_fill(outside, 0.0)
        scores = self.hidden(states)
        if self.hidden_norm is not None:
            scores = self.hidden_norm(scores)
        scores = self.scores(F.elu(scores))
        if self.scores_norm is not None:
            scores = self.scores_norm(scores)
        if outside is not None:
            # Finite, so that a sentence of padding alone has weights; its states are zeros.
            scores = scores.masked_fill(outside, torch.finfo(scores.dtype).min)
        return (torch.softmax(scores, dim=1) * states).sum(dim=1)
