"""Two encoders next to each other, one for earlier and one for later words (arXiv:1709.04696, arXiv:1712.02047)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class TwoDirections(nn.Module):
    """Two encoders with parameters of their own that read the same states; their results side by side.

    Args:
        forward_block: sees earlier words; called with states, lengths and padding mask, has ``output_size``.
        backward_block: sees later words; called in the same way.
    """

    def __init__(self, forward_block: nn.Module, backward_block: nn.Module) -> None:
        super().__init__()
        self.forward_block = forward_block
        self.backward_block = backward_block
        self.output_size: int = forward_block.output_size + backward_block.output_size  # type: ignore[operator,assignment]

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes states (B, T, C); lengths (B,), best on the CPU; mask (B, T) true at padding, or None."""
        blocks = (self.forward_block, self.backward_block)
        return torch.cat([block(x, lengths, key_padding_mask) for block in blocks], dim=-1)

    def parameters_after(self, path: Sequence[str]) -> list[nn.Parameter]:
        """The parameters that the block ``path[0]`` does not depend on: those of the other."""
        return [p for name, block in self.named_children() if name != path[0] for p in block.parameters()]


class MergedDirections(nn.Module):
    """LayerNorm(W [U_fw; U_bw] + b): both directions, brought back to the width that they read, so that layers stack.

    The papers have a single layer and leave its result as wide as both directions. The layer norm on the map follows
    arXiv:1712.02047, which has one on its linear maps.

    Args:
        directions: reads and hands out states as ``TwoDirections`` does.
        embed_dim: width C of what it reads, and of the result.
    """

    def __init__(self, directions: TwoDirections, embed_dim: int) -> None:
        super().__init__()
        self.directions = directions
        self.out_proj = nn.Linear(directions.output_size, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)
        nn.init.xavier_normal_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes states (B, T, C) to (B, T, C); see ``TwoDirections.forward``."""
        return self.layer_norm(self.out_proj(self.directions(x, lengths, key_padding_mask)))
