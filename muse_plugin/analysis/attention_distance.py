"""How far heads look: mean distance of every head, and how weight is spread over distances.

The second is the view of BERT in Guo et al. 2020 (arXiv:1912.00544, Figure 3), for any encoder.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muse_plugin.analysis.attention_sites import CROSS, Site
from muse_plugin.analysis.attention_statistics import REACH, AttentionStatistics
from muse_plugin.analysis.drawing import name_panel, shade
from muse_plugin.analysis.result import Result, unique
from muse_plugin.results.figures import COLORS, GRID, open_figure

_SHOWN_SHARE = 0.98  # of the weight; the rest, far away, is in the table
_ANNOTATED_HEADS = 16


class HeadRow(NamedTuple):
    """One head: means over all words that look, of the whole corpus.

    The distance is sum_j w_ij |i - j|, blank for attention to another sentence. Entropy is in bits, and divided by the
    logarithm of the number of keys to choose from (0 to 1). The largest weight is 0 to 1.
    """

    model: str
    side: str
    layer: int
    head: int
    mean_distance_tokens: float
    entropy_bits: float
    normalized_entropy: float
    largest_weight: float


class DistanceRow(NamedTuple):
    """The share (0 to 1) of a head's weight that lies at a distance; that of ``REACH`` stands for all beyond, too."""

    model: str
    side: str
    layer: int
    head: int
    distance_tokens: int
    share: float


def read_heads(name: str, sites: Sequence[Site], statistics: Sequence[AttentionStatistics]) -> list[HeadRow]:
    """Statistics to rows; see ``HeadRow``.

    Args:
        name: of the model.
        sites: where it attends.
        statistics: of each site.
    """
    rows = []
    for site, found in zip(sites, statistics, strict=True):
        distances = [math.nan] * site.heads if found.offsets is None else found.offsets.mean_distance().tolist()
        whole = found.overall()
        numbers = zip(
            distances, whole.entropy.tolist(), whole.normalized_entropy.tolist(), whole.largest.tolist(), strict=True
        )
        rows += [HeadRow(name, site.side, site.layer, head, *values) for head, values in enumerate(numbers)]
    return rows


def read_distances(name: str, sites: Sequence[Site], statistics: Sequence[AttentionStatistics]) -> list[DistanceRow]:
    """Statistics to rows; see ``DistanceRow``. Distances that no sentence has are left out.

    Args:
        name: of the model.
        sites: where it attends.
        statistics: of each site; attention to another sentence is passed over.
    """
    rows = []
    for site, found in zip(sites, statistics, strict=True):
        if found.offsets is None:
            continue
        reach, shares = found.offsets.reach, found.offsets.shares()
        both = shares[:, reach:] + shares[:, : reach + 1].flip(1)
        both[:, 0] /= 2  # the middle was counted twice
        longest = int(both.amax(0).gt(0).nonzero().max())
        for head, row in enumerate(both[:, : longest + 1].tolist()):
            place = (name, site.side, site.layer, head)
            rows += [DistanceRow(*place, distance, share) for distance, share in enumerate(row)]
    return rows


def make_results(heads: Sequence[HeadRow], distances: Sequence[DistanceRow]) -> list[Result]:
    """Rows to results."""
    own = [row for row in heads if row.side != CROSS]
    results = []
    if own:
        results.append(
            Result(
                "attention_distance",
                "Attention: mean distance of every head",
                "How far a head looks on average, in tokens: the distance of a key, weighed by attention, mean over "
                "all words of the corpus. The table has the entropy (bits), its share of the largest possible one, and "
                "the largest weight of every head beside it, those of cross-attention too.",
                heads,
                lambda path: draw_heads(own, path),
            )
        )
        results.append(
            Result(
                "distance_distribution",
                "Attention: weight by distance",
                "How the weight of heads is spread over distances in tokens. Left: the heads of the lowest layer; "
                f"right: the mean over heads of every layer. The figure leaves out the last {1 - _SHOWN_SHARE:.0%} of "
                f"the weight, and distances from {REACH} on, which are one row of the table.",
                distances,
                lambda path: draw_distances(distances, path),
            )
        )
    return results


def draw_heads(rows: Sequence[HeadRow], path: Path) -> None:
    """Draws a table of layers and heads for each model and side, shaded by mean distance."""
    models = unique([row.model for row in rows])
    groups = unique([(row.model, row.side) for row in rows])
    highest = max((r.mean_distance_tokens for r in rows if not math.isnan(r.mean_distance_tokens)), default=1.0)
    heads = max(row.head for row in rows) + 1
    layers = max(row.layer for row in rows)
    width = max(2.2, 0.42 * heads)
    with open_figure(path, 1.6 + (width + 0.6) * len(groups), 1.3 + 0.32 * layers, "--output") as figure:
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for axes, (model, side) in zip(panels, groups, strict=True):
            own = [row for row in rows if (row.model, row.side) == (model, side)]
            table = _tabulate(own)
            image = axes.imshow(table, cmap="viridis", vmin=0, vmax=highest, aspect="auto", origin="lower")
            axes.set_xticks(range(table.shape[1]))
            axes.set_yticks(range(table.shape[0]), range(1, table.shape[0] + 1))
            axes.set_xlabel("head")
            axes.set_title(name_panel(model, side, models))
            if table.shape[1] <= _ANNOTATED_HEADS:
                for (y, x), value in np.ndenumerate(table):
                    if not math.isnan(value):
                        color = "white" if value < 0.6 * highest else "black"
                        axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7, color=color)
        panels[0].set_ylabel("layer (1 = bottom)")
        figure.colorbar(image, ax=list(panels), label="mean distance (tokens)")


def _tabulate(rows: Sequence[HeadRow]) -> np.ndarray:
    table = np.full((max(row.layer for row in rows), max(row.head for row in rows) + 1), math.nan)
    for row in rows:
        table[row.layer - 1, row.head] = row.mean_distance_tokens
    return table


def draw_distances(rows: Sequence[DistanceRow], path: Path) -> None:
    """Draws two panels for each model and side: heads of the lowest layer, and means over heads by layer."""
    models = unique([row.model for row in rows])
    groups = unique([(row.model, row.side) for row in rows])
    with open_figure(path, 8.2, 0.4 + 2.4 * len(groups), "--output") as figure:
        panels = figure.subplots(len(groups), 2, squeeze=False, sharey="row")
        for (left, right), (model, side) in zip(panels, groups, strict=True):
            curves = _collect([row for row in rows if (row.model, row.side) == (model, side)])
            layers = sorted({layer for layer, _ in curves})
            lowest = [curve for (layer, _), curve in curves.items() if layer == layers[0]]
            means = [_average([c for (layer, _), c in curves.items() if layer == number]) for number in layers]
            shown = max(_count_shown(curve) for curve in [*means, _average(lowest)])
            for i, curve in enumerate(lowest):
                left.plot(curve[:shown], color=COLORS[0], lw=0.8, alpha=0.6, label="a head" if i == 0 else None)
            left.plot(_average(lowest)[:shown], color=COLORS[1], lw=2.2, label="mean of heads")
            left.legend(frameon=False)
            for i, (layer, curve) in enumerate(zip(layers, means, strict=True)):
                right.plot(curve[:shown], color=shade(i, len(layers)), lw=1.6, label=f"{layer}")
            right.legend(
                title="layer", loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, ncols=1 + len(layers) // 9
            )
            name = name_panel(model, side, models)
            left.set_title(f"{name}\nheads of layer {layers[0]}")
            right.set_title(f"{name}\nmean over heads")
            left.set_ylabel("share of weight (0 to 1)")
            left.set_ylim(bottom=0)
            for axes in (left, right):
                axes.set_xlabel("distance of the key (tokens)")
                axes.xaxis.get_major_locator().set_params(integer=True)
                axes.grid(axis="y", **GRID)


def _collect(rows: Sequence[DistanceRow]) -> dict[tuple[int, int], list[float]]:
    """(layer, head) -> share at distance 0, 1, ..."""
    curves: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row.distance_tokens < REACH:  # which stands for all beyond
            curves.setdefault((row.layer, row.head), []).append(row.share)
    return curves


def _average(curves: Sequence[Sequence[float]]) -> list[float]:
    longest = max(map(len, curves))
    table = [[*curve, *[0.0] * (longest - len(curve))] for curve in curves]
    return [sum(column) / len(column) for column in zip(*table, strict=True)]


def _count_shown(curve: Sequence[float]) -> int:
    """Distances from 0 until ``_SHOWN_SHARE`` of the weight is there; at least two."""
    running = np.cumsum(curve)
    return max(2, min(len(curve), int(np.searchsorted(running, _SHOWN_SHARE * running[-1])) + 1))
