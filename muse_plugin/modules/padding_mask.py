"""Which positions of a batch are padding."""

import torch
from torch import Tensor


def mask_padding(lengths: Tensor, positions: int) -> Tensor:
    """The positions behind the end of each sentence.

    Args:
        lengths: number of real tokens, shape (B,).
        positions: T, of the padded batch.

    Returns:
        Bool (B, T) on the device of ``lengths``, true at padding.
    """
    return torch.arange(positions, device=lengths.device) >= lengths[:, None]
