"""Compares systems of head-wise match: ``python compare.py runs/head_wise_match/snli/*/results/*.json``.

Every file is one evaluation (``muse-plugin score-labels --output``). Each system (encoder, match, aggregation, levels,
hierarchy) has a row with mean and deviation over its seeds, next to the published accuracy where there is one; test
sets and their measures are columns. Below it is what held for the runs.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

import markdown_table
import results_table
from tab_table import read_table

SYSTEM = ("encoder", "match", "aggregation", "levels", "hierarchy")
SHOWN = {"accuracy": "accuracy", "f1": "F1", "map": "MAP", "mrr": "MRR"}
ENCODERS = {
    "bert": "BERT",
    "transformer": "Transformer",
    "multi_scale": "MS-Trans",
    "muse": "MUSE",
    "translation": "translation encoder",
    "linear": "linear, words of both texts",
}
HIERARCHIES = {"1": "heads, then layers", "0": "all at once"}
ORDER = (("cosine", "bilinear", "classic", "element"), ("concat", "max"), ("last", "all"))


System = tuple[str, ...]  # the values of SYSTEM


def read_results(paths: list[Path]) -> dict[System, list]:
    """The evaluations of each system, in the order of the paper's tables.

    Raises:
        ValueError: if a file is none of this recipe, is there twice, or was made with other settings than those next to
            it: of one encoder all but the system and the seed must be the same, of different ones the data set.
    """
    found: dict[System, list] = defaultdict(list)
    for path, result in [(file, result) for file in paths for result in results_table.read_results(file)]:
        settings = dict(result.group)
        missing = [name for name in (*SYSTEM, "data_dataset") if name not in settings]
        if missing:
            raise ValueError(
                f"{path} must be written by examples/head_wise_match/evaluate.sh, but its settings lack "
                f"{', '.join(missing)}."
            )
        system = tuple(settings[name] for name in SYSTEM)
        if any((other.seed, other.test_set) == (result.seed, result.test_set) for other in found[system]):
            raise ValueError(
                f"{path} has {' '.join(system)} with seed {result.seed} on {result.test_set} again; give it once."
            )
        found[system].append(result)
    _check_settings(found)
    return {system: found[system] for system in sorted(found, key=_order)}


def _check_settings(found: dict[System, list]) -> None:
    for encoder in {system[0] for system in found}:
        results = [result for system, rows in found.items() if system[0] == encoder for result in rows]
        groups = [dict(result.group) for result in results]
        results_table.check_alike(groups, sorted({name for group in groups for name in group} - {*SYSTEM}))
    groups = (dict(result.group) for rows in found.values() for result in rows)
    results_table.check_alike(groups, ["data_dataset", "data_trial"])


def _order(system: System) -> tuple:
    encoder, *parts, hierarchy = system
    places = [
        (order.index(part) if part in order else len(order), part) for part, order in zip(parts, ORDER, strict=True)
    ]
    return list(ENCODERS).index(encoder) if encoder in ENCODERS else len(ENCODERS), *places, hierarchy


def read_published(path: Path) -> dict[tuple[str, ...], float]:
    """(Data set, system) -> accuracy.

    Raises:
        ValueError: if a line does not have the columns that the first one names, or its accuracy is no number.
    """
    rows = read_table(path)
    try:
        return {tuple(row.values())[:-1]: float(row["accuracy"]) for row in rows}
    except ValueError as error:
        raise ValueError(f"{path}: the accuracy must be a number, but: {error}.") from error


def is_changed(result: results_table.Result) -> bool:
    """Whether a run is a trial, of a shallower encoder or had arguments of its own: no paper's number is for it."""
    settings = dict(result.group)
    return settings.get("data_trial", "0") != "0" or bool(settings.get("layers") or settings.get("flags"))


def make_report(found: dict[System, list], published: dict[tuple[str, ...], float]) -> str:
    """The table, and what held for the runs."""
    results = [result for rows in found.values() for result in rows]
    dataset = dict(results[0].group)["data_dataset"]
    tests = list(dict.fromkeys(result.test_set for result in results))
    scores = [name for name in SHOWN if any(name in result.record["scores"] for result in results)]
    known = [None if is_changed(rows[0]) else published.get((dataset, *system)) for system, rows in found.items()]
    header = [*SYSTEM, "seeds", *(f"{test}: {SHOWN[score]}" for test in tests for score in scores)]
    header += ["paper"] * any(value is not None for value in known) + ["training, s"]
    lines = []
    for (system, rows), value in zip(found.items(), known, strict=True):
        seeds = sorted({result.seed for result in rows}, key=lambda seed: (len(seed), seed))
        cells = [ENCODERS.get(system[0], system[0]), *system[1:-1], HIERARCHIES.get(system[-1], system[-1])]
        cells.append(", ".join(seeds))
        for test in tests:
            measured = [result for result in rows if result.test_set == test]
            cells += [results_table.format_scores(measured, score) for score in scores]
        if "paper" in header:
            cells.append("" if value is None else f"{value:.1f}")
        lines.append([*cells, results_table.format_seconds(rows, "seconds_train")])
    text = markdown_table.make_table(header, lines, len(SYSTEM) + 1)
    text += f"\n\n{dataset}, in percent; ± is the deviation over seeds."
    if "paper" in header:
        text += " Paper: Wang et al., AAAI 2020, Table 4, BERT-large, a rate chosen from three, one run each."
    return f"{text}\n\n{describe_settings(found)}\n{results_table.describe_conditions(results)}\n"


def describe_settings(found: dict[System, list]) -> str:
    """What the runs of each encoder had in common, a line each."""
    lines = {}
    for system, rows in found.items():
        settings = {name: value for name, value in rows[0].group if name not in SYSTEM}
        title = ENCODERS.get(system[0], system[0])
        lines[title] = f"- settings of {title}: `{'; '.join(f'{name} = {value}' for name, value in settings.items())}`"
    return "\n".join(lines.values())


def main() -> int:
    def make(args: argparse.Namespace) -> tuple[str, list[dict[str, Any]]]:
        found = read_results(args.results)
        return make_report(found, read_published(args.published)), [
            one.record for rows in found.values() for one in rows
        ]

    published = Path(__file__).with_name("published.tsv")
    return results_table.run("compare", __doc__.split("\n")[0], make, published)


if __name__ == "__main__":
    sys.exit(main())
