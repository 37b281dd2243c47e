"""From the states of a sentence to one vector: maximum, mean, the state of a classification token, or a mixture."""

from __future__ import annotations

import torch
from torch import Tensor, nn

POOLINGS = ("max", "mean", "cls", "cls_max", "cls_max_concat")


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


class SentencePooling(nn.Module):
    """One vector per sentence.

    Args:
        kind: "max", "mean"; "cls" (the state of the classification token, which stands first); "cls_max" (the mean of
            that and of the maximum, which includes it: arXiv:1912.00544 combines the two without saying how);
            "cls_max_concat" (side by side).

    Raises:
        ValueError: if the kind is unknown.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind not in POOLINGS:
            raise ValueError(f"--pooling must be one of {', '.join(POOLINGS)}, but got {kind!r}.")
        self.kind = kind

    @property
    def needs_cls(self) -> bool:
        """Whether a classification token has to stand before the sentence."""
        return self.kind.startswith("cls")

    def output_size(self, width: int) -> int:
        """The width of the result for states of this width."""
        return 2 * width if self.kind == "cls_max_concat" else width

    def forward(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Pools.

        Args:
            states: shape (B, T, C); the classification token's first, where it is needed.
            padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            Shape (B, ``output_size(C)``).
        """
        if self.kind == "max":
            return max_over_tokens(states, padding_mask)
        if self.kind == "mean":
            return mean_over_tokens(states, padding_mask)
        cls = states[:, 0]
        if self.kind == "cls":
            return cls
        highest = max_over_tokens(states, padding_mask)
        return torch.cat([cls, highest], dim=-1) if self.kind == "cls_max_concat" else 0.5 * (cls + highest)

    def extra_repr(self) -> str:
        """Settings for ``print(model)``."""
        return self.kind
