"""Validation accuracy by epoch for each number of heads, as the paper's Figure 5.

``python plot_heads.py RUN/results/valid.json ... --table HEADS.md --output heads.svg``; the numbers are those of
``RUN/train.log``.
"""

import sys
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import table_and_figure
from results import read_results

from muse_plugin.analysis.training_log import read_run
from muse_plugin.results.figures import import_matplotlib, open_figure

Curves = dict[str, dict[int, list[list[float]]]]


def collect(paths: list[Path]) -> Curves:
    """Model -> heads -> for each run the validation accuracy of its epochs, in percent.

    Raises:
        ValueError: if a result does not say how many heads there were, or a log has no validation.
    """
    curves: Curves = {}
    for result in read_results(paths):
        if not result.heads:
            raise ValueError(f"results must be of runs with HEADS, but one of {result.label} is not; use heads.sh.")
        log = result.path.parents[1] / "train.log"
        rows = read_run(log, result.label)
        epochs = [row.value for row in rows if (row.part, row.measure) == ("valid", "accuracy_percent")]
        if not epochs:
            raise ValueError(f"{log} must have a validation after every epoch, but has none; train again.")
        curves.setdefault(result.label, {}).setdefault(int(result.heads), []).append(epochs)
    return curves


def make_table(curves: Curves) -> str:
    """A Markdown table of the best epochs: a row per number of heads, a column per model."""
    rows = [
        [
            str(heads),
            *(markdown_table.format_mean([max(run) for run in curve.get(heads, [])]) for curve in curves.values()),
        ]
        for heads in sorted({heads for curve in curves.values() for heads in curve})
    ]
    return markdown_table.make_table(["heads", *curves], rows, num_left=0)


def draw(curves: Curves, path: Path) -> None:
    """Writes the figure: a panel per model, a line per number of heads, the mean of the runs that got so far."""
    colors = import_matplotlib("--output").colormaps["viridis"]
    with open_figure(path, 4.6 * len(curves), 3.2, "--output") as figure:
        for axes, (name, curve) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
            axes.grid(axis="y")
            for place, (heads, runs) in enumerate(sorted(curve.items())):
                longest = max(map(len, runs))
                means = [mean(run[epoch] for run in runs if epoch < len(run)) for epoch in range(longest)]
                color = colors(0.9 * place / max(len(curve) - 1, 1))
                axes.plot(range(1, longest + 1), means, color=color, marker=".", label=str(heads))
            axes.set_title(name)
            axes.set_xlabel("epoch")
            axes.set_ylabel("accuracy on validation documents, %")
            axes.legend(title="heads", frameon=False, loc="lower right")


def main() -> int:
    return table_and_figure.run("plot_heads", __doc__.split("\n")[0], collect, make_table, draw)


if __name__ == "__main__":
    sys.exit(main())
