"""What self-attention may look at, and how much distance costs: values that any encoder takes, alone or summed.

A bias says, per sentence and head, which keys a query may see, as a range of offsets (key position minus query
position), and how much a logit loses per position of distance. Ranges intersect and losses add up when biases are
summed; ``ops/window_attention.py`` turns the result into attention.

Sources: windows, Guo et al. 2020 (arXiv:1912.00544), section 1.2; direction and distance, Im and Cho 2017
(arXiv:1712.02047), Eq. 7; geometric slopes, Press et al. 2022 (arXiv:2108.12409).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from muse_plugin.ops.window_attention import UNLIMITED, Windows

_HIGHEST_ALPHA = torch.finfo(torch.float32).max
DIRECTIONS = ("forward", "backward", "both")


class AttentionBias(nn.Module):
    """One kind of bias."""

    def forward(self, lengths: Tensor) -> Windows:
        """Describes the bias for sentences.

        Args:
            lengths: number of real tokens of each sentence, shape (B,), int64.

        Returns:
            Ranges of shape (B, H), or (1, H) where the lengths do not matter, on the device of ``lengths``.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Scale:
    """The width of a window, in tokens.

    Attributes:
        window: a fixed width; None if it depends on the sentence.
        divisor: the width is the sentence's length divided by this, rounded down, then up to an odd number.

    With neither, the window is unlimited.
    """

    window: int | None = None
    divisor: int | None = None

    def __str__(self) -> str:
        if self.divisor is not None:
            return f"N/{self.divisor}"
        return "all" if self.window is None else str(self.window)

    def resolve(self, lengths: Tensor) -> Tensor:
        """The width for sentences of these lengths, shape of ``lengths``; ``UNLIMITED`` stands for no limit."""
        if self.divisor is None:
            return torch.full_like(lengths, UNLIMITED if self.window is None else self.window)
        width = torch.div(lengths, self.divisor, rounding_mode="floor").clamp(min=1)
        return width + (1 - width % 2)


class MultiScaleWindows(AttentionBias):
    """Every head looks at a window around the query (arXiv:1912.00544, Eq. 7 with omega as the whole width).

    Args:
        scales: one per head.
        causal: windows of any width end at the query; without it they are centred, and of odd width.
        scales_are_radii: a number is how far a window reaches to each side, as Eq. 7 is printed.

    Raises:
        ValueError: if a window is below 1, or even though it is centred; or if a causal one depends on the sentence's
            length, which is not known while it is being written.
    """

    def __init__(self, scales: Sequence[Scale], causal: bool = False, scales_are_radii: bool = False) -> None:
        super().__init__()
        for scale in scales:
            check_scale(scale, causal, scales_are_radii)
        self.scales = tuple(scales)
        self.causal = causal
        self.scales_are_radii = scales_are_radii
        self._depends_on_length = any(scale.divisor is not None for scale in scales)

    def forward(self, lengths: Tensor) -> Windows:
        """See ``AttentionBias.forward``."""
        if not self._depends_on_length:
            lengths = lengths.new_ones(1)
        sizes = torch.stack([scale.resolve(lengths) for scale in self.scales], dim=1)
        if self.scales_are_radii:
            reach = sizes
        else:
            reach = sizes - 1 if self.causal else torch.div(sizes - 1, 2, rounding_mode="floor")
        reach = torch.where(sizes == UNLIMITED, sizes, reach)
        return Windows(-reach, torch.zeros_like(reach) if self.causal else reach)

    def extra_repr(self) -> str:
        """Scales by head, for ``print(model)``."""
        kind = "radii" if self.scales_are_radii else "scales"
        return f"{kind}=[{', '.join(map(str, self.scales))}], causal={self.causal}"


def check_scale(scale: Scale, causal: bool = False, scales_are_radii: bool = False) -> None:
    """Checks one scale; arguments as of ``MultiScaleWindows``.

    Raises:
        ValueError: see ``MultiScaleWindows``.
    """
    if max(scale.window or 0, scale.divisor or 0) > UNLIMITED:
        raise ValueError(f"a scale must be at most {UNLIMITED}, but got {scale}; use all for no limit.")
    if scale.divisor is not None:
        if scale.divisor < 1:
            raise ValueError(f"a scale N/r needs an integer r of at least 1, but got {scale}.")
        if causal:
            raise ValueError(
                f"a decoder's scales cannot depend on the length of the sentence, which it does not know yet, but got "
                f"{scale}; use integers or all."
            )
    elif scale.window is not None:
        if scale.window < (0 if scales_are_radii else 1):
            raise ValueError(f"a scale must be at least {0 if scales_are_radii else 1} token wide, but got {scale}.")
        if scale.window % 2 == 0 and not causal and not scales_are_radii:
            raise ValueError(
                f"a window has a middle, so its scale must be odd, but got {scale}; use {scale.window - 1} or "
                f"{scale.window + 1}."
            )


class Direction(AttentionBias):
    """Heads that see one side of the sentence only (arXiv:1712.02047, M_fw and M_bw).

    Args:
        directions: "forward" (earlier words), "backward" (later words) or "both", one per head.
        masks_diagonal: a word does not see itself, as published. A query that sees nothing gets zeros.

    Raises:
        ValueError: if a direction is unknown.
    """

    def __init__(self, directions: Sequence[str], masks_diagonal: bool = True) -> None:
        super().__init__()
        for direction in directions:
            if direction not in DIRECTIONS:
                raise ValueError(f"a direction must be one of {', '.join(DIRECTIONS)}, but got {direction!r}.")
        self.directions = tuple(directions)
        self.masks_diagonal = masks_diagonal

    def forward(self, lengths: Tensor) -> Windows:
        """See ``AttentionBias.forward``."""
        nearest = 1 if self.masks_diagonal else 0
        first = [nearest if direction == "backward" else -UNLIMITED for direction in self.directions]
        last = [-nearest if direction == "forward" else UNLIMITED for direction in self.directions]
        return Windows(lengths.new_tensor([first]), lengths.new_tensor([last]))

    def extra_repr(self) -> str:
        """Directions by head, for ``print(model)``."""
        return f"directions=[{', '.join(self.directions)}], masks_diagonal={self.masks_diagonal}"


class DistancePenalty(AttentionBias):
    """Logits lose alpha per position of distance: alpha * M_dis with M_dis[i, j] = -|i - j| (arXiv:1712.02047, Eq. 7).

    Args:
        alphas: one per head.
        learned: the alphas are parameters, and these their first values.

    Raises:
        ValueError: if an alpha is negative or not finite.
    """

    def __init__(self, alphas: Sequence[float], learned: bool = False) -> None:
        super().__init__()
        for alpha in alphas:
            if not 0 <= alpha <= _HIGHEST_ALPHA:
                raise ValueError(
                    f"the alpha of the distance mask must be a finite number of at least 0, but got {alpha}."
                )
        self.first_alphas = tuple(alphas)
        self.learned = learned
        values = torch.tensor([float(alpha) for alpha in alphas])
        if learned:
            self.alphas = nn.Parameter(values)
        else:
            self.register_buffer("alphas", values, persistent=False)

    def forward(self, lengths: Tensor) -> Windows:
        """See ``AttentionBias.forward``."""
        whole = lengths.new_full((1, len(self.alphas)), UNLIMITED)
        return Windows(-whole, whole, self.alphas)

    def extra_repr(self) -> str:
        """Alphas by head as they were given, for ``print(model)``."""
        return f"alphas=[{', '.join(f'{alpha:g}' for alpha in self.first_alphas)}], learned={self.learned}"


def geometric_alphas(heads: int) -> list[float]:
    """2^(-8 h / H) for head h = 1 .. H (arXiv:2108.12409)."""
    return [2.0 ** (-8.0 * head / heads) for head in range(1, heads + 1)]


class SummedBias(AttentionBias):
    """The sum of several biases.

    Args:
        biases: at least one, of the same number of heads.
    """

    def __init__(self, biases: Sequence[AttentionBias]) -> None:
        super().__init__()
        self.biases = nn.ModuleList(biases)

    def forward(self, lengths: Tensor) -> Windows:
        """See ``AttentionBias.forward``."""
        return functools.reduce(Windows.intersect, (bias(lengths) for bias in self.biases))


def count_identity_heads(bias: AttentionBias, heads: int) -> int:
    """How many of the first heads see nothing but their own word in every sentence; at most ``heads`` - 1.

    Their weights are 1 whatever queries and keys are, which therefore need not be computed.
    """
    # Windows grow with the sentence: what is narrow in the longest is narrow in all.
    windows: Windows = bias(torch.tensor([1, 1 << 20], device="cpu"))  # needed also where models are built on "meta"
    alone = ((windows.first == 0) & (windows.last == 0)).all(0).tolist()
    return alone.index(False) if False in alone else heads - 1  # slices are never empty
