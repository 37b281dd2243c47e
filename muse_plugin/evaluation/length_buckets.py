"""Sentences by the length of their source. Buckets of long sentences are small, so each comes with its count.

The MUSE paper's Figure 7 counts words and shows the mean of sentence BLEU, see ``sentence_bleu.py``; the paper says
neither, but its curve is that of no other choice.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Optional

from muse_plugin_command.flags.evaluate import DEFAULT_BOUNDS


class Bucket(NamedTuple):
    """The sentences of one range of lengths.

    Attributes:
        low: shortest length in it; an empty sentence is in the first bucket, which starts at 1.
        high: longest length in it, or None in the last.
        members: positions of the sentences in the test set.
    """

    low: int
    high: Optional[int]
    members: list[int]

    @property
    def label(self) -> str:
        """The range as the paper writes it: ``16-30``, ``>105``."""
        if self.high is None:
            return f">{self.low - 1}"
        return str(self.high) if self.low == self.high else f"{self.low}-{self.high}"


def parse_bounds(text: str) -> list[int]:
    """Reads ``--length-buckets``: the upper bounds of all buckets but the last.

    Raises:
        ValueError: if they are no increasing whole numbers from 1 on.
    """
    try:
        bounds = [int(part) for part in text.split(",")]
    except ValueError:
        bounds = []
    if not bounds or bounds[0] < 1 or any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(
            f"--length-buckets must be increasing whole numbers from 1 on with commas between them, but got '{text}'; "
            f"an example is {DEFAULT_BOUNDS}."
        )
    return bounds


def make_buckets(lengths: Sequence[int], bounds: Sequence[int]) -> list[Bucket]:
    """Sorts sentences into buckets.

    Args:
        lengths: length of each source sentence.
        bounds: increasing upper bounds; one more bucket has everything above the last.
    """
    lows = [1, *(bound + 1 for bound in bounds)]
    buckets = [Bucket(low, high, []) for low, high in zip(lows, [*bounds, None], strict=True)]
    for position, length in enumerate(lengths):
        next(b for b in buckets if b.high is None or length <= b.high).members.append(position)
    return buckets
