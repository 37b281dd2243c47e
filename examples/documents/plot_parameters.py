"""Accuracy against parameters, as the paper's Figure 3.

``python plot_parameters.py RUN/results/test.json ... --output parameters.svg``: a point per row of ``compare.py``'s
table, the mean over folds and seeds of the test accuracy and of all parameters, those of the word vectors among them;
bars are deviations. Files of ``compare.py --keep`` are read, too.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean

from results import Result, read_results

from muse_plugin.results.deviation import mean_and_deviation
from muse_plugin.results.figures import COLORS, MARKERS, check_format, open_figure

_LONGEST_OF_TWO = 34  # characters of a label that leave room for another next to it


def collect(results: list[Result]) -> dict[str, list[Result]]:
    """The test results of each row, without floors, which have no parameters.

    Raises:
        ValueError: if nothing is left.
    """
    rows: dict[str, list[Result]] = {}
    for result in results:
        if result.test_set == "test" and result.parameters is not None:
            rows.setdefault(result.label + (f", {result.heads} heads" if result.heads else ""), []).append(result)
    if not rows:
        raise ValueError(
            "some results must be of test documents and of networks, but none are; give RUN/results/test.json."
        )
    return rows


def draw(rows: dict[str, list[Result]], path: Path) -> None:
    """Writes the figure."""
    columns = 2 if max(map(len, rows)) <= _LONGEST_OF_TWO else 1
    with open_figure(path, 6.2, 3.2 + 0.2 * -(-len(rows) // columns), "--output") as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        for place, (label, results) in enumerate(rows.items()):
            accuracy, deviation = mean_and_deviation([result.accuracy for result in results])
            axes.errorbar(
                mean(result.parameters or 0 for result in results) / 1e6,
                accuracy,
                deviation or 0.0,
                color=COLORS[place % len(COLORS)],
                marker=MARKERS[(place + place // len(COLORS)) % len(MARKERS)],
                linestyle="none",
                capsize=3,
                label=label,
            )
        axes.set_xlabel("parameters, millions")
        axes.set_ylabel(f"test accuracy, {next(iter(rows.values()))[0].dataset}, %")
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        check_format(args.output, "--output")
        rows = collect(read_results(args.results))
        draw(rows, args.output)
    except (OSError, ValueError, ImportError) as error:
        print(f"plot_parameters: error: {error}", file=sys.stderr)
        return 2
    for label, results in rows.items():
        print(f"{label}: {mean(result.parameters or 0 for result in results):,.0f} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
