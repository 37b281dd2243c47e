"""Structured self-attention: heads that score a word by a network of two layers.

Source: Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", arXiv:1703.03130. Its penalty is
``attention_overlap`` in ``disagreement.py``. ``sentence_pooling.py`` offers the pooling to every encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention_heads import AttentionHeads, in_full_precision


class StructuredAttention(AttentionHeads):
    """A = softmax over words of W_2 tanh(W_1 H), without biases; the paper has 30 heads ("hops") and a layer of 350.

    Args:
        width: C of the states.
        num_heads: rows of W_2.
        hidden_size: rows of W_1.

    Raises:
        ValueError: if there is no head or no hidden unit.
    """

    def __init__(self, width: int, num_heads: int = 30, hidden_size: int = 350) -> None:
        super().__init__(width, num_heads)
        if hidden_size < 1:
            raise ValueError(f"hidden_size must be at least 1, but got {hidden_size}.")
        self.hidden = nn.Linear(width, hidden_size, bias=False)
        self.heads = nn.Linear(hidden_size, num_heads, bias=False)

    def score(self, states: Tensor, padding_mask: Tensor | None, words: Tensor | None) -> Tensor:
        """See ``AttentionHeads.score``."""
        return in_full_precision(self.heads(torch.tanh(self.hidden(states))))
