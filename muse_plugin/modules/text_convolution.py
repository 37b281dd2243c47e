"""Convolutions of several widths over words, side by side (Kim 2014, arXiv:1408.5882)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TextConvolution(nn.Module):
    """One state per word, ReLU of filters of several widths around it; with a maximum over words it is Kim's network.

    Differs from the paper: filters also reach across the ends of the sentence, where they read zeros, so that every
    sentence, however short, has as many states as words.

    Args:
        input_size: width of what it reads.
        widths: widths of the filters, in words.
        filters: number of filters of each width.

    Raises:
        ValueError: if there is no width, one is below 1, or there is no filter.
    """

    def __init__(self, input_size: int, widths: Sequence[int], filters: int) -> None:
        super().__init__()
        if not widths or min(widths) < 1 or filters < 1:
            raise ValueError(
                f"there must be widths of at least 1 word, and at least 1 filter, but got widths={list(widths)} and "
                f"filters={filters}."
            )
        self.convs = nn.ModuleList(nn.Conv1d(input_size, filters, width) for width in widths)
        self.output_size = len(widths) * filters

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes.

        Args:
            x: shape (B, T, C).
            lengths: not needed, the mask says the same.
            key_padding_mask: bool, shape (B, T), true at padding, which is read as zeros; None if there is none.

        Returns:
            Shape (B, T, widths * filters).
        """
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(1, 2)
        states = []
        for conv in self.convs:
            width: int = conv.kernel_size[0]  # type: ignore[index, assignment]
            states.append(conv(F.pad(x, ((width - 1) // 2, width // 2))))
        return torch.relu(torch.cat(states, dim=1)).transpose(1, 2)
