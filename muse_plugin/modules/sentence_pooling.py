"""From the states of a sentence to one vector: maximum, mean, classification token, attention, or several of them.

A pooling is a list of parts whose vectors stand side by side. A new part is a module with ``output_size``, a line in
``_build_part`` and one in ``_PARTS`` for each pooling that has it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.source_to_token import SourceToToken

# The parts of every pooling.
_PARTS = {
    "max": ("max",),
    "mean": ("mean",),
    "cls": ("cls",),
    "cls_max": ("cls", "max"),
    "cls_max_concat": ("cls", "max"),
    "source_to_token": ("source_to_token",),
    "source_to_token_max": ("source_to_token", "max"),
}
# Those that take the mean of their parts instead.
_AVERAGED = ("cls_max",)
POOLINGS = tuple(_PARTS)


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
    """The state that stands first; arguments and result as in ``max_over_tokens``."""
    return states[:, 0]


_REDUCTIONS = {"max": max_over_tokens, "mean": mean_over_tokens, "cls": first_token}


class Reduction(nn.Module):
    """One of the functions above as a part of a pooling.

    Args:
        name: "max", "mean" or "cls".
        width: of the states, and so of the result.
    """

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.name = name
        self.output_size = width

    def forward(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """See ``max_over_tokens``."""
        return _REDUCTIONS[self.name](states, padding_mask)

    def extra_repr(self) -> str:
        """Which, for ``print(model)``."""
        return self.name


def _build_part(name: str, width: int, norms: bool) -> SourceToToken | Reduction:
    if name == "source_to_token":
        return SourceToToken(width, norms)
    return Reduction(name, width)


class SentencePooling(nn.Module):
    """One vector per sentence.

    Args:
        kind: "max", "mean"; "cls" (the state of the classification token, which stands first); "cls_max" (the mean of
            that and of the maximum, which includes it: arXiv:1912.00544 combines the two without saying how);
            "cls_max_concat" (side by side); "source_to_token" (attention with a weight per word and channel, see
            ``SourceToToken``); "source_to_token_max" (that and the maximum side by side, arXiv:1712.02047).
        width: C of the states.
        norms: have layer norms on the linear maps of poolings with parameters.

    Attributes:
        output_size: width of the result.
        needs_cls: whether a classification token has to stand before the sentence.

    Raises:
        ValueError: if the kind is unknown.
    """

    def __init__(self, kind: str, width: int, norms: bool = False) -> None:
        super().__init__()
        if kind not in _PARTS:
            raise ValueError(f"--pooling must be one of {', '.join(POOLINGS)}, but got {kind!r}.")
        self.kind = kind
        parts = [_build_part(name, width, norms) for name in _PARTS[kind]]
        self.parts = nn.ModuleList(parts)
        self.needs_cls = "cls" in _PARTS[kind]
        self.output_size = width if kind in _AVERAGED else sum(part.output_size for part in parts)

    def forward(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Pools.

        Args:
            states: shape (B, T, C); the classification token's first, where it is needed.
            padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            Shape (B, ``output_size``).
        """
        vectors = [part(states, padding_mask) for part in self.parts]
        if self.kind in _AVERAGED:
            return torch.stack(vectors).mean(dim=0)
        return torch.cat(vectors, dim=-1)

    def extra_repr(self) -> str:
        """Settings for ``print(model)``."""
        return self.kind
