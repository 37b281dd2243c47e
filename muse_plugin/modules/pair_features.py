"""What a classifier sees of two sentence vectors."""

from __future__ import annotations

import torch
from torch import Tensor

PAIR_FEATURES = ("product", "difference_twice")


def pair_features(first: Tensor, second: Tensor, kind: str) -> Tensor:
    """Puts two vectors and their comparison side by side.

    Args:
        first: shape (B, R).
        second: shape (B, R).
        kind: "product": [u; v; |u-v|; u*v] (arXiv:1712.02047 and common); "difference_twice": [u; v; |u-v|; u-v] (as
            printed for SNLI in arXiv:1912.00544).

    Returns:
        Shape (B, 4 R).

    Raises:
        ValueError: if the kind is unknown.
    """
    if kind not in PAIR_FEATURES:
        raise ValueError(f"--pair-features must be one of {', '.join(PAIR_FEATURES)}, but got {kind!r}.")
    difference = first - second
    last = first * second if kind == "product" else difference
    return torch.cat([first, second, difference.abs(), last], dim=-1)
