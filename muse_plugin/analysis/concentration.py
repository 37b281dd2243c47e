"""How sharp attention is by the length of the sentence: MUSE's motivation is that it concentrates too much."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from muse_plugin.analysis.attention_sites import Site
from muse_plugin.analysis.attention_statistics import AttentionStatistics
from muse_plugin.analysis.drawing import add_legend
from muse_plugin.analysis.result import Result, unique
from muse_plugin.results.figures import COLORS, GRID, MARKERS, open_figure

# What is drawn, in this order, with the labels of the axes.
_MEASURES = {
    "entropy_bits": "entropy (bits)",
    "normalized_entropy": "normalised entropy (0 to 1)",
    "largest_weight": "largest weight (0 to 1)",
}


class ConcentrationRow(NamedTuple):
    """Sharpness of one module in sentences of one range of lengths; means over words that look and over heads.

    The last range has no longest sentence. For the other columns see ``HeadRow`` of ``attention_distance.py``.
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


def read_concentration(
    name: str, sites: Sequence[Site], statistics: Sequence[AttentionStatistics]
) -> list[ConcentrationRow]:
    """Statistics to rows; see ``ConcentrationRow``.

    Args:
        name: of the model.
        sites: where it attends.
        statistics: of each site.
    """
    rows = []
    for site, found in zip(sites, statistics, strict=True):
        for part in found.by_length():
            means = (float(tensor.nanmean()) for tensor in (part.entropy, part.normalized_entropy, part.largest))
            rows.append(ConcentrationRow(name, site.side, site.layer, part.low, part.high, part.sentences, *means))
    return rows


def make_result(rows: Sequence[ConcentrationRow]) -> Result:
    """Rows to a result."""
    return Result(
        "concentration",
        "Attention: how sharp it is by sentence length",
        "The entropy of attention weights in bits, the same as a share of the largest possible one (that of equal "
        "weights), and the largest weight: means over words, heads and, in the figure, layers. Lengths are those of "
        "the sentence that is looked at, in tokens with the signs for beginning and end.",
        rows,
        lambda path: draw(rows, path),
    )


def draw(rows: Sequence[ConcentrationRow], path: Path) -> None:
    """Draws a row of panels for each side, a panel for each measure, a line for each model."""
    sides, models = unique([row.side for row in rows]), unique([row.model for row in rows])
    with open_figure(path, 9.6, 0.5 + 2.4 * len(sides), "--output") as figure:
        panels = figure.subplots(len(sides), len(_MEASURES), squeeze=False)
        for line, side in zip(panels, sides, strict=True):
            own = [row for row in rows if row.side == side]
            ranges = sorted({(row.shortest_tokens, row.longest_tokens or math.inf) for row in own})
            for axes, (measure, label) in zip(line, _MEASURES.items(), strict=True):
                for i, model in enumerate(models):
                    means = _average_layers([row for row in own if row.model == model], measure)
                    points = [(x, means[low]) for x, (low, _) in enumerate(ranges) if low in means]
                    axes.plot(
                        [x for x, _ in points],
                        [y for _, y in points],
                        color=COLORS[i],
                        marker=MARKERS[i],
                        markersize=4.5,
                        label=model,
                    )
                axes.set_xticks(range(len(ranges)), [_name_range(*part) for part in ranges], rotation=45, ha="right")
                axes.set_xlabel("sentence length (tokens)")
                axes.set_ylabel(label)
                axes.set_title(side)
                axes.set_ylim(0, 1.1 * axes.dataLim.y1)
                axes.grid(axis="y", **GRID)
        if len(models) > 1:
            add_legend(panels[0])


def _average_layers(rows: Sequence[ConcentrationRow], measure: str) -> dict[int, float]:
    """Shortest length of a range -> mean over layers."""
    found: dict[int, list[float]] = {}
    for row in rows:
        value = getattr(row, measure)
        if not math.isnan(value):
            found.setdefault(row.shortest_tokens, []).append(value)
    return {low: sum(values) / len(values) for low, values in found.items()}


def _name_range(low: int, high: float) -> str:
    return f">{low - 1}" if math.isinf(high) else f"{low}-{high:.0f}"
