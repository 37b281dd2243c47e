"""Compares models over the domains of MTL-16: ``python compare.py runs/mtl16/*/*/results/*.json --output RESULTS.md``.

Every file is one evaluation (``muse-plugin score-labels --output``). The table has a row per domain and, for each
model, mean and deviation over seeds next to the published number. Below it, the first model against each other one: a
paired t-test and Wilcoxon's signed-rank test on the domains' means. ``--keep RUNS.jsonl`` writes the runs, a line each;
such a file can be given later next to further ones.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, Optional

from scipy import stats

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import results_table
from tab_table import read_table

# What tells the runs of one comparison apart; everything else must be the same in all of them.
VARYING = ("model", "seed", "parameters", "train_command", "test_set", "data_domain", "data_test")
ORDER = (
    "multi_scale_transformer",
    "sentence_transformer",
    "sentence_muse",
    "sentence_bigru",
    "sentence_cnn",
    "sentence_average",
)
TITLES = {
    "multi_scale_transformer": "MS-Trans",
    "sentence_transformer": "Transformer",
    "sentence_muse": "MUSE encoder",
    "sentence_bigru": "BiGRU",
    "sentence_cnn": "CNN",
    "sentence_average": "average of words",
    "linear": "linear, words and pairs of words",
}
PUBLISHED_TITLES = {"sentence_bigru": "BiLSTM"}


class Run(NamedTuple):
    """One evaluation: who, on what, how well."""

    model: str
    domain: str
    seed: str
    test: str
    accuracy: float
    settings: dict[str, str]
    record: dict[str, Any]


def read_runs(path: Path) -> list[Run]:
    """Reads a file of ``muse-plugin score-labels``, or a ``.jsonl`` file of ``--keep``.

    Raises:
        ValueError: if it is none of this recipe.
    """
    return results_table.read_records(path, "examples/mtl16/evaluate.sh", parse_run)


def parse_run(record: dict[str, Any]) -> Run:
    settings = {name: str(value) for name, value in record["settings"].items()}
    accuracy = float(record["scores"]["accuracy"]["mean"])
    names = [settings[name] for name in ("model", "data_domain", "seed", "data_test")]
    return Run(*names, accuracy, settings, record)


def read_published(path: Path) -> dict[str, dict[str, float]]:
    """Domain -> model -> accuracy."""
    return {
        row["domain"]: {model: float(value) for model, value in row.items() if model != "domain"}
        for row in read_table(path)
    }


def check_settings(runs: list[Run]) -> None:
    """Runs may only differ in model, domain and seed.

    Raises:
        ValueError: if they differ in anything else, or one of them is there twice.
    """
    names = sorted({name for run in runs for name in run.settings if not name.startswith("seconds_")} - set(VARYING))
    results_table.check_alike([run.settings for run in runs], names)
    results_table.check_once(f"{run.model} on {run.domain} with seed {run.seed}" for run in runs)
    for domain in {run.domain for run in runs}:
        if len({run.test for run in runs if run.domain == domain}) > 1:
            raise ValueError(f"{domain} has results on its official and on a held-out test set; give one of them.")


def compare(first: list[float], other: list[float]) -> Optional[dict[str, float]]:
    """Tests whether two models differ, paired by domain; None where there is nothing to test.

    Args:
        first: accuracy on each domain.
        other: of the other model, on the same domains.
    """
    differences = [a - b for a, b in zip(first, other, strict=True)]
    if len(differences) < 2 or len(set(differences)) == 1:
        return None
    return {
        "difference": mean(differences),
        "better": sum(d > 0 for d in differences),
        "worse": sum(d < 0 for d in differences),
        "t_p": float(stats.ttest_rel(first, other).pvalue),
        "wilcoxon_p": float(stats.wilcoxon(first, other).pvalue),
    }


def make_report(runs: list[Run], published: dict[str, dict[str, float]]) -> str:
    """The table, the tests, and what held for all runs."""
    check_settings(runs)
    if runs[0].settings.get("data_trial", "0") != "0" or runs[0].settings.get("flags"):
        published = {}  # next to a trial or a changed model they say nothing
    models = sorted({run.model for run in runs}, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    known = {run.domain for run in runs}
    domains = [name for name in published if name in known] + sorted(known - set(published))
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.seed):
        scores[run.model, run.domain].append(run.accuracy)
    held_out = {run.domain for run in runs if run.test == "held-out"}

    header = ["domain"]
    for model in models:
        header.append(TITLES.get(model, model))
        if any(model in row for row in published.values()):
            header.append(f"{PUBLISHED_TITLES.get(model, TITLES.get(model, model))}, paper")
    rows = []
    for domain in domains:
        cells = [domain + (" (held out)" if domain in held_out else "")]
        for model in models:
            cells.append(markdown_table.format_mean(scores[model, domain]))
            if any(model in row for row in published.values()):
                number = published.get(domain, {}).get(model)
                cells.append("" if number is None else f"{number:.2f}")
        rows.append(cells)
    complete = [domain for domain in domains if all(scores[model, domain] for model in models)]
    if complete:
        cells = [f"average of {len(complete)}"]
        for model in models:
            cells.append(f"{mean(mean(scores[model, domain]) for domain in complete):.2f}")
            if any(model in row for row in published.values()):
                numbers = [published[domain][model] for domain in complete if domain in published]
                cells.append(f"{mean(numbers):.2f}" if numbers else "")
        rows.append(cells)

    text = markdown_table.make_table(header, rows) + "\n\n"
    text += "Test accuracy in percent; ± is the deviation over seeds."
    if published:
        text += (
            " Paper: arXiv:1912.00544, Table 3, one run each, with GloVe vectors, character n-grams and a training "
            "that it does not describe: another setting."
        )
    text += "\n"
    if held_out:
        text += (
            "Held out: the last training lines are the test set, so less is left to train on, and the number is not "
            "comparable with the paper's.\n"
        )
    missing = [domain for domain in domains if domain not in complete]
    if missing:
        text += f"Not in the average and the tests, since a model is missing: {', '.join(missing)}.\n"
    text += "\n" + describe_tests(models, complete, scores) + "\n" + describe_conditions(runs)
    return text


def describe_tests(models: list[str], domains: list[str], scores: dict[tuple[str, str], list[float]]) -> str:
    """The first model against each other one, a line each."""
    first = [mean(scores[models[0], domain]) for domain in domains]
    lines = []
    for model in models[1:]:
        other = [mean(scores[model, domain]) for domain in domains]
        title = f"- {TITLES.get(models[0], models[0])} minus {TITLES.get(model, model)}"
        result = compare(first, other)
        if result is None:
            lines.append(f"{title}: nothing to test on {len(domains)} domains")
            continue
        lines.append(
            f"{title}: {result['difference']:+.2f} on average, better on {result['better']}, worse on "
            f"{result['worse']} of {len(domains)} domains; paired t-test p = {result['t_p']:.4f}, Wilcoxon signed-rank "
            f"p = {result['wilcoxon_p']:.4f}"
        )
    return "\n".join(lines) + ("\n" if lines else "")


def describe_conditions(runs: list[Run]) -> str:
    """Seeds, settings, versions, hardware and commit."""
    seeds = sorted({run.seed for run in runs}, key=lambda seed: (len(seed), seed))
    counts = sorted({len({r.seed for r in runs if r.model == run.model and r.domain == run.domain}) for run in runs})
    settings = {
        name: value
        for name, value in runs[0].settings.items()
        if name not in VARYING and not name.startswith("seconds_")
    }
    facts = {
        "seeds": ", ".join(seeds) + (f" (per cell {counts[0]} to {counts[-1]})" if len(counts) > 1 else ""),
        "settings": "; ".join(f"{name} = {value}" for name, value in settings.items()),
    }
    for title, found in results_table.find_conditions([run.record for run in runs]).items():
        facts[title] = "; ".join(found)
    return "\n".join(f"- {name}: `{value}`" for name, value in facts.items()) + "\n"


def main() -> int:
    def make(args: argparse.Namespace) -> tuple[str, list[dict[str, Any]]]:
        runs = [run for path in args.results for run in read_runs(path)]
        runs.sort(key=lambda run: (run.domain, run.model, len(run.seed), run.seed))
        return make_report(runs, read_published(args.published)), [run.record for run in runs]

    published = Path(__file__).with_name("published.tsv")
    return results_table.run("compare", __doc__.split("\n")[0], make, published)


if __name__ == "__main__":
    sys.exit(main())
