"""Accuracy against heads: ``python plot_heads.py RUN/results/test.json ... --table HEADS.md --output heads.svg``."""

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev

from results import Result, read_results, show

from muse_plugin.results.figures import COLORS, GRID, MARKERS, check_format, open_figure


def collect(results: list[Result]) -> dict[str, dict[int, list[float]]]:
    """Model -> heads -> accuracies of its runs.

    Raises:
        ValueError: if a result does not say how many heads there were.
    """
    curves: dict[str, dict[int, list[float]]] = {}
    for result in results:
        if not result.heads:
            raise ValueError(f"results must be of runs with HEADS, but one of {result.label} is not; use heads.sh.")
        curves.setdefault(result.label, {}).setdefault(int(result.heads), []).append(result.accuracy)
    return curves


def make_table(curves: dict[str, dict[int, list[float]]]) -> str:
    """A Markdown table: a row per number of heads, a column per model."""
    lines = ["| heads | " + " | ".join(curves) + " |", "|--:|" + "--:|" * len(curves)]
    for heads in sorted({heads for curve in curves.values() for heads in curve}):
        cells = [show(curve[heads]) if heads in curve else "" for curve in curves.values()]
        lines.append("| " + " | ".join([str(heads), *cells]) + " |")
    return "\n".join(lines)


def draw(curves: dict[str, dict[int, list[float]]], path: Path) -> None:
    """Writes the figure."""
    with open_figure(path, 4.6, 3.2, "--output") as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y", **GRID)
        axes.set_axisbelow(True)
        for (name, curve), color, marker in zip(curves.items(), COLORS, MARKERS, strict=False):
            points = sorted(curve.items())
            spread = [stdev(values) if len(values) > 1 else 0.0 for _, values in points]
            axes.errorbar(
                [heads for heads, _ in points],
                [mean(values) for _, values in points],
                yerr=spread if any(spread) else None,
                color=color,
                marker=marker,
                markersize=5,
                capsize=3,
                label=name,
            )
        axes.set_xticks(sorted({heads for curve in curves.values() for heads in curve}))
        axes.set_xlabel("heads")
        axes.set_ylabel("accuracy on test documents, %")
        axes.legend(frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        check_format(args.output, "--output")
        curves = collect(read_results(args.results))
        table = make_table(curves)
        args.table.write_text(table + "\n", encoding="utf-8")
        print(table)
        draw(curves, args.output)
    except (OSError, ValueError, ImportError) as error:
        print(f"plot_heads: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
