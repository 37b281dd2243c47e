"""How many attention heads each scale gets in each layer.

Source: Guo et al. 2020, "Multi-Scale Self-Attention for Text Classification" (arXiv:1912.00544), Eqs. 11 and 12.
"""

from __future__ import annotations

import math

# Sums that are whole numbers but for rounding count as whole.
_ROUNDING = 1e-9


def allocate_heads(alpha: float, layer: int, layers: int, scales: int, heads: int) -> list[int]:
    """Distributes the heads of one layer over scales of increasing size.

    The share of scale k is softmax(z)_k with z_k = (K - k) * alpha / layer, and z = 0 in the top layer: with alpha > 0
    lower layers look nearby. Shares become whole numbers by rounding up their running sum, the reading that reproduces
    all published rows (alpha = 0.5, 10 heads, 5 scales, 3 layers: 5 2 2 1 0 / 4 2 2 1 1 / 2 2 2 2 2).

    Args:
        alpha: inclination towards small scales; 0 gives all the same share.
        layer: number of the layer, from 1 at the bottom.
        layers: number of layers L.
        scales: number of scales K.
        heads: number of heads.

    Returns:
        Heads per scale, K numbers that add up to ``heads``.

    Raises:
        ValueError: if ``alpha`` is not finite, ``layer`` is outside 1 .. L, or there are more scales than heads.
    """
    if not math.isfinite(alpha):
        raise ValueError(f"the alpha of the distribution of scales must be a finite number, but got {alpha}.")
    if not 1 <= layer <= layers:
        raise ValueError(f"layer must lie in 1 .. {layers}, but got {layer}.")
    if not 1 <= scales <= heads:
        raise ValueError(
            f"there must be at least one scale and at most one per head, but got {scales} scales for {heads} heads; "
            "use fewer scales or more heads."
        )
    slope = 0.0 if layer == layers else alpha / layer
    highest = max(0.0, slope * (scales - 1))
    weights = [math.exp(slope * (scales - k) - highest) for k in range(1, scales + 1)]
    counts: list[int] = []
    running, given = 0.0, 0
    for weight in weights:
        running += heads * weight / math.fsum(weights)
        counts.append(math.ceil(running - _ROUNDING) - given)
        given += counts[-1]
    return counts
