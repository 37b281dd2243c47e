"""Which windows the heads of every layer have: the allocation of scales (arXiv:1912.00544, Eqs. 11 and 12)."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from muse_plugin.analysis.drawing import add_legend, name_panel, shade
from muse_plugin.analysis.layers import iterate_layers
from muse_plugin.analysis.result import Result, unique
from muse_plugin.modules.attention_bias import MultiScaleWindows, Scale
from muse_plugin.results.figures import open_figure


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
    """Reads the windows of a model's heads.

    Args:
        name: of the model.
        model: with ``encoder`` and perhaps ``decoder``.

    Returns:
        A row for each scale and layer, narrow windows first; none if no head has a window.
    """
    rows = []
    for side, number, layer in iterate_layers(model):
        for module in layer.modules():
            if isinstance(module, MultiScaleWindows):
                counts = Counter(module.scales)
                rows += [
                    AllocationRow(name, side, number, str(scale), counts[scale]) for scale in sorted(counts, key=_order)
                ]
    return rows if any(row.scale != str(Scale()) for row in rows) else []


def _order(scale: Scale) -> tuple[int, int]:
    """Fixed widths, then parts of the sentence, then all of it."""
    if scale.window is not None:
        return 0, scale.window
    return (2, 0) if scale.divisor is None else (1, -scale.divisor)


def make_result(rows: Sequence[AllocationRow]) -> Result:
    """Rows to a result."""
    return Result(
        "allocation",
        "Multi-scale: heads per scale and layer",
        "How many heads of a layer look through windows of which width: in tokens, as a part of the sentence's length "
        "N, or without limit (all).",
        rows,
        lambda path: draw(rows, path),
    )


def draw(rows: Sequence[AllocationRow], path: Path) -> None:
    """Draws a bar for each layer, made of as many heads as each scale has."""
    models = unique([row.model for row in rows])
    groups = unique([(row.model, row.side) for row in rows])
    scales = sorted({row.scale for row in rows}, key=lambda text: _order(_parse(text)))
    layers = max(row.layer for row in rows)
    with open_figure(path, 1.4 + 3.6 * len(groups), 1.2 + 0.34 * layers, "--output") as figure:
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for axes, (model, side) in zip(panels, groups, strict=True):
            own = [row for row in rows if (row.model, row.side) == (model, side)]
            starts = dict.fromkeys((row.layer for row in own), 0)
            for scale in scales:
                for row in (row for row in own if row.scale == scale):
                    i = scales.index(scale)
                    axes.barh(
                        row.layer,
                        row.heads,
                        left=starts[row.layer],
                        color=shade(i, len(scales)),
                        edgecolor="white",
                        label=scale,
                    )
                    axes.text(
                        starts[row.layer] + row.heads / 2,
                        row.layer,
                        f"{row.heads}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="white" if i < 0.7 * len(scales) else "black",
                    )
                    starts[row.layer] += row.heads
            axes.set_yticks(sorted(starts))
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_xlabel("heads")
            axes.set_title(name_panel(model, side, models))
        panels[0].set_ylabel("layer (1 = bottom)")
        add_legend(panels, "window (tokens)")


def _parse(text: str) -> Scale:
    if text == str(Scale()):
        return Scale()
    return Scale(divisor=int(text[2:])) if text.startswith("N/") else Scale(int(text))
