"""BLEU of validation pairs against minutes of training: ``python plot_curve.py RUN/curve/*.json``; curve.sh calls it.

The table has for each training the minutes until it is as good as the worst one is in the end.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import table_and_figure
from results_table import read_records

from muse_plugin.results.figures import COLORS, MARKERS, open_figure


class Point(NamedTuple):
    """A checkpoint."""

    minutes: float
    bleu: float
    epoch: int


# By system and seed, in the order of time.
Curves = dict[tuple[str, str], list[Point]]


def parse(record: dict[str, Any]) -> tuple[tuple[str, str], Point]:
    """Which training a file of curve.sh is of, and its point."""
    settings = record["settings"]
    point = Point(float(settings["minutes"]), float(record["scores"]["tokenized_bleu"]["mean"]), int(settings["epoch"]))
    return (str(settings["system"]), str(settings["seed"])), point


def collect(paths: list[Path]) -> Curves:
    """Reads the files.

    Raises:
        ValueError: if curve.sh did not write one of them.
    """
    curves: Curves = defaultdict(list)
    for path in paths:
        for run, point in read_records(path, "curve.sh", parse):
            curves[run].append(point)
    return {run: sorted(points) for run, points in curves.items()}


def make_table(curves: Curves) -> str:
    """A Markdown table with a row per training."""
    common = min(points[-1].bleu for points in curves.values())
    rows = []
    for (system, seed), points in curves.items():
        reached = next(point for point in points if point.bleu >= common)
        bound = "at most " if reached is points[0] and reached.epoch > 1 else ""  # epochs before have no checkpoint
        rows.append(
            [system, seed, f"{points[-1].bleu:.1f}", f"{points[-1].minutes:.1f}", f"{bound}{reached.minutes:.1f}"]
        )
    return markdown_table.make_table(["system", "seed", "BLEU in the end", "minutes", f"minutes to {common:.1f}"], rows)


def draw(curves: Curves, path: Path) -> None:
    """Writes the figure: a line per training, a colour per system."""
    systems = list(dict.fromkeys(system for system, _ in curves))
    with open_figure(path, 5.6, 3.4, "--output") as figure:
        axes = figure.add_subplot()
        axes.grid()
        for place, system in enumerate(systems):
            style = {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 4}
            label = system  # once, not for each seed
            for points in (points for (name, _), points in curves.items() if name == system):
                axes.plot([p.minutes for p in points], [p.bleu for p in points], label=label, **style)
                label = None
        axes.set_xlabel("minutes of training")
        axes.set_ylabel("BLEU of validation pairs")
        axes.legend(frameon=False, loc="lower right")


def main() -> int:
    return table_and_figure.run("plot_curve", __doc__.split("\n")[0], collect, make_table, draw)


if __name__ == "__main__":
    sys.exit(main())
