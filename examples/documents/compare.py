"""Compares models of documents: ``python compare.py RUN/results/*.json --output OUT.md --keep RUNS.jsonl``.

A row per model: accuracy on the test documents, mean and deviation over folds and seeds; that of the one run with the
best accuracy on its validation documents; the published number, unless runs are trials or had arguments of their own.
A file of ``--keep`` can be given later with further ones.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
from results import PUBLISHED, Result, read_results, results_table
from tab_table import read_table


def read_published(path: Path) -> dict[tuple[str, str], str]:
    """Accuracy by model and data set.

    Raises:
        ValueError: if a row has another number of columns than the first.
    """
    return {
        (row["model"], dataset): value
        for row in read_table(path)
        for dataset, value in row.items()
        if dataset != "model" and value != "-"
    }


def make_table(results: list[Result], published: dict[tuple[str, str], str]) -> str:
    """A Markdown table.

    Raises:
        ValueError: if a run lacks one of its two results.
    """
    accuracies: dict[tuple[str, str, str], dict[tuple[int, int], dict[str, float]]] = {}
    for result in results:
        runs = accuracies.setdefault((result.name, result.label, result.heads), {})
        runs.setdefault(result.run, {})[result.test_set] = result.accuracy
    dataset, settings = results[0].dataset, results[0].settings
    changes = [f"{name} = {settings[name]}" for name, value in PUBLISHED.items() if settings.get(name, value) != value]
    header = [dataset, "runs", "validation", "test", "test, of the best by validation"]
    if settings.get("data_trial", "0") == "0" and not settings.get("flags"):
        header.append("published, another setting" if changes else "published")
    rows = []
    for (name, label, heads), runs in accuracies.items():
        for run, found in runs.items():
            missing = {"valid", "test"} - set(found)
            if missing:
                raise ValueError(
                    f"every run must have results for valid and test, but {name}, fold {run[0]}, seed {run[1]} lacks "
                    f"{missing.pop()}; run evaluate.sh again."
                )
        best = max(runs.values(), key=lambda found: found["valid"])
        cells = [
            f"{label}, {heads} heads" if heads else label,
            str(len(runs)),
            *(
                markdown_table.format_mean([found[test_set] for found in runs.values()])
                for test_set in ("valid", "test")
            ),
            f"{best['test']:.2f}",
            published.get((name, dataset), "") if not heads else "",
        ]
        rows.append(cells[: len(header)])
    text = markdown_table.make_table(header, rows) + "\n"
    if changes:
        text += f"\nNot the published setting: {', '.join(changes)}.\n"
    return text


def main() -> int:
    def make(args: argparse.Namespace) -> tuple[str, list[dict[str, Any]]]:
        results = read_results(args.results)
        return make_table(results, read_published(args.published)), [result.record for result in results]

    published = Path(__file__).with_name("published.tsv")
    return results_table.run("compare", __doc__.split("\n")[0], make, published)


if __name__ == "__main__":
    sys.exit(main())
