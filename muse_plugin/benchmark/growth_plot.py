"""Draws how the cost of decoding and training grows with the length of sentences."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from muse_plugin.benchmark.records import Record
from muse_plugin.results.figures import COLORS, MARKERS, open_figure

# By panel, then by system: points (length, milliseconds per token).
Curves = dict[str, dict[str, list[tuple[int, float]]]]


def collect(records: Iterable[Record]) -> Curves:
    """Sorts measurements into panels: one per setting, number of sentences and device, that has several lengths.

    Args:
        records: of the benchmarks "generate" or "train".

    Returns:
        Milliseconds per token against length, for systems with several lengths; empty if there are none.
    """
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for device, measurement in ((record.settings["device"], one) for record in records for one in record.measurements):
        if measurement.unit != "seconds":
            continue
        case = measurement.case
        title = case["setting"].replace("_", " ")
        title += f", batch {case['sentences']}" if "sentences" in case else ""
        title += f", beam {case['beam']}" if case.get("beam", 5) != 5 else ""
        title += f", {device}" if device != "cpu" else ""
        for name in filter(measurement.values.get, measurement.values):
            cost = 1e3 * measurement.spread(name).median / measurement.work["tokens"]
            panels.setdefault(title, {}).setdefault(name, {})[case["length"]] = cost
    curves = {
        title: {name: sorted(points.items()) for name, points in panel.items() if len(points) > 1}
        for title, panel in panels.items()
    }
    return {title: panel for title, panel in curves.items() if panel}


def draw(path: Path, panels: Curves, kind: str) -> None:
    """Draws the panels of ``collect`` side by side, of the benchmark "generate" or "train".

    Raises:
        ImportError: if matplotlib is not installed.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    with open_figure(path, 1.0 + 3.1 * columns, 0.7 + 2.6 * rows, "--figures") as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, (title, panel) in zip(grid.flat, panels.items(), strict=False):
            _draw_panel(axes, title, panel, names)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel("ms per token")
        for axes in grid[-1]:
            what = "source and translation" if kind == "generate" else "source and target"
            axes.set_xlabel(f"tokens of {what}")
        handles = {h.get_label(): h for axes in grid.flat for h in axes.get_lines()}
        ordered = [handles[name] for name in names]
        figure.legend(handles=ordered, loc="outside upper center", ncols=min(3, len(names)), frameon=False)


def _draw_panel(axes: Any, title: str, panel: dict[str, list[tuple[int, float]]], names: list[str]) -> None:
    for name, points in panel.items():
        i = names.index(name)
        style = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(*zip(*points, strict=True), label=name, markersize=4, linewidth=1.5, **style)
    lengths = sorted({x for points in panel.values() for x, _ in points})
    axes.set_xscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xticks([], minor=True)  # with their labels
    axes.set_ylim(bottom=0.0)
    axes.set_title(title, fontsize=9)
    axes.grid()
