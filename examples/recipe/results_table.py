"""Makes a table out of the results of recipes: ``python results_table.py runs/multi30k/*/results/*.json``.

Every file is one evaluation (``muse-plugin evaluate`` or ``score-labels`` with ``--output``). Runs that differ in
nothing but the seed become one row, with mean and deviation; test sets become columns. Scores by length, where they
were measured, are a table of their own. ``--output RESULTS.md --intro TEXT.md`` writes the tables below a text.
``--keep RUNS.jsonl`` writes the runs, a line each; such a file can be given later with further ones.
"""

import argparse
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, Optional, TypeVar

import markdown_table

T = TypeVar("T")

# On record, but no setting of the training.
NOT_SETTINGS = ("seed", "test_set", "published", "parameters", "train_command")
# Arguments of fairseq-train that change how it works or what it prints, but no result.
WITHOUT_EFFECT = re.compile(r"(?<!\S)--((num-workers|log-format|log-interval)[ =]\S+|no-progress-bar)(?!\S) ?")
SHOWN = {
    "tokenized_bleu": "tokenised BLEU",
    "bleu": "sacreBLEU",
    "chrf": "chrF",
    "entity_f1": "entity F1",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "f1": "F1",
    "map": "MAP",
    "mrr": "MRR",
    "mse": "MSE",
}
DECIMALS = {"mse": 4}  # of the others 2


class Result(NamedTuple):
    """One evaluation.

    Attributes:
        group: the settings that runs of a row have in common.
        seed: of the training.
        test_set: name of the test set.
        published: the score to compare with, as recorded; None if there is none.
        record: the whole file.
    """

    group: tuple[tuple[str, str], ...]
    seed: str
    test_set: str
    published: Any
    record: dict[str, Any]


def read_records(path: Path, writer: str, parse: Callable[[dict[str, Any]], T]) -> list[T]:
    """What ``parse`` makes of the evaluation in a file, or of each line of a ``.jsonl`` file of ``--keep``.

    Args:
        path: the file.
        writer: the command that writes such files, for messages.
        parse: takes the whole record.

    Raises:
        ValueError: if it is no JSON, or not what ``parse`` expects.
    """
    content = path.read_bytes()
    parsed = []
    for number, line in enumerate(content.splitlines() if path.suffix == ".jsonl" else [content], start=1):
        try:
            parsed.append(parse(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            place = f"{path}, line {number}" if path.suffix == ".jsonl" else path
            raise ValueError(f"{place} must be written by {writer}, but is not: {error!r:.200}.") from error
    if not parsed:
        raise ValueError(f"{path} must be written by {writer}, but is empty.")
    return parsed


def read_results(path: Path) -> list[Result]:
    """Reads a file of ``muse-plugin evaluate`` or ``score-labels``, or of ``--keep``.

    Raises:
        ValueError: if it is no such file.
    """
    return read_records(path, "'muse-plugin evaluate --output'", parse_result)


def parse_result(record: dict[str, Any]) -> Result:
    settings = record["settings"]
    group = {k: str(v) for k, v in settings.items() if k not in NOT_SETTINGS and not k.startswith("seconds_")}
    if "flags" in group:
        group["flags"] = WITHOUT_EFFECT.sub("", group["flags"]).strip()
    for score in record["scores"].values():
        float(score["mean"]), score["signature"]
    test_set, published = settings.get("test_set", "test"), settings.get("published")
    return Result(tuple(sorted(group.items())), str(settings.get("seed")), test_set, published, record)


def format_record(record: dict[str, Any]) -> str:
    """One line of JSON that ``read_records`` reads: scores, settings and conditions, no folders of the machine."""
    scores = {
        name: {key: score[key] for key in ("mean", "signature") if key in score}
        for name, score in record["scores"].items()
    }
    settings = {name: shorten(value) if isinstance(value, str) else value for name, value in record["settings"].items()}
    kept = {name: record[name] for name in ("versions", "hardware", "git") if name in record}
    if has_lengths(record):
        kept["length_buckets"] = record["length_buckets"]
    return json.dumps({"scores": scores, "settings": settings, **kept}, ensure_ascii=False) + "\n"


def format_scores(results: list[Result], score: str) -> str:
    """Mean, and deviation where there are several seeds; empty where nothing was measured."""
    values = [result.record["scores"][score]["mean"] for result in results if score in result.record["scores"]]
    return format_values(values, score)


def format_values(values: list[float], score: str) -> str:
    """Mean, and deviation where there are several; empty for none."""
    return markdown_table.format_mean(values, DECIMALS.get(score, 2))


def make_table(results: list[Result]) -> str:
    """The Markdown tables and, below them, what holds for all rows and the command of every row.

    Raises:
        ValueError: if a run is there twice, or scores by length have other bounds.
    """
    rows: dict[tuple, list[Result]] = defaultdict(list)
    for result in results:
        rows[result.group].append(result)
    for members in rows.values():
        check_once(f"a run with seed {result.seed} on {result.test_set}" for result in members)
    tests = list(dict.fromkeys(result.test_set for result in results))
    keys = dict.fromkeys(key for result in results for key, _ in result.group)
    # A switch that a run does not know was off, unless nothing else would tell two rows apart.
    for unknown in ("0", ""):
        varying = [key for key in keys if len({dict(group).get(key, unknown) for group in rows}) > 1]
        if len({tuple(dict(group).get(key, unknown) for key in varying) for group in rows}) == len(rows):
            break
    scores = [name for name in SHOWN if any(name in result.record["scores"] for result in results)]
    header = [*(key.replace("_", " ") for key in varying), "seeds"]
    header += [f"{test}: {SHOWN[score]}" for test in tests for score in scores]
    times = {"seconds_train": "training, s"}
    if any("seconds_per_epoch" in result.record["settings"] for result in results):
        times["seconds_per_epoch"] = "an epoch, s"
    header += times.values()
    lines = []
    known = {(r.test_set, str(r.published)): None for r in results if r.published is not None}
    if known:
        published = {test: " / ".join(score for name, score in known if name == test) for test in tests}
        cells = ["published" if i == 0 else "" for i in range(len(varying) + 1)]
        cells += [published[test] if score == scores[0] else "" for test in tests for score in scores]
        lines.append([*cells, *[""] * len(times)])
    commands = []
    for group, members in rows.items():
        settings = dict(group)
        seeds = sorted({result.seed for result in members})
        by_test = {test: [r for r in members if r.test_set == test] for test in tests}
        cells = [settings.get(key, "") for key in varying] + [", ".join(seeds)]
        cells += [format_scores(by_test[test], score) for test in tests for score in scores]
        cells += [format_seconds(members, key) for key in times]
        lines.append(cells)
        title = ", ".join(f"{key}={settings.get(key, '')}" for key in varying) or "all runs"
        commands.append(
            f"{title}, seed {seeds[0]}:\n\n```\n{shorten(members[0].record['settings'].get('train_command', ''))}\n```"
        )
    tables = [markdown_table.make_table(header, lines, len(varying) + 1)]
    tables += filter(None, (make_length_table(rows, varying, test) for test in tests))
    return "\n\n".join([*tables, describe_conditions(results), *commands]) + "\n"


def format_seconds(results: list[Result], key: str) -> str:
    """Mean over seeds of a time on record; empty where it is not known."""
    seconds = {result.seed: result.record["settings"].get(key) for result in results}
    known = [float(value) for value in seconds.values() if value is not None]
    return f"{mean(known):,.0f}" if known else ""


def check_alike(records: Iterable[dict[str, str]], names: Iterable[str]) -> None:
    """Checks that runs to be compared have the same values of these settings.

    Raises:
        ValueError: if they have not.
    """
    records = list(records)
    for name in names:
        values = sorted({settings.get(name, "") for settings in records})
        if len(values) > 1:
            raise ValueError(
                f"runs must have the same settings to be compared, but {name} is {' and '.join(map(repr, values))}; "
                "give fewer files."
            )


def check_once(runs: Iterable[str]) -> None:
    """Checks that no run is there twice, by what messages call it.

    Raises:
        ValueError: if one is.
    """
    for run, times in Counter(runs).items():
        if times > 1:
            raise ValueError(f"{run} is there twice; give it once.")


def has_lengths(record: dict[str, Any]) -> bool:
    """Whether a file has scores by length of ``score-labels``; those of ``evaluate`` are of several systems."""
    lengths = record.get("length_buckets")
    return bool(lengths) and "score" in lengths["buckets"][0]


def make_length_table(rows: dict[tuple, list[Result]], varying: list[str], test: str) -> str:
    """A table with the main score of a test set by length; empty where it was not measured.

    Args:
        rows: runs by their settings.
        varying: names of the settings that tell the rows apart.
        test: name of the test set.

    Raises:
        ValueError: if runs were measured with other bounds.
    """
    measured = {
        group: [r.record["length_buckets"] for r in members if r.test_set == test and has_lengths(r.record)]
        for group, members in rows.items()
    }
    every = [one for several in measured.values() for one in several]
    if not every:
        return ""
    columns = {tuple((b["label"], b["num_sentences"]) for b in one["buckets"]) for one in every}
    if len(columns) > 1:
        raise ValueError(
            f"scores by length of {test} must be of the same lengths to be in one table, but got "
            f"{' and '.join(sorted(', '.join(label for label, _ in one) for one in columns))}; evaluate again alike."
        )
    names = [f"{label} ({count:,})" for label, count in columns.pop()]
    score, unit = SHOWN.get(every[0]["score"], every[0]["score"]), every[0]["unit"]
    header = [*(key.replace("_", " ") for key in varying), f"{test}: {score} of texts of so many {unit}", *names]
    lines = []
    for group, several in measured.items():
        if several:
            settings = dict(group)
            seeds = f"{len(several)} seeds" if len(several) > 1 else "1 seed"
            values = [[one["buckets"][i]["score"] for one in several] for i in range(len(names))]
            cells = [settings.get(key, "") for key in varying] + [seeds]
            cells += [format_values(row, every[0]["score"]) if None not in row else "" for row in values]
            lines.append(cells)
    return markdown_table.make_table(header, lines, len(varying) + 1)


def shorten(command: str) -> str:
    """Leaves out the folders of the machine that the command ran on."""
    words = [os.path.join("RUN", *Path(word).parts[-2:]) if word.startswith("/") else word for word in command.split()]
    return " ".join(words)


def find_conditions(records: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Versions, hardware and commit of evaluations, each as often as it differs."""
    found = {
        "versions": [
            ", ".join(f"{name} {version}" for name, version in r.get("versions", {}).items()) for r in records
        ],
        "hardware": [json.dumps(r.get("hardware"), ensure_ascii=False) for r in records],
        "commit": [str((r.get("git") or {}).get("commit")) for r in records],
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def describe_conditions(results: list[Result]) -> str:
    """Signatures, versions, hardware and commit, each as often as it differs."""
    found: dict[str, list[str]] = defaultdict(list)
    for result in results:
        for name, score in result.record["scores"].items():
            found[f"signature of {SHOWN.get(name, name)}"].append(str(score["signature"]))
    found |= find_conditions([result.record for result in results])
    return "\n".join(
        f"- {name}: {'; '.join(f'`{v}`' for v in dict.fromkeys(values))}" for name, values in found.items()
    )


def write(path: Path, text: str) -> None:
    """Writes the file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def run(
    name: str,
    description: str,
    make: Callable[[argparse.Namespace], tuple[str, list[dict[str, Any]]]],
    published: Optional[Path] = None,
) -> int:
    """Reads the flags of a program that makes a report, makes it and writes it.

    Args:
        name: of the program, for messages.
        description: what it is for.
        make: from the flags to the report and the evaluations that it is of.
        published: the usual file of published scores, for a report that compares with one.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, nargs="+", help="files that an evaluate.sh or --keep wrote")
    parser.add_argument("--intro", type=Path, help="text that goes above the table")
    parser.add_argument("--output", type=Path, help="where to write; standard output if not given")
    parser.add_argument("--keep", type=Path, metavar="RUNS.jsonl", help="where to write the runs, a line each")
    if published is not None:
        parser.add_argument("--published", type=Path, default=published)
    args = parser.parse_args()
    if args.keep is not None and args.keep.suffix != ".jsonl":
        parser.error(f"--keep must end with .jsonl, but is {args.keep}.")
    try:
        report, records = make(args)
        text = (args.intro.read_text(encoding="utf-8") + "\n" if args.intro else "") + report
        if args.keep is not None:
            write(args.keep, "".join(format_record(record) for record in records))
        if args.output is None:
            print(text, end="")
        else:
            write(args.output, text)
    except (OSError, ValueError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    def make(args: argparse.Namespace) -> tuple[str, list[dict[str, Any]]]:
        results = [result for path in args.results for result in read_results(path)]
        return make_table(results), [result.record for result in results]

    return run("results_table", __doc__.split("\n")[0], make)


if __name__ == "__main__":
    sys.exit(main())
