"""Which positions of a batch are padding."""

from typing import NamedTuple

import torch
from torch import Tensor


class Padding(NamedTuple):
    """Where the padding of a batch is; ``make_padding`` in ``attention.py`` makes it, once for all layers.

    Attributes:
        mask: bool, shape (B, S), true at padding.
        bias: what attention adds to its logits there, shape (B, 1, 1, S).
    """

    mask: Tensor
    bias: Tensor


def mask_padding(lengths: Tensor, positions: int) -> Tensor:
    """The positions behind the end of each sentence.

    Args:
        lengths: number of real tokens, shape (B,).
        positions: T, of the padded batch.

    Returns:
        Bool (B, T) on the device of ``lengths``, true at padding.
    """
    return torch.arange(positions, device=lengths.device) >= lengths[:, None]
