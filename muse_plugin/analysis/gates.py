"""How much each kernel size counts in every layer: the gates of MUSE (arXiv:1911.09483, Figure 8).

The published trend: small kernels lose weight with depth.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from muse_plugin.analysis.drawing import add_legend
from muse_plugin.analysis.layers import iterate_layers
from muse_plugin.analysis.result import Result, unique
from muse_plugin.modules.gated_conv import GatedConv
from muse_plugin.results.figures import COLORS, GRID, MARKERS, open_figure

_LINES = ("-", "--")


class GateRow(NamedTuple):
    """The weight of one kernel size in one layer; sizes are in tokens, weights of a layer have a sum of 1."""

    model: str
    side: str
    layer: int
    kernel_size_tokens: int
    weight: float


def read_gates(name: str, model: nn.Module) -> list[GateRow]:
    """Reads the gates of a model.

    Args:
        name: of the model.
        model: with ``encoder`` and perhaps ``decoder``.

    Returns:
        A row for each kernel size of every gate; none if the model has no gate.
    """
    rows = []
    for side, number, layer in iterate_layers(model):
        for module in layer.modules():
            if isinstance(module, GatedConv) and module.gate is not None:
                weights = zip(module.kernel_sizes, module.gate_weights().tolist(), strict=True)
                rows += [GateRow(name, side, number, size, weight) for size, weight in weights]
    return rows


def make_result(rows: Sequence[GateRow]) -> Result:
    """Rows to a result."""
    return Result(
        "gates",
        "Gates: weight of each kernel size by layer",
        "The softmax of the gate between kernels of several sizes (in tokens), for every layer from the bottom (1) up.",
        rows,
        lambda path: draw(rows, path),
    )


def draw(rows: Sequence[GateRow], path: Path) -> None:
    """Draws a panel for each side, a line for each kernel size and model."""
    sides, models = unique([row.side for row in rows]), unique([row.model for row in rows])
    sizes = sorted({row.kernel_size_tokens for row in rows})
    with open_figure(path, 0.6 + 3.4 * len(sides), 3.0, "--output") as figure:
        panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
        for axes, side in zip(panels, sides, strict=True):
            for style, model in zip(_LINES, models, strict=False):
                for i, size in enumerate(sizes):
                    points = [r for r in rows if (r.model, r.side, r.kernel_size_tokens) == (model, side, size)]
                    axes.plot(
                        [row.layer for row in points],
                        [row.weight for row in points],
                        linestyle=style,
                        color=COLORS[i % len(COLORS)],
                        marker=MARKERS[i % len(MARKERS)],
                        markersize=4.5,
                        label=f"{size} tokens" + (f", {model}" if len(models) > 1 else ""),
                    )
            axes.set_title(side)
            axes.set_xlabel("layer (1 = bottom)")
            axes.set_xticks(sorted({row.layer for row in rows if row.side == side}))
            axes.set_ylim(0, 1)
            axes.grid(axis="y", **GRID)
        panels[0].set_ylabel("weight of the kernel size (0 to 1)")
        add_legend(panels)
