"""What convolutions learnt: the mean kernel of each size by layer (arXiv:1911.09483, section 2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from muse_plugin.analysis.drawing import add_legend, name_panel, shade
from muse_plugin.analysis.layers import iterate_layers
from muse_plugin.analysis.load import KernelObserver
from muse_plugin.analysis.result import Result, unique
from muse_plugin.modules.kernel_weights import HeadConv, find_kernels, list_offsets
from muse_plugin.results.figures import GRID, open_figure


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


class KernelSite(NamedTuple):
    """A convolution, and where it stands."""

    side: str
    layer: int
    module: HeadConv


def find_kernel_sites(model: nn.Module) -> list[KernelSite]:
    """Finds the convolutions with softmax-normalised kernels of a model, from the bottom."""
    return [
        KernelSite(side, number, module)
        for side, number, layer in iterate_layers(model)
        for module in find_kernels(layer)
    ]


def read_kernels(name: str, sites: Sequence[KernelSite], observer: KernelObserver) -> list[KernelRow]:
    """Means to rows; see ``KernelRow``.

    Args:
        name: of the model.
        sites: its convolutions.
        observer: that has watched them.
    """
    rows = []
    for site, mean in zip(sites, observer.means, strict=True):
        for size, kernels in zip(mean.kernel_sizes, mean.means(), strict=True):
            offsets = list_offsets(site.module, size)
            for head, kernel in enumerate(kernels.tolist()):
                place = (name, site.side, site.layer, size, head)
                rows += [KernelRow(*place, offset, weight) for offset, weight in zip(offsets, kernel, strict=True)]
    return rows


def make_result(rows: Sequence[KernelRow]) -> Result:
    """Rows to a result."""
    return Result(
        "kernels",
        "Kernels: mean weight by offset",
        "The kernels of each size, averaged over all words of the corpus (and, in the figure, over heads): the weight "
        "that a word gives another by their offset in tokens. The kernels of one size have a sum of 1.",
        rows,
        lambda path: draw(rows, path),
    )


def draw(rows: Sequence[KernelRow], path: Path) -> None:
    """Draws a row of panels for each model and side, a panel for each kernel size, a line for each layer."""
    models = unique([row.model for row in rows])
    groups = unique([(row.model, row.side) for row in rows])
    sizes = sorted({row.kernel_size_tokens for row in rows})
    layers = sorted({row.layer for row in rows})
    means = _average_heads(rows)
    with open_figure(path, 1.6 + 3.2 * len(sizes), 0.4 + 2.5 * len(groups), "--output") as figure:
        panels = figure.subplots(len(groups), len(sizes), squeeze=False)
        for row, (model, side) in zip(panels, groups, strict=True):
            for axes, size in zip(row, sizes, strict=True):
                for i, layer in enumerate(layers):
                    points = sorted(means.get((model, side, layer, size), {}).items())
                    if points:
                        axes.plot(*zip(*points, strict=True), color=shade(i, len(layers)), label=f"{layer}", lw=1.6)
                        axes.set_xlim(points[0][0] - 0.3, points[-1][0] + 0.3)
                axes.xaxis.get_major_locator().set_params(integer=True)
                axes.set_ylim(bottom=0)
                axes.set_title(f"{name_panel(model, side, models)}, kernel of {size}")
                axes.set_xlabel("offset of the word that is read (tokens)")
                axes.grid(axis="y", **GRID)
            row[0].set_ylabel("mean weight (0 to 1)")
        add_legend(list(panels.flat)[: len(sizes)], "layer")


def _average_heads(rows: Sequence[KernelRow]) -> dict[tuple[str, str, int, int], dict[int, float]]:
    """(model, side, layer, size) -> offset -> mean over heads."""
    sums: dict[tuple[str, str, int, int], dict[int, list[float]]] = {}
    for row in rows:
        key = (row.model, row.side, row.layer, row.kernel_size_tokens)
        sums.setdefault(key, {}).setdefault(row.offset_tokens, []).append(row.weight)
    return {
        key: {offset: sum(found) / len(found) for offset, found in offsets.items()} for key, offsets in sums.items()
    }
