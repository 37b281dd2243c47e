"""What a classifier sees of two sentence vectors."""

from __future__ import annotations

import torch
from torch import Tensor

PAIR_FEATURES = ("product", "difference_twice", "signed_product")


def pair_features(first: Tensor, second: Tensor, kind: str) -> Tensor:
    """Puts two vectors and their comparison side by side.

    Args:
        first: shape (B, R).
        second: shape (B, R).
        kind: "product": [u; v; |u-v|; u*v] (arXiv:1712.02047 and common); "difference_twice": [u; v; |u-v|; u-v] (as
            printed for SNLI in arXiv:1912.00544); "signed_product": [u; v; u-v; u*v] (arXiv:1709.04696).

    Returns:
        Shape (B, 4 R).

    Raises:
        ValueError: if the kind is unknown.
    """
    if kind not in PAIR_FEATURES:
        raise ValueError(f"kind must be one of {', '.join(PAIR_FEATURES)}, but got {kind!r}.")
    difference = first - second
    third = difference if kind == "signed_product" else difference.abs()
    last = difference if kind == "difference_twice" else first * second
    return torch.cat([first, second, third, last], dim=-1)
