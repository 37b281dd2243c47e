"""The masks of the Distance-based Self-Attention Network, and what they do (arXiv:1712.02047, Figure 8)."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from muse_plugin.analysis.attention_sites import FORWARD, Site, find_sites
from muse_plugin.analysis.attention_statistics import OffsetSums
from muse_plugin.analysis.drawing import name_panel
from muse_plugin.analysis.load import Observer
from muse_plugin.analysis.result import Result, unique
from muse_plugin.modules.attends import AttentionWeights, MasksDistance, watch_attention
from muse_plugin.results.figures import COLORS, GRID, open_figure

MASK_LENGTH = 12
REACH = 20
_HIDDEN_COLOR = "#d9dcdf"


class MaskRow(NamedTuple):
    """What the masks add to the logit of a key, seen from a query, in a sentence of ``MASK_LENGTH`` words.

    -inf for keys that the direction hides. Positions are counted from 0.
    """

    model: str
    direction: str
    query: int
    key: int
    added_to_logit: float


class OffsetRow(NamedTuple):
    """Mean weight (0 to 1) of the word at an offset, over the words that have one there and over heads.

    ``distance_mask`` is with (the model's alpha) or without (alpha 0, the same parameters).
    """

    model: str
    direction: str
    distance_mask: str
    alpha: float
    offset_tokens: int
    weight: float


def find_directions(model: nn.Module) -> list[Site]:
    """Finds the attention that has a distance mask; none in other models."""
    return [site for site in find_sites(model) if isinstance(site.module, MasksDistance)]


class DirectionObserver(Observer):
    """Adds up weights by offset, with and without the distance mask.

    Args:
        sites: of ``find_directions``.
    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        # One more than what is shown: the outermost offsets stand for all beyond.
        self.sums = {
            (number, with_distance): OffsetSums(site.heads, REACH + 1)
            for number, site in enumerate(sites)
            for with_distance in (True, False)
        }

    def watch(self) -> AbstractContextManager[Any]:
        """See ``Observer.watch``."""
        modules = [site.module for site in self.sites]
        stack = ExitStack()
        stack.enter_context(watch_attention(modules, partial(self._receive, True)))
        stack.enter_context(watch_attention(modules, partial(self._receive, False), _weigh_without_distance))
        return stack

    def _receive(self, with_distance: bool, number: int, found: AttentionWeights) -> None:
        weights, mask = found
        real = self.find_real(mask, weights.shape[0], weights.shape[2], weights.device)
        self.sums[number, with_distance].add(weights, real)


def _weigh_without_distance(module: Any, *args: Any) -> AttentionWeights:
    return module.weigh_without_distance(*args)


def read_masks(name: str, sites: Sequence[Site]) -> list[MaskRow]:
    """Reads both masks off the modules; those of the first head, since all heads have the same."""
    rows = []
    for site in sites:
        first, last, slope = _read_masks(site.module, MASK_LENGTH)
        for query in range(MASK_LENGTH):
            for key in range(MASK_LENGTH):
                offset = key - query
                added = -slope * abs(offset) if first <= offset <= last else -math.inf
                rows.append(MaskRow(name, site.side, query, key, added))
    return rows


def _read_masks(module: Any, length: int) -> tuple[int, int, float]:
    """The lowest and the highest offset that the first head sees, and what a word of distance costs."""
    windows = module.describe_masks(torch.tensor([length]))
    slope = 0.0 if windows.slopes is None else float(windows.slopes[0])
    return int(windows.first[0, 0]), int(windows.last[0, 0]), slope


def read_offsets(name: str, observer: DirectionObserver) -> list[OffsetRow]:
    """Sums to rows; see ``OffsetRow``. Offsets that the direction hides, or no sentence has, are left out."""
    rows = []
    for number, site in enumerate(observer.sites):
        first, last, alpha = _read_masks(site.module, REACH)
        for with_distance, mask in ((True, "with"), (False, "without")):
            sums = observer.sums[number, with_distance]
            means = sums.mean_weights().mean(0).tolist()
            for offset in range(-REACH, REACH + 1):
                weight = means[offset + sums.reach]
                if first <= offset <= last and not math.isnan(weight):
                    rows.append(OffsetRow(name, site.side, mask, alpha if with_distance else 0.0, offset, weight))
    return rows


def make_results(masks: Sequence[MaskRow], offsets: Sequence[OffsetRow]) -> list[Result]:
    """Rows to results."""
    return [
        Result(
            "direction_masks",
            "Distance network: the two masks",
            f"What direction and distance masks add to a logit, in a sentence of {MASK_LENGTH} words. Grey: hidden.",
            masks,
            lambda path: draw_masks(masks, path),
        ),
        Result(
            "direction_weights",
            "Distance network: weights with and without the distance mask",
            "Mean weight of the word at an offset (in tokens), over all words of the corpus that have a word there and "
            "over heads; with the model's alpha, and with alpha 0 and the same parameters.",
            offsets,
            lambda path: draw_offsets(offsets, path),
        ),
    ]


def draw_masks(rows: Sequence[MaskRow], path: Path) -> None:
    """Draws a heat map for each model and direction."""
    groups = unique([(row.model, row.direction) for row in rows])
    models = unique([row.model for row in rows])
    lowest = min((row.added_to_logit for row in rows if math.isfinite(row.added_to_logit)), default=-1.0)
    with open_figure(path, 1.4 + 3.0 * len(groups), 3.3, "--output") as figure:
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for axes, (model, direction) in zip(panels, groups, strict=True):
            table = np.full((MASK_LENGTH, MASK_LENGTH), math.nan)
            for row in rows:
                if (row.model, row.direction) == (model, direction) and math.isfinite(row.added_to_logit):
                    table[row.query, row.key] = row.added_to_logit
            axes.set_facecolor(_HIDDEN_COLOR)
            image = axes.imshow(table, cmap="viridis", vmin=min(lowest, -1e-9), vmax=0)
            axes.set_title(name_panel(model, direction, models))
            axes.set_xlabel("key (position)")
            axes.set_ylabel("query (position)")
        figure.colorbar(image, ax=list(panels), label="added to the logit (nats)", shrink=0.85)


def draw_offsets(rows: Sequence[OffsetRow], path: Path) -> None:
    """Draws a panel for each model, a line for each direction, with and without the distance mask."""
    models = unique([row.model for row in rows])
    with open_figure(path, 1.2 + 4.6 * len(models), 3.2, "--output") as figure:
        panels = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
        for axes, model in zip(panels, models, strict=True):
            own = [row for row in rows if row.model == model]
            for direction, mask in unique([(row.direction, row.distance_mask) for row in own]):
                points = [row for row in own if (row.direction, row.distance_mask) == (direction, mask)]
                axes.plot(
                    [row.offset_tokens for row in points],
                    [row.weight for row in points],
                    color=COLORS[0 if direction == FORWARD else 1],
                    linestyle="-" if mask == "with" else "--",
                    marker="o" if mask == "with" else "s",
                    markersize=3,
                    label=f"{direction}, alpha = {points[0].alpha:g}",
                )
            axes.set_title(model)
            axes.set_xlabel("offset of the key (tokens)")
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", **GRID)
            axes.legend(frameon=False, fontsize=8)
        panels[0].set_ylabel("mean weight (0 to 1)")
