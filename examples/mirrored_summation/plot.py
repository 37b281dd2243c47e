"""Draws the error against K and judges the order: ``python plot.py runs/mirrored_summation/cpu/*/*/results.json``.

``--output FIGURE.svg FIGURE.png`` draws; without it only the table and the verdict are printed. Three grey lines show
what predictions reach that learn less than the products, for K up to half of the length (``LANDMARKS``).
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import results_table

from muse_plugin.results.deviation import mean_and_deviation
from muse_plugin.results.figures import COLORS, MARKERS, check_format, open_figure

WRITER = "examples/mirrored_summation/evaluate.sh"
MODELS = {
    "hier_s": "Hier-S, 2 layers, windows of 3",
    "deep_hier_s": "deepHier-S, 6 layers, windows of 3",
    "flex": "Flex, 2 layers, windows of 3 to N/2",
    "transformer": "Transformer, 2 layers",
}
# Six layers of small windows count as hardly better than two if they win at most this share of what flex wins.
LITTLE = 0.5


class Point(NamedTuple):
    """The errors of a model at one K, one per seed."""

    terms: int
    errors: list[float]


class Landmark(NamedTuple):
    """The error of the best prediction of one kind.

    Attributes:
        name: of the kind.
        error: for K and N, the number of products (at most N / 2) and the number of words.
        line: style of its line.
    """

    name: str
    error: Callable[[int, int], float]
    line: str


# A product of two numbers drawn from [0, 1] has the variance 7/144, of which 6/144 are linear in the two. With the mean
# of all N words, the sum of K products shares (K / 12)² / (N / 12) of its variance.
LANDMARKS = (
    Landmark("best constant", lambda k, n: 7 * k / 144, "--"),
    Landmark("best from the mean of all words", lambda k, n: 7 * k / 144 - k * k / (12 * n), "-."),
    Landmark("best linear in the words", lambda k, n: k / 144, ":"),
)


# What all runs must have in common besides their sizes.
TRAINING = ("lr", "warmup", "batch", "epochs", "patience", "decay", "flags")


class Results(NamedTuple):
    """What the files hold.

    Attributes:
        models: model -> its points, by growing K.
        length: number of words of a sentence.
        trial: whether they are of TRIAL=1.
    """

    models: dict[str, list[Point]]
    length: int
    trial: bool

    @property
    def terms(self) -> list[int]:
        """Every K, growing."""
        return sorted({point.terms for points in self.models.values() for point in points})


def read_results(paths: list[Path]) -> Results:
    """Reads what evaluate.sh wrote.

    Raises:
        ValueError: if a file is none of this recipe, or if files belong to different settings.
    """
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    kinds, trainings = set(), []
    for path in paths:
        for system, error, kind, training in results_table.read_records(path, WRITER, parse_run):
            errors[system].append(error)
            kinds.add(kind)
            trainings.append(training)
    results_table.check_alike(trainings, TRAINING)
    if len(kinds) > 1:
        raise ValueError(f"all files must have the same sizes, but they have {sorted(kinds)}.")
    (kind,) = kinds
    found: dict[str, list[Point]] = {}
    for model in [*MODELS, *sorted({model for model, _ in errors} - set(MODELS))]:
        points = [Point(terms, values) for (name, terms), values in sorted(errors.items()) if name == model]
        if points:
            found[model] = points
    return Results(found, kind[2], kind[0] == "trial")


def parse_run(record: dict[str, Any]) -> tuple[tuple[str, int], float, tuple[Any, ...], dict[str, str]]:
    """Model and K, the error, the sizes, the length third, and how it was trained."""
    settings = record["settings"]
    training = {name: str(settings.get(name, "")) for name in TRAINING}
    kind = settings["profile"], settings["sentences"], int(settings["length"]), settings["vector"], settings["width"]
    return (settings["model"], int(settings["terms"])), float(record["scores"]["mse"]["mean"]), kind, training


def make_table(results: Results) -> str:
    """A Markdown table: a row per K, a column per landmark and model."""
    names = [landmark.name for landmark in LANDMARKS] + list(results.models)
    rows = []
    for terms in results.terms:
        cells = [str(terms), *(f"{landmark.error(terms, results.length):.4f}" for landmark in LANDMARKS)]
        for points in results.models.values():
            values = next((point.errors for point in points if point.terms == terms), [])
            cells.append(markdown_table.format_mean(values, 4))
        rows.append(cells)
    return markdown_table.make_table(["K", *names], rows, num_left=0)


def judge(models: dict[str, list[Point]]) -> tuple[list[str], bool]:
    """Whether the published order holds, a sentence for each K that has all four models.

    Returns:
        The sentences, and whether it holds for every K; false if there is nothing to judge.
    """
    by_model = {model: {point.terms: mean(point.errors) for point in points} for model, points in models.items()}
    sentences, holds = [], []
    shared = set.intersection(*(set(by_model.get(model, {})) for model in MODELS))
    for terms in sorted(shared):
        transformer, flex = by_model["transformer"][terms], by_model["flex"][terms]
        hier, deep = by_model["hier_s"][terms], by_model["deep_hier_s"][terms]
        faults = []
        if not transformer < min(flex, hier, deep):
            faults.append("the Transformer is not the best")
        if not flex < min(hier, deep):
            faults.append("flex does not beat both stacks of small windows")
        elif not hier - deep <= LITTLE * (hier - flex):
            faults.append("six layers of small windows win more than a little over two")
        holds.append(not faults)
        sentences.append(f"K = {terms}: {'the published order holds' if not faults else '; '.join(faults)}")
    return sentences, bool(holds) and all(holds)


def draw(results: Results, path: Path) -> None:
    """Writes the figure."""
    with open_figure(path, 5.2, 3.6, "--output") as figure:
        axes = figure.add_subplot()
        axes.grid(axis="y")
        fine = range(results.terms[0], results.terms[-1] + 1)
        for landmark in LANDMARKS:
            errors = [landmark.error(k, results.length) for k in fine]
            axes.plot(fine, errors, color="#6b6f73", linewidth=1, linestyle=landmark.line, label=landmark.name)
        for (model, points), color, marker in zip(results.models.items(), COLORS, MARKERS, strict=False):
            means, deviations = zip(*(mean_and_deviation(point.errors) for point in points), strict=True)
            axes.errorbar(
                [point.terms for point in points],
                means,
                yerr=[deviation or 0.0 for deviation in deviations] if any(deviations) else None,
                color=color,
                marker=marker,
                markersize=5,
                capsize=3,
                label=MODELS.get(model, model),
            )
        axes.set_xticks(results.terms)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("K, products in the sum")
        axes.set_ylabel("mean squared error per number")
        axes.legend(frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="files that evaluate.sh wrote")
    parser.add_argument("--output", type=Path, nargs="+", default=[], help="figures: .svg, .png or .pdf")
    args = parser.parse_args()
    try:
        for path in args.output:
            check_format(path, "--output")
        results = read_results(args.results)
        print(make_table(results))
        sentences, holds = judge(results.models)
        for path in args.output:
            draw(results, path)
            print(f"drawn: {path}")
    except (OSError, ValueError, ImportError) as error:
        print(f"plot: error: {error}", file=sys.stderr)
        return 2
    if sentences and results.trial:
        print("nothing to judge: these are trials")
        return 0
    print("\n".join(sentences) if sentences else "nothing to judge: no K has all four models")
    if sentences:
        print("The published order holds." if holds else "The published order does not hold for every K.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
