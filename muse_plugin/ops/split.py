"""Parts of a tensor whose gradient is not copied where there is one part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def split(x: Tensor, sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``torch.split``, but one part is ``x`` itself: the gradient of a split is a concatenation, also of one part."""
    return (x,) if len(sizes) == 1 else torch.split(x, list(sizes), dim)
