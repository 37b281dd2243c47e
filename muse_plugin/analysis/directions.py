"""The masks of the Distance-based Self-Attention Network, and what they do (arXiv:1712.02047, Figure 8)."""

import itertools
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
from muse_plugin.analysis.drawing import group_panels, label, open_panels
from muse_plugin.analysis.load import Observer, find_real
from muse_plugin.analysis.result import Result, group
from muse_plugin.modules.attends import AttentionWeights, MasksDistance, watch_attention
from muse_plugin.results.figures import COLORS

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

    ``distance_mask`` is with (the model's alpha) or without (alpha 0, the same parameters). Layers are counted from 1.
    """

    model: str
    direction: str
    layer: int
    distance_mask: str
    alpha: float
    offset_tokens: int
    weight: float


def find_directions(model: nn.Module) -> list[Site]:
    """Finds the attention that has a distance mask; none in other models."""
    return [site for site in find_sites(model) if isinstance(site.module, MasksDistance)]


class DirectionObserver(Observer):
    """Adds up weights by offset, with and without the distance mask; its sites are those of ``find_directions``."""

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites)
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
        stack.enter_context(watch_attention(modules, partial(self._add, True)))
        without = watch_attention(
            modules, partial(self._add, False), lambda module, *args: module.weigh_without_distance(*args)
        )
        stack.enter_context(without)
        return stack

    def _add(self, with_distance: bool, number: int, found: AttentionWeights) -> None:
        real = find_real(found.key_padding_mask, found.weights, 2)
        self.sums[number, with_distance].add(found.weights, real)


def read_masks(name: str, sites: Sequence[Site]) -> list[MaskRow]:
    """Reads both masks off the modules; those of the first head, since all heads and layers have the same."""
    rows = []
    for site in {site.side: site for site in sites}.values():
        first, last, slope = _describe_masks(site.module, MASK_LENGTH)
        for query, key in itertools.product(range(MASK_LENGTH), repeat=2):
            added = -slope * abs(key - query) if first <= key - query <= last else -math.inf
            rows.append(MaskRow(name, site.side, query, key, added))
    return rows


def _describe_masks(module: Any, length: int) -> tuple[int, int, float]:
    """The lowest and the highest offset that the first head sees, and what a word of distance costs."""
    windows = module.describe_masks(torch.tensor([length]))
    slope = 0.0 if windows.slopes is None else float(windows.slopes[0])
    return int(windows.first[0, 0]), int(windows.last[0, 0]), slope


def read_offsets(name: str, observer: DirectionObserver) -> list[OffsetRow]:
    """Sums to rows; see ``OffsetRow``. Offsets that the direction hides, or no sentence has, are left out."""
    rows = []
    for (number, with_distance), sums in observer.sums.items():
        site = observer.sites[number]
        first, last, alpha = _describe_masks(site.module, REACH)
        place = (name, site.side, site.layer, *(("with", alpha) if with_distance else ("without", 0.0)))
        means = sums.mean_weights().mean(0).tolist()
        for offset in range(max(-REACH, first), min(REACH, last) + 1):
            weight = means[offset + sums.reach]
            if not math.isnan(weight):
                rows.append(OffsetRow(*place, offset, weight))
    return rows


def make_results(masks: Sequence[MaskRow], offsets: Sequence[OffsetRow]) -> list[Result]:
    """Rows to results."""
    about_masks = (
        f"What direction and distance masks add to a logit, in a sentence of {MASK_LENGTH} words. Grey: hidden."
    )
    about_weights = (
        "Mean weight of the word at an offset (in tokens), over all words of the corpus that have a word there and "
        "over heads; with the model's alpha, and with alpha 0 and the same parameters."
    )
    title = "Distance network: weights with and without the distance mask"
    return [
        Result("direction_masks", "Distance network: the two masks", about_masks, masks, draw_masks),
        Result("direction_weights", title, about_weights, offsets, draw_offsets),
    ]


def draw_masks(rows: Sequence[MaskRow], path: Path) -> None:
    """Draws a heat map for each model and direction."""
    groups = group_panels(rows, "direction")
    lowest = min((row.added_to_logit for row in rows if math.isfinite(row.added_to_logit)), default=-1.0)
    with open_panels(path, 1.4 + 3.0 * len(groups), 3.3, 1, len(groups)) as (figure, (panels,)):
        for axes, (name, own) in zip(panels, groups, strict=True):
            table = np.full((MASK_LENGTH, MASK_LENGTH), math.nan)
            for row in own:
                if math.isfinite(row.added_to_logit):
                    table[row.query, row.key] = row.added_to_logit
            axes.set_facecolor(_HIDDEN_COLOR)
            image = axes.imshow(table, cmap="viridis", vmin=min(lowest, -1e-9), vmax=0)
            label(axes, name, "key (position)", "query (position)")
        figure.colorbar(image, ax=list(panels), label="added to the logit (nats)", shrink=0.85)


def draw_offsets(rows: Sequence[OffsetRow], path: Path) -> None:
    """Draws a panel for each model, a line for each direction and layer, with and without the distance mask."""
    models = group(rows, "model")
    with open_panels(path, 1.2 + 4.6 * len(models), 3.2, 1, len(models), sharey=True) as (_, (panels,)):
        for axes, (model, own) in zip(panels, models.items(), strict=True):
            layers = max(row.layer for row in own)
            for (direction, layer, mask), points in group(own, "direction", "layer", "distance_mask").items():
                place = direction if layers == 1 else f"{direction}, layer {layer}"
                axes.plot(
                    [row.offset_tokens for row in points],
                    [row.weight for row in points],
                    color=COLORS[0 if direction == FORWARD else 1],
                    linestyle="-" if mask == "with" else "--",
                    marker="o" if mask == "with" else "s",
                    markersize=3,
                    alpha=layer / layers,
                    label=f"{place}, alpha = {points[0].alpha:g}",
                )
            label(axes, model, "offset of the key (tokens)", grid="y")
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False, fontsize=8)
        label(panels[0], y="mean weight (0 to 1)")
