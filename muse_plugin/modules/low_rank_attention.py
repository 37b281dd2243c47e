"""Low-rank multi-head attention of documents: a score is a product of two projections, one of them of the context.

Source: Mehta et al., "Low Rank Factorization for Compact Multi-Head Self-Attention" (LAMA), arXiv:1912.00835. Every
encoder takes it through ``sentence_pooling.py``; the paper's models are in ``models/presets.py``.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention_heads import AttentionHeads, in_full_precision
from muse_plugin.modules.token_reductions import mean_over_tokens

CONTEXTS = ("learned", "mean")
# Of the parameters at the start; published for the hidden layer, taken as a deviation, not a variance.
_DEVIATION = 0.1
# Of what may be divided by: gradients of words whose scores are zero grow with its inverse, and overflow.
SMALLEST_EPSILON = 1e-12

logger = logging.getLogger(__name__)


class LowRankAttention(AttentionHeads):
    """Heads whose score of a word is bilinear in word and context, by a matrix of low rank for each head.

    ::

        u_t  = tanh(W h_t + b)
        f_tj = tanh(sum_r (P_jr . c) (Q_jr . u_t))       r = 1 ... k; the paper has k = 1
        f_t  = f_t / max(||f_t||, epsilon)               over the m heads of a word
        A_j  = softmax over words of f_j,  s_j = sum_t A_jt h_t

    Since scores are in [-1, 1], no word of a head weighs more than e^2 = 7.4 times another. With one head and the norm
    a score is its sign: weights cannot be learned, and a warning says so. P and Q are C x mk in the paper, whose words
    are as wide as its states; with ``context="mean"`` P here has the width of the words, whatever that is.

    Args:
        width: C of the states.
        num_heads: m.
        rank: k.
        context: what c is: "learned", a parameter; "mean", the mean of a document's embedded words.
        context_size: width of the embedded words, for the mean; that of the states if None.
        l2_norm: divide the scores of a word by their norm over the heads.
        epsilon: smallest divisor: a word whose scores are all zero stays at zero.

    Raises:
        ValueError: if there is no head, the rank is not positive, epsilon of the norm too small, or the context
            unknown.
    """

    def __init__(
        self,
        width: int,
        num_heads: int = 15,
        rank: int = 1,
        context: str = "learned",
        context_size: int | None = None,
        l2_norm: bool = True,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__(width, num_heads)
        if rank < 1:
            raise ValueError(f"rank must be at least 1, but got {rank}.")
        if l2_norm and not SMALLEST_EPSILON <= epsilon < float("inf"):
            raise ValueError(f"epsilon must be finite and at least {SMALLEST_EPSILON:g}, but got {epsilon}.")
        if context not in CONTEXTS:
            raise ValueError(f"context must be one of {', '.join(CONTEXTS)}, but got {context!r}.")
        if l2_norm and num_heads == 1:
            logger.warning(
                "low-rank attention with one head and the l2 norm cannot learn where to look: each score is +1 or -1 "
                "and its gradient zero; use more heads, or no norm."
            )
        self.rank = rank
        self.l2_norm = l2_norm
        self.epsilon = epsilon
        self.context_size = width if context == "learned" or context_size is None else context_size
        self.hidden = nn.Linear(width, width)  # W, b
        self.context_factors = nn.Linear(self.context_size, num_heads * rank, bias=False)  # P
        self.state_factors = nn.Linear(width, num_heads * rank, bias=False)  # Q
        self.context = nn.Parameter(torch.empty(width)) if context == "learned" else None
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=_DEVIATION)

    def score(self, states: Tensor, padding_mask: Tensor | None, words: Tensor | None) -> Tensor:
        """See ``AttentionHeads.score``; each in [-1, 1].

        Raises:
            ValueError: if the context is the mean of the words, and these are missing or of another width.
        """
        context = self._choose_context(padding_mask, words)  # (C,) or (B, D)
        factors = self.state_factors(torch.tanh(self.hidden(states)))  # (B, T, m * k)
        weights = in_full_precision(self.context_factors(context)).unsqueeze(-2)
        products = (
            in_full_precision(factors) * weights
        )  # in half precision, factors that fit may have a product that does not
        scores = torch.tanh(products.view(*products.shape[:2], self.num_heads, self.rank).sum(dim=-1))  # (B, T, m)
        if not self.l2_norm:
            return scores
        if self.num_heads == 1:  # the same as below, but its gradient of zero is exact
            return (scores / self.epsilon).clamp(-1, 1)
        lengths: Tensor = torch.linalg.vector_norm(scores, dim=-1, keepdim=True)
        return scores / lengths.clamp(min=self.epsilon)

    def _choose_context(self, padding_mask: Tensor | None, words: Tensor | None) -> Tensor:
        if self.context is not None:
            return self.context
        if words is None:
            raise ValueError(
                "the context mean is the mean of the embedded words, but only states were given; pass words, or use "
                "the context learned."
            )
        if words.shape[-1] != self.context_size:
            raise ValueError(
                f"this context was made for words of width {self.context_size}, but got width {words.shape[-1]}; build "
                "the pooling with that context_size."
            )
        return mean_over_tokens(words, padding_mask)

    def extra_repr(self) -> str:
        """Settings for ``print(model)``."""
        context = "mean" if self.context is None else "learned"
        norm = f"l2, epsilon={self.epsilon:g}" if self.l2_norm else "none"
        return f"heads={self.num_heads}, rank={self.rank}, context={context}, norm={norm}"
