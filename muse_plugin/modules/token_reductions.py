"""One vector per sentence without parameters: maximum, mean or first of the states of its words."""

from __future__ import annotations

import torch
from torch import Tensor


def max_over_tokens(states: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The largest value of each channel over the real tokens; zeros for a sentence without any.

    Args:
        states: shape (B, T, C).
        padding_mask: bool, shape (B, T), true at padding; None if there is none.

    Returns:
        Shape (B, C).
    """
    if padding_mask is None:
        return states.amax(dim=1)
    highest = states.masked_fill(padding_mask.unsqueeze(-1), -torch.inf).amax(dim=1)
    return highest.masked_fill(padding_mask.all(dim=1, keepdim=True), 0.0)


def mean_over_tokens(states: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The mean of each channel over the real tokens; arguments and result as in ``max_over_tokens``."""
    if padding_mask is None:
        return states.mean(dim=1)
    total = states.masked_fill(padding_mask.unsqueeze(-1), 0.0).sum(dim=1)
    return total / padding_mask.logical_not().sum(dim=1, keepdim=True).clamp(min=1)


def first_token(states: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The state that comes first; arguments and result as in ``max_over_tokens``."""
    return states[:, 0]


REDUCTIONS = {"cls": first_token, "max": max_over_tokens, "mean": mean_over_tokens}
