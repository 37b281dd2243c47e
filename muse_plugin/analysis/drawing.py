"""What all figures have in common: panels and their names, legends, colours of layers, words as labels."""

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import numpy as np

from muse_plugin.analysis.result import group
from muse_plugin.results.figures import as_written, open_figure

LAYER_AXIS = "layer (1 = bottom)"
_LONGEST_WORD = 14  # characters of a label
_LONGEST_NAME = 14  # characters of a model that is in one line with a side
_LAST_SHADE = 0.88  # viridis without its palest yellow, which paper swallows


@contextmanager
def open_panels(
    path: Path, width: float, height: float, lines: int = 1, columns: int = 1, **settings: Any
) -> Iterator[tuple[Any, Any]]:
    """Opens a figure of ``width`` times ``height`` inches; yields it and its panels, an array (lines, columns)."""
    with open_figure(path, width, height, "--output") as figure:
        yield figure, figure.subplots(lines, columns, squeeze=False, **settings)


@contextmanager
def open_grid(
    path: Path, count: int, most: int, width: float, height: float, margin: float, **settings: Any
) -> Iterator[tuple[Any, Any, Any]]:
    """Opens a figure of ``count`` panels, each of ``width`` times ``height`` inches, at most ``most`` in a line.

    Yields:
        The figure, all panels, and those at the left; ``margin`` is the width of what is next to them.
    """
    columns = min(most, count)
    lines = math.ceil(count / columns)
    size = margin + width * columns, 0.3 + height * lines
    with open_panels(path, *size, lines, columns, **settings) as (figure, panels):
        for axes in panels.flat[count:]:
            axes.set_axis_off()
        yield figure, panels.flat[:count], panels[:, 0]


def label(axes: Any, title: Optional[str] = None, x: str = "", y: str = "", grid: str = "", counts: str = "") -> None:
    """Names a panel and its axes, with lines for the values of ``grid`` ("x", "y") and whole numbers on ``counts``."""
    if title is not None:
        axes.set_title(title)
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    if grid:
        axes.grid(axis=grid)
    for axis in counts:
        getattr(axes, f"{axis}axis").get_major_locator().set_params(integer=True)


def write_cells(axes: Any, table: np.ndarray, dark: np.ndarray, write: Callable[[float], str], fontsize: float) -> None:
    """Writes numbers into the cells of an image, in white on those that are dark; nothing where there is no number."""
    for (y, x), value in np.ndenumerate(table):
        if not math.isnan(value):
            color = "white" if dark[y, x] else "black"
            axes.text(x, y, write(value), ha="center", va="center", fontsize=fontsize, color=color)


def add_legend(panels: Sequence[Any], title: str = "") -> None:
    """Puts one legend for all panels to the right of the last."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    panels[-1].legend(
        found.values(),
        found.keys(),
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        frameon=False,
        title=title or None,
        alignment="left",
    )


def shade(number: int, count: int) -> Any:
    """A colour for entry ``number`` (from 0) of an ordered series: dark first; told apart in grey, too."""
    colormap = importlib.import_module("matplotlib").colormaps["viridis"]
    return colormap(_LAST_SHADE * number / max(1, count - 1))


def label_words(words: Sequence[str], longest: int = _LONGEST_WORD) -> list[str]:
    """Words as labels: long ones are cut, and nothing in them is a formula."""
    cut = [word if len(word) <= longest else word[: longest - 1] + "…" for word in words]
    return list(map(as_written, cut))


def group_panels(rows: Sequence[Any], side: str = "side") -> list[tuple[str, list[Any]]]:
    """Rows by model and the column ``side``, with the title of each panel: the side, and of two models the model."""
    alone = len(group(rows, "model")) == 1
    return [
        (name if alone else as_written(model) + (": " if len(model) <= _LONGEST_NAME else "\n") + name, own)
        for (model, name), own in group(rows, "model", side).items()
    ]
