"""Which windows the heads of every layer have: the allocation of scales (arXiv:1912.00544, Eqs. 11 and 12)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from muse_plugin.analysis.drawing import LAYER_AXIS, add_legend, group_panels, label, open_panels, shade
from muse_plugin.analysis.layers import iterate_parts
from muse_plugin.analysis.result import Result, group
from muse_plugin.modules.attention_bias import MultiScaleWindows, Scale

_ALL = str(Scale())


class AllocationRow(NamedTuple):
    """How many heads of a layer look through windows of one width.

    The width is in tokens (in tokens to either side where scales are radii), a part of the sentence's length N, or all.
    """

    model: str
    side: str
    layer: int
    scale: str
    heads: int


def read_allocation(name: str, model: nn.Module) -> list[AllocationRow]:
    """A row for each scale and layer of the model called ``name``, narrow windows first; none if no head has one."""
    rows = [
        AllocationRow(name, side, number, scale, count)
        for side, number, module in iterate_parts(model, MultiScaleWindows)
        for scale, count in sorted(Counter(map(str, module.scales)).items(), key=lambda found: _order(found[0]))
    ]
    return rows if any(row.scale != _ALL for row in rows) else []


def _order(scale: str) -> tuple[int, int]:
    """Fixed widths, then parts of the sentence, then all of it."""
    if scale == _ALL:
        return 2, 0
    return (1, -int(scale[2:])) if scale.startswith("N/") else (0, int(scale))


def make_results(rows: Sequence[AllocationRow]) -> list[Result]:
    """Rows to a result."""
    text = (
        "How many heads of a layer look through windows of which width: in tokens, as a part of the sentence's length "
        "N, or without limit (all)."
    )
    return [Result("allocation", "Multi-scale: heads per scale and layer", text, rows, draw)]


def draw(rows: Sequence[AllocationRow], path: Path) -> None:
    """Draws a bar for each layer, made of as many heads as each scale has."""
    groups = group_panels(rows)
    scales = sorted(group(rows, "scale"), key=_order)
    size = 1.4 + 3.6 * len(groups), 1.2 + 0.34 * max(row.layer for row in rows)
    with open_panels(path, *size, 1, len(groups)) as (_, (panels,)):
        for axes, (name, own) in zip(panels, groups, strict=True):
            starts = dict.fromkeys((row.layer for row in own), 0)
            for i, scale in enumerate(scales):
                color = "white" if i < 0.7 * len(scales) else "black"
                for layer, heads in ((row.layer, row.heads) for row in own if row.scale == scale):
                    start = starts[layer]
                    axes.barh(layer, heads, left=start, color=shade(i, len(scales)), edgecolor="white", label=scale)
                    middle = start + heads / 2
                    axes.text(middle, layer, f"{heads}", ha="center", va="center", fontsize=8, color=color)
                    starts[layer] += heads
            axes.set_yticks(sorted(starts))
            label(axes, name, "heads", counts="x")
        label(panels[0], y=LAYER_AXIS)
        add_legend(panels, "window (tokens)")
