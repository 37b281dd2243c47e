"""From the states of a sentence to one vector: maximum, mean, classification token, attention, or several of them.

A pooling is a list of parts whose vectors are concatenated. A new part is a module with ``output_size``, a line in
``_BUILDERS`` and one in ``_PARTS`` for each pooling that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention_heads import AttentionHeads, Heads
from muse_plugin.modules.low_rank_attention import LowRankAttention
from muse_plugin.modules.source_to_token import SourceToToken
from muse_plugin.modules.structured_attention import StructuredAttention
from muse_plugin.modules.token_reductions import REDUCTIONS

# The parts of every pooling.
_PARTS = {
    "max": ("max",),
    "mean": ("mean",),
    "cls": ("cls",),
    "cls_max": ("cls", "max"),
    "cls_max_concat": ("cls", "max"),
    "source_to_token": ("source_to_token",),
    "source_to_token_max": ("source_to_token", "max"),
    "low_rank_attention": ("low_rank_attention",),
    "structured_attention": ("structured_attention",),
}
# Poolings that take the mean of their parts; the others put them side by side.
_AVERAGED = ("cls_max",)
POOLINGS = tuple(_PARTS)


class Reduction(nn.Module):
    """A function of ``token_reductions.py`` as a part of a pooling.

    Args:
        name: "max", "mean" or "cls".
        width: of the states, and so of the result.
    """

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.name = name
        self.output_size = width

    def forward(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """See ``token_reductions.py``."""
        return REDUCTIONS[self.name](states, padding_mask)

    def extra_repr(self) -> str:
        """Which, for ``print(model)``."""
        return self.name


# What builds each part, from the width of the states and its own settings.
_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    **{name: partial(Reduction, name) for name in REDUCTIONS},
    "source_to_token": SourceToToken,
    "low_rank_attention": LowRankAttention,
    "structured_attention": StructuredAttention,
}


class SentencePooling(nn.Module):
    """One vector per sentence.

    Args:
        kind: one of ``POOLINGS``, by its parts; "cls" is the state of the classification token, which comes first.
            "cls_max" is the mean of that and of the maximum, which includes it (arXiv:1912.00544 combines the two
            without saying how); others are side by side, such as "source_to_token_max" (arXiv:1712.02047).
        width: C of the states.
        settings: further arguments of the parts, by the name of the part.

    Attributes:
        output_size: width of the result.
        needs_cls: whether a classification token has to come before the sentence.
        has_heads: whether there are heads.

    Raises:
        ValueError: if the kind is unknown, or its settings are wrong.
    """

    def __init__(self, kind: str, width: int, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        if kind not in _PARTS:
            raise ValueError(f"kind must be one of {', '.join(POOLINGS)}, but got {kind!r}.")
        self.kind = kind
        parts: list[Any] = [_BUILDERS[name](width, **(settings or {}).get(name, {})) for name in _PARTS[kind]]
        self.parts = nn.ModuleList(parts)
        self.needs_cls = "cls" in _PARTS[kind]
        self.has_heads = any(isinstance(part, AttentionHeads) for part in parts)
        self.output_size = width if kind in _AVERAGED else sum(part.output_size for part in parts)

    def forward(
        self, states: Tensor, padding_mask: Tensor | None = None, words: Tensor | None = None
    ) -> tuple[Tensor, Heads | None]:
        """Pools, and shows what the heads did.

        Args:
            states: shape (B, T, C); the classification token's first, where it is needed.
            padding_mask: bool, shape (B, T), true at padding; None if there is none.
            words: what the encoder read, shape (B, T, D), for low-rank attention with the mean as its context.

        Returns:
            The vectors, shape (B, ``output_size``), and weights and vectors of the heads; None for a pooling without
            heads.
        """
        heads, vectors = None, []
        for part in self.parts:
            if isinstance(part, AttentionHeads):
                heads = part(states, padding_mask, words)
                vectors.append(heads.vectors.flatten(1))
            else:
                vectors.append(part(states, padding_mask))
        if self.kind in _AVERAGED:
            return torch.stack(vectors).mean(dim=0), heads
        return torch.cat(vectors, dim=-1), heads

    def extra_repr(self) -> str:
        """Settings for ``print(model)``."""
        return self.kind
