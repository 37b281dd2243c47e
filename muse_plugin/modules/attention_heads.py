"""Pooling by several heads: each has weights over the words and gives one vector; the vectors are concatenated.

How words are scored is what ``low_rank_attention.py`` and ``structured_attention.py`` differ in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Heads(NamedTuple):
    """What the heads make of sentences.

    Attributes:
        weights: A, shape (B, m, T), at least float32: head j gives word t the weight ``weights[:, j, t]``. Weights of
            a head are at least 0 and sum to 1 over the real words; padding has none.
        vectors: S = A H, shape (B, m, C).
    """

    weights: Tensor
    vectors: Tensor


class AttentionHeads(nn.Module):
    """The base of poolings with heads; a subclass has ``score``.

    Args:
        width: C of the states.
        num_heads: number of heads m.

    Attributes:
        output_size: m * C, the width of all vectors side by side.

    Raises:
        ValueError: if there is no head.
    """

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, but got {num_heads}.")
        self.width = width
        self.num_heads = num_heads
        self.output_size = num_heads * width

    def score(self, states: Tensor, padding_mask: Tensor | None, words: Tensor | None) -> Tensor:
        """Scores of words, shape (B, T, m); arguments as of ``forward``, but states are zeros at padding.

        Scores of padding are not used.
        """
        raise NotImplementedError

    def forward(self, states: Tensor, padding_mask: Tensor | None = None, words: Tensor | None = None) -> Heads:
        """Weighs the words.

        Args:
            states: H, shape (B, T, C).
            padding_mask: bool, shape (B, T), true at padding, which gets no weight; None if there is none.
            words: what the encoder read, shape (B, T, D), for heads that ask for it.

        Returns:
            Weights and vectors; both zero for a sentence without real words.

        Raises:
            ValueError: if states or words are not as wide as these heads were made for, or words are missing.
        """
        if states.shape[-1] != self.width:
            raise ValueError(
                f"these heads were made for states of width {self.width}, but got width {states.shape[-1]}; build the "
                "pooling with the output_size of the encoder."
            )
        outside = None if padding_mask is None else padding_mask.unsqueeze(-1)
        if outside is not None:
            states = states.masked_fill(outside, 0.0)
        scores = self.score(states, padding_mask, words)
        if outside is not None:
            # Finite, so that a sentence of padding alone gives no NaN.
            scores = scores.masked_fill(outside, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=1)
        if outside is not None:
            weights = weights.masked_fill(outside, 0.0)
        weights = weights.transpose(1, 2)  # (B, m, T)
        return Heads(weights, torch.bmm(weights.to(states.dtype), states))


def in_full_precision(tensor: Tensor) -> Tensor:
    """A tensor as float32 if it is in half precision, otherwise as it is: norms and sums need the digits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
