"""How far heads look and how sharply, from statistics of a corpus.

Distributions over distances are the view of BERT in Guo et al. 2020 (arXiv:1912.00544, Figure 3), for any encoder.
Their figure counts the strongest edge of each word, of three heads of the first layer, up to half of the length: the
panel on the right, of all heads and with [CLS] and [SEP] as words. The other panels are shares of the weight.
Sharpness by the length of the sentence is MUSE's motivation: attention concentrates too much.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, Optional

import numpy as np
import torch

from muse_plugin.analysis.attention_sites import CROSS
from muse_plugin.analysis.attention_statistics import REACH
from muse_plugin.analysis.drawing import LAYER_AXIS, add_legend, group_panels, label, open_panels, shade, write_cells
from muse_plugin.analysis.load import AttentionObserver
from muse_plugin.analysis.result import Result, group
from muse_plugin.results.figures import COLORS, MARKERS, as_written

_SHOWN_SHARE = 0.98  # of the weight; the rest, far away, is in the table
_ANNOTATED_HEADS = 16
# What is drawn of sharpness, in this order, with the labels of the axes.
_MEASURES = {
    "entropy_bits": "entropy (bits)",
    "normalized_entropy": "normalised entropy (0 to 1)",
    "largest_weight": "largest weight (0 to 1)",
}


class HeadRow(NamedTuple):
    """One head: means over all words that look, of the whole corpus.

    The distance is sum_j w_ij |i - j|, blank for attention to another sentence. Entropy is in bits, and divided by the
    logarithm of the number of words there (0 to 1; a head with a window stays below 1). The largest weight is 0 to 1.
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
    """The share (0 to 1) of a head's weight that is at a distance, and that of the words whose strongest edge does.

    Those of ``REACH`` stand for all beyond, too.
    """

    model: str
    side: str
    layer: int
    head: int
    distance_tokens: int
    share: float
    strongest_share: float


class ConcentrationRow(NamedTuple):
    """Sharpness of one module in sentences of one range of lengths; means over words that look and over heads.

    The last range has no longest sentence. For the other columns see ``HeadRow``.
    """

    model: str
    side: str
    layer: int
    shortest_tokens: int
    longest_tokens: Optional[int]
    sentences: int
    entropy_bits: float
    normalized_entropy: float
    largest_weight: float


def read_tables(
    name: str, observer: AttentionObserver
) -> tuple[list[HeadRow], list[DistanceRow], list[ConcentrationRow]]:
    """What an observer has seen of the model called ``name`` to rows.

    Distances that no sentence has are left out, and so are those of attention to another sentence.
    """
    heads: list[HeadRow] = []
    distances: list[DistanceRow] = []
    sharpness: list[ConcentrationRow] = []
    for site, found in zip(observer.sites, observer.statistics, strict=True):
        place = name, site.side, site.layer
        means = [math.nan] * site.heads
        if found.offsets is not None:
            means = found.offsets.mean_distance().tolist()
            reach = found.offsets.reach
            shares = torch.stack([found.offsets.shares(), found.offsets.strongest()], dim=-1)  # (H, offsets, 2)
            both = shares[:, reach:] + shares[:, : reach + 1].flip(1)
            both[:, 0] /= 2  # the middle was counted twice
            # None where all sentences are of one word, and heads see what is before or after it.
            longest = max((i for i, share in enumerate(both[..., 0].amax(0).tolist()) if share > 0), default=-1)
            for head, row in enumerate(both[:, : longest + 1].tolist()):
                distances += [DistanceRow(*place, head, distance, *pair) for distance, pair in enumerate(row)]
        numbers = (part.tolist() for part in found.overall()[-3:])
        heads += [HeadRow(*place, head, *own) for head, own in enumerate(zip(means, *numbers, strict=True))]
        for *about, entropy, normalized, largest in found.by_length():
            values = (float(tensor.nanmean()) for tensor in (entropy, normalized, largest))
            sharpness.append(ConcentrationRow(*place, *about, *values))
    return heads, distances, sharpness


def make_results(
    heads: Sequence[HeadRow], distances: Sequence[DistanceRow], sharpness: Sequence[ConcentrationRow]
) -> list[Result]:
    """Rows to results."""
    attention_distance = Result(
        "attention_distance",
        "Attention: mean distance of every head",
        "How far a head looks on average, in tokens: the distance of a key, weighed by attention, mean over "
        "all words of the corpus. The table has the entropy (bits), its share of the largest possible one, and "
        "the largest weight of every head next to it, those of cross-attention too.",
        heads,
        draw_heads,
    )
    distribution = Result(
        "distance_distribution",
        "Attention: weight by distance",
        "How the weight of heads is spread over distances in tokens. Left: the heads of the lowest layer; "
        "middle: the mean over heads of every layer; right: of the lowest layer, the share of the words whose largest "
        "weight is at the distance, as in Figure 3 of arXiv:1912.00544. The figure leaves out the last "
        f"{1 - _SHOWN_SHARE:.0%} of the weight, and distances from {REACH} on, which are one row of the table.",
        distances,
        draw_distances,
    )
    concentration = Result(
        "concentration",
        "Attention: how sharp it is by sentence length",
        "The entropy of attention weights in bits, the same as a share of the largest possible one (that of equal "
        "weights), and the largest weight: means over words, heads and, in the figure, layers. Lengths are those of "
        "the sentence that is looked at, in tokens with the signs for beginning and end.",
        sharpness,
        draw_concentration,
    )
    looks_within = any(row.side != CROSS for row in heads)
    return [attention_distance, distribution, concentration] if looks_within else [concentration]


def draw_heads(rows: Sequence[HeadRow], path: Path) -> None:
    """Draws a table of layers and heads for each model and side, shaded by mean distance; not of cross-attention."""
    groups = group_panels([row for row in rows if row.side != CROSS])
    tables = [_tabulate(own) for _, own in groups]
    highest = max((float(np.nanmax(table)) for table in tables if not np.isnan(table).all()), default=1.0)
    layers, heads = (max(table.shape[axis] for table in tables) for axis in (0, 1))
    size = 1.6 + (max(2.2, 0.42 * heads) + 0.6) * len(groups), 1.3 + 0.32 * layers
    with open_panels(path, *size, 1, len(groups)) as (figure, (panels,)):
        for axes, (name, _), table in zip(panels, groups, tables, strict=True):
            image = axes.imshow(table, cmap="viridis", vmin=0, vmax=highest, aspect="auto", origin="lower")
            axes.set_xticks(range(table.shape[1]))
            axes.set_yticks(range(table.shape[0]), range(1, table.shape[0] + 1))
            label(axes, name, "head")
            if table.shape[1] <= _ANNOTATED_HEADS:
                write_cells(axes, table, table < 0.6 * highest, "{:.1f}".format, 7)
        label(panels[0], y=LAYER_AXIS)
        figure.colorbar(image, ax=list(panels), label="mean distance (tokens)")


def _tabulate(rows: Sequence[HeadRow]) -> np.ndarray:
    table = np.full((max(row.layer for row in rows), max(row.head for row in rows) + 1), math.nan)
    for row in rows:
        table[row.layer - 1, row.head] = row.mean_distance_tokens
    return table


def draw_distances(rows: Sequence[DistanceRow], path: Path) -> None:
    """Draws for each model and side: weights of the lowest layer, means by layer, strongest edges of the lowest."""
    groups = group_panels([row for row in rows if row.distance_tokens < REACH])  # REACH stands for all beyond
    with open_panels(path, 11.4, 0.4 + 2.4 * len(groups), len(groups), 3, sharey="row") as (_, panels):
        for (left, middle, right), (name, own) in zip(panels, groups, strict=True):
            layers = sorted(group(own, "layer").items())
            means = {layer: _average(_curves(found, "share")) for layer, found in layers}
            lowest, found = layers[0]
            shown = max(_count_shown(curve) for curve in means.values())
            for axes, column in ((left, "share"), (right, "strongest_share")):
                curves = _curves(found, column)
                for i, curve in enumerate(curves):
                    axes.plot(curve[:shown], color=COLORS[0], lw=0.8, alpha=0.6, label="a head" if i == 0 else None)
                axes.plot(_average(curves)[:shown], color=COLORS[1], lw=2.2, label="mean of heads")
            left.legend(frameon=False)
            for i, (layer, curve) in enumerate(means.items()):
                middle.plot(curve[:shown], color=shade(i, len(layers)), lw=1.6, label=f"{layer}")
            middle.legend(title="layer", frameon=False, fontsize=7, ncols=1 + len(layers) // 7)
            label(left, f"{name}\nheads of layer {lowest}", y="share (0 to 1)")
            label(middle, f"{name}\nmean over heads")
            label(right, f"{name}\nstrongest edges, layer {lowest}")
            left.set_ylim(bottom=0)
            for axes, what in ((left, "weight"), (middle, "weight"), (right, "words")):
                label(axes, x=f"distance of the key (tokens), share of {what}", grid="y", counts="x")


def _curves(rows: Sequence[DistanceRow], column: str) -> list[list[float]]:
    """A column by distance, for each head."""
    return [[getattr(row, column) for row in head] for head in group(rows, "head").values()]


def _average(curves: Sequence[Sequence[float]]) -> list[float]:
    return [sum(shares) / len(curves) for shares in zip_longest(*curves, fillvalue=0.0)]


def _count_shown(curve: Sequence[float]) -> int:
    """Distances from 0 until ``_SHOWN_SHARE`` of the weight is there; at least two."""
    running = np.cumsum(curve)
    return max(2, min(len(curve), int(np.searchsorted(running, _SHOWN_SHARE * running[-1])) + 1))


def draw_concentration(rows: Sequence[ConcentrationRow], path: Path) -> None:
    """Draws a row of panels for each side, a panel for each measure, a line for each model: means over layers."""
    sides, models = group(rows, "side"), list(group(rows, "model"))
    with open_panels(path, 9.6, 0.5 + 2.4 * len(sides), len(sides), len(_MEASURES)) as (_, panels):
        for line, (side, own) in zip(panels, sides.items(), strict=True):
            ranges = sorted({(row.shortest_tokens, row.longest_tokens or math.inf) for row in own})
            names = [f">{low - 1}" if math.isinf(high) else f"{low}-{high:.0f}" for low, high in ranges]
            for axes, (measure, name) in zip(line, _MEASURES.items(), strict=True):
                counted = [row for row in own if not math.isnan(getattr(row, measure))]
                layers = group(counted, "model", "shortest_tokens")
                for i, model in enumerate(models):
                    xs = [x for x, (low, _) in enumerate(ranges) if (model, low) in layers]
                    ys = [fmean(getattr(row, measure) for row in layers[model, ranges[x][0]]) for x in xs]
                    axes.plot(xs, ys, color=COLORS[i], marker=MARKERS[i], markersize=4.5, label=as_written(model))
                axes.set_xticks(range(len(ranges)), names, rotation=45, ha="right")
                label(axes, side, "sentence length (tokens)", name, grid="y")
                if axes.dataLim.y1 > 0:  # infinite where no point was drawn
                    axes.set_ylim(0, 1.1 * axes.dataLim.y1)
        if len(models) > 1:
            add_legend(panels[0])
