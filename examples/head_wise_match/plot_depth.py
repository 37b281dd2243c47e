"""Accuracy against the layers of the encoder, as the paper's Figure 2: classic, single-level and multi-level match.

``python plot_depth.py RUN/results/test.json ... --table DEPTH.md --output depth.svg``; the runs are those of
``depth.sh``, or the lines of ``results_table.py --keep``.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import results_table
import table_and_figure
from compare import ENCODERS

from muse_plugin.results.deviation import mean_and_deviation
from muse_plugin.results.figures import COLORS, MARKERS, open_figure

SYSTEMS = {("classic", "-"): "classic", ("element", "last"): "single-level", ("element", "all"): "multi-level"}
Curves = dict[str, dict[str, dict[int, list[float]]]]  # encoder -> system -> layers -> accuracy of each seed, percent


def collect(paths: list[Path]) -> Curves:
    """Reads the evaluations.

    Raises:
        ValueError: if one is not of a run with LAYERS and TABLE=2, or they are of several test sets.
    """
    curves: Curves = {}
    places = set()
    for path, result in [(file, result) for file in paths for result in results_table.read_results(file)]:
        settings = dict(result.group)
        system = SYSTEMS.get((settings.get("match", ""), settings.get("levels", "")))
        if system is None or not settings.get("layers"):
            raise ValueError(
                f"results must be of runs with LAYERS and TABLE=2, but one of {path} is not; use depth.sh."
            )
        places.add((settings["data_dataset"], result.test_set))
        encoder = ENCODERS.get(settings["encoder"], settings["encoder"])
        curve = curves.setdefault(encoder, {name: {} for name in SYSTEMS.values()})[system]
        curve.setdefault(int(settings["layers"]), []).append(result.record["scores"]["accuracy"]["mean"])
    if len(places) > 1:
        named = " and ".join(" of ".join(reversed(place)) for place in sorted(places))
        raise ValueError(f"results must be of one test set, but they are of {named}; give fewer files.")
    return curves


def make_table(curves: Curves) -> str:
    """A Markdown table: a row per encoder and number of layers, a column per way to match."""
    rows = []
    for encoder, systems in curves.items():
        for layers in sorted({layers for curve in systems.values() for layers in curve}):
            cells = [markdown_table.format_mean(curve.get(layers, [])) for curve in systems.values()]
            rows.append([encoder, str(layers), *cells])
    return markdown_table.make_table(["encoder", "layers", *SYSTEMS.values()], rows)


def draw(curves: Curves, path: Path) -> None:
    """Writes the figure: a panel per encoder, a line per way to match; bars are deviations over seeds."""
    legend: dict[str, Any] = {}
    with open_figure(path, 1.2 + 3.6 * len(curves), 3.0, "--output") as figure:
        for axes, (encoder, systems) in zip(
            figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True
        ):
            axes.grid(axis="y")
            for (system, curve), color, marker in zip(systems.items(), COLORS, MARKERS, strict=False):
                points = sorted(curve.items())
                if not points:
                    continue
                means, deviations = zip(*(mean_and_deviation(values) for _, values in points), strict=True)
                line = axes.errorbar(
                    [layers for layers, _ in points], means, [deviation or 0.0 for deviation in deviations],
                    color=color, marker=marker, markersize=5, capsize=3, label=system,
                )  # fmt: skip
                legend.setdefault(system, line)
            axes.set_title(encoder)
            axes.set_xticks(sorted({layers for curve in systems.values() for layers in curve}))
            axes.set_xlabel("layers of the encoder")
            axes.set_ylabel("test accuracy, %")
        figure.legend(legend.values(), legend.keys(), loc="outside right upper", frameon=False)


def main() -> int:
    return table_and_figure.run("plot_depth", __doc__.split("\n")[0], collect, make_table, draw)


if __name__ == "__main__":
    sys.exit(main())
