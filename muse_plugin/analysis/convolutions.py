"""What convolutions learnt: gates between kernel sizes, and mean kernels, by layer (arXiv:1911.09483).

The published trend of gates (Figure 8): small kernels lose weight with depth.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from torch import nn

from muse_plugin.analysis.attention_sites import Site
from muse_plugin.analysis.drawing import LAYER_AXIS, add_legend, group_panels, label, open_panels, shade
from muse_plugin.analysis.layers import iterate_layers, iterate_parts
from muse_plugin.analysis.load import KernelObserver
from muse_plugin.analysis.result import Result, group
from muse_plugin.modules.gated_conv import GatedConv
from muse_plugin.modules.kernel_weights import find_kernels, list_offsets
from muse_plugin.results.figures import COLORS, MARKERS, as_written

_LINES = ("-", "--")


class GateRow(NamedTuple):
    """The weight of one kernel size in one layer; sizes are in tokens, weights of a layer have a sum of 1."""

    model: str
    side: str
    layer: int
    kernel_size_tokens: int
    weight: float


class KernelRow(NamedTuple):
    """The mean weight that a head of a convolution gives a word by its offset, over all words of the corpus.

    Offsets are positions after (positive) or before (negative) the word; weights of a kernel have a sum of 1.
    """

    model: str
    side: str
    layer: int
    kernel_size_tokens: int
    head: int
    offset_tokens: int
    weight: float


def read_gates(name: str, model: nn.Module) -> list[GateRow]:
    """A row for each kernel size of every gate of the model called ``name``; none if it has no gate."""
    return [
        GateRow(name, side, number, size, weight)
        for side, number, module in iterate_parts(model, GatedConv)
        if module.gate is not None
        for size, weight in zip(module.kernel_sizes, module.gate_weights().tolist(), strict=True)
    ]


def find_kernel_sites(model: nn.Module) -> list[Site]:
    """Finds the convolutions with softmax-normalised kernels of a model, from the bottom."""
    return [
        Site(side, number, module.num_heads, module)
        for side, number, layer in iterate_layers(model)
        for module in find_kernels(layer)
    ]


def read_kernels(name: str, observer: KernelObserver) -> list[KernelRow]:
    """The means of what an observer has seen of the model called ``name`` to rows."""
    return [
        KernelRow(name, site.side, site.layer, size, head, offset, weight)
        for site, mean in zip(observer.sites, observer.means, strict=True)
        for size, kernels in zip(mean.kernel_sizes, mean.means(), strict=True)
        for head, kernel in enumerate(kernels.tolist())
        for offset, weight in zip(list_offsets(site.module, size), kernel, strict=True)
    ]


def make_gate_results(rows: Sequence[GateRow]) -> list[Result]:
    """Rows to a result."""
    text = (
        "The softmax of the gate between kernels of several sizes (in tokens), for every layer from the bottom (1) up."
    )
    return [Result("gates", "Gates: weight of each kernel size by layer", text, rows, draw_gates)]


def make_kernel_results(rows: Sequence[KernelRow]) -> list[Result]:
    """Rows to a result."""
    text = (
        "The kernels of each size, averaged over all words of the corpus (and, in the figure, over heads): the weight "
        "that a word gives another by their offset in tokens. The kernels of one size have a sum of 1."
    )
    return [Result("kernels", "Kernels: mean weight by offset", text, rows, draw_kernels)]


def draw_gates(rows: Sequence[GateRow], path: Path) -> None:
    """Draws a panel for each side, a line for each kernel size and model."""
    sides, models = group(rows, "side"), list(group(rows, "model"))
    sizes = sorted(group(rows, "kernel_size_tokens"))
    with open_panels(path, 0.6 + 3.4 * len(sides), 3.0, 1, len(sides), sharey=True) as (_, (panels,)):
        for axes, (side, own) in zip(panels, sides.items(), strict=True):
            for style, model in zip(_LINES, models, strict=False):
                for i, size in enumerate(sizes):
                    points = [row for row in own if (row.model, row.kernel_size_tokens) == (model, size)]
                    axes.plot(
                        [row.layer for row in points],
                        [row.weight for row in points],
                        linestyle=style,
                        color=COLORS[i % len(COLORS)],
                        marker=MARKERS[i % len(MARKERS)],
                        markersize=4.5,
                        label=f"{size} tokens" + (f", {as_written(model)}" if len(models) > 1 else ""),
                    )
            label(axes, side, LAYER_AXIS, grid="y")
            axes.set_xticks(sorted(group(own, "layer")))
            axes.set_ylim(0, 1)
        label(panels[0], y="weight of the kernel size (0 to 1)")
        add_legend(panels)


def draw_kernels(rows: Sequence[KernelRow], path: Path) -> None:
    """Draws a row of panels for each model and side, a panel for each kernel size, a line for each layer."""
    groups, sizes, layers = group_panels(rows), sorted(group(rows, "kernel_size_tokens")), group(rows, "layer")
    size = 1.6 + 3.2 * len(sizes), 0.4 + 2.5 * len(groups)
    with open_panels(path, *size, len(groups), len(sizes)) as (_, panels):
        for line, (name, own) in zip(panels, groups, strict=True):
            for axes, size in zip(line, sizes, strict=True):
                for i, layer in enumerate(sorted(layers)):
                    found = [row for row in own if (row.layer, row.kernel_size_tokens) == (layer, size)]
                    if found:
                        offsets = group(found, "offset_tokens")
                        xs = sorted(offsets)
                        ys = [fmean(row.weight for row in offsets[x]) for x in xs]
                        axes.plot(xs, ys, color=shade(i, len(layers)), label=f"{layer}", lw=1.6)
                        axes.set_xlim(xs[0] - 0.3, xs[-1] + 0.3)
                axes.set_ylim(bottom=0)
                label(
                    axes, f"{name}, kernel of {size}", "offset of the word that is read (tokens)", grid="y", counts="x"
                )
            label(line[0], y="mean weight (0 to 1)")
        add_legend(panels.flat[: len(sizes)], "layer")
