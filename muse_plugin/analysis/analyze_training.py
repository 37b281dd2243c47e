"""``muse-plugin analyze training``: several training runs in one plot, loss, BLEU, learning rate, gradient norm.

``training_log.py`` reads what fairseq-train has reported.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muse_plugin.analysis.drawing import add_legend, label, open_grid
from muse_plugin.analysis.report import REPORT_NAME, check_output, write_results
from muse_plugin.analysis.result import Result, group
from muse_plugin.analysis.training_log import EPOCH, INNER, LABELS, TrainingRow, read_run
from muse_plugin.results.figures import COLORS, MARKERS, as_written

_LOGARITHMIC = ("perplexity",)
_COLUMNS = 3
_MOST_MARKED = 40  # points of a line that have markers


def run(args: argparse.Namespace) -> None:
    """Draws training runs; the body of ``muse-plugin analyze training``.

    Raises:
        ValueError: if there is no log, a log has no numbers, or the names do not fit the logs.
        FileNotFoundError: if a log does not exist.
    """
    logs = [*args.logs, *args.more_logs]
    if not logs:
        raise ValueError("training needs at least one log of fairseq-train, but got none; name the files.")
    names = args.names or name_runs(logs)
    if len(names) != len(logs) or len(set(names)) != len(names):
        raise ValueError(
            f"--names must have a different name for each of --logs, but got {len(names)} names ({', '.join(names)}) "
            f"for {len(logs)} logs."
        )
    if len(names) > len(COLORS):
        raise ValueError(
            f"--logs must name at most {len(COLORS)} runs, which is how many colours can be told apart, but got "
            f"{len(names)}; draw them in several figures."
        )
    check_output(args.output)
    rows = [row for path, name in zip(logs, names, strict=True) for row in read_run(path, name)]
    record = {"runs": [{"name": name, "log": str(path)} for path, name in zip(logs, names, strict=True)]}
    text = (
        "Lines: training, as means since the last line of the log (or over an epoch, where the log has no more). "
        "Markers with dashes: validation. The x axis counts updates. Losses are in bits, as fairseq logs them."
    )
    write_results(args.output, "Training", [Result("training", "Training", text, rows, draw)], {}, record)
    sys.stdout.write(f"1 figure with its numbers written; open {args.output / REPORT_NAME}\n")


def name_runs(paths: Sequence[Path]) -> list[str]:
    """Short names of runs: the parts of their paths that are not the same for all.

    Raises:
        ValueError: if a path is there twice.
    """
    if len(paths) == 1:
        return [paths[0].stem]
    seen: dict[Path, Path] = {}
    for path in paths:
        if seen.setdefault(path.resolve(), path) is not path:
            raise ValueError(f"each log must be of another training, but {path} is given twice; name it once.")
    parts = [path.absolute().parts for path in paths]
    start = next((i for i, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1), 0)
    ends = [list(part[start:]) for part in parts]
    while all(len(end) > 1 for end in ends) and len({end[-1] for end in ends}) == 1:
        ends = [end[:-1] for end in ends]
    return ["/".join(end) for end in ends]


def draw(rows: Sequence[TrainingRow], path: Path) -> None:
    """Draws a panel for each measure, a colour for each run."""
    runs, by_measure = list(group(rows, "run")), group(rows, "measure")
    measures = [measure for measure in LABELS if measure in by_measure]
    with open_grid(path, len(measures), _COLUMNS, 3.3, 2.5, 1.8) as (_, panels, _):
        for axes, measure in zip(panels, measures, strict=True):
            for name, own in group(by_measure[measure], "run").items():
                _draw_run(axes, own, name, runs.index(name))
            label(axes, x="updates", y=LABELS[measure], grid="y")
            if measure in _LOGARITHMIC:
                axes.set_yscale("log")
        add_legend(panels[:_COLUMNS])


def _draw_run(axes: Any, rows: Sequence[TrainingRow], name: str, i: int) -> None:
    parts = group(rows, "part")
    if INNER in parts:
        parts.pop(EPOCH, None)
    for part, own in parts.items():
        trains = part in (INNER, EPOCH)
        axes.plot(
            [row.updates for row in own],
            [row.value for row in own],
            color=COLORS[i],
            linestyle="-" if trains else "--",
            marker=None if trains and len(own) > 1 else MARKERS[i],
            markevery=max(1, len(own) // _MOST_MARKED),
            markersize=3.5,
            lw=1.3,
            label=f"{as_written(name)}: {'train' if trains else part}",
        )
