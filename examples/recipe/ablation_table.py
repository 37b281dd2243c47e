"""Puts the scores of rows next to the published ones: ``python ablation_table.py muse=RUN muse=RUN2 no_ffn=RUN3``.

Called by ablation.sh. In place of ROW=RUN, a file of ``results_table.py --keep`` gives all of its runs that have a
row. A row of the table is a row of ``rows.tsv``, with mean and deviation over its runs, and the difference to MUSE,
published and measured.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import markdown_table
import results_table
from tab_table import read_table

ROWS = Path(__file__).with_name("rows.tsv")
REFERENCE = "muse"


class Row(NamedTuple):
    """A line of ``rows.tsv``; all as it is there."""

    row: str
    tables: str
    model: str
    flags: str
    iwslt14_de_en: str
    multi30k: str
    published: str
    low: str
    high: str
    parameters: str
    what: str


def read_rows(path: Path = ROWS) -> dict[str, Row]:
    """The rows by name.

    Raises:
        ValueError: if it has other columns.
    """
    return {row["row"]: Row(**row) for row in read_table(path, Row._fields)}


def read_runs(runs: list[str]) -> dict[str, list[Any]]:
    """The results, each a ``results_table.Result``, of ROW=FOLDER and of files of ``--keep``, by row, in order.

    Raises:
        ValueError: if a folder has no results or they cannot be read.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for name, sign, folder in (run.partition("=") for run in runs):
        if not sign:
            for result in results_table.read_results(Path(name)):
                if "row" in dict(result.group):
                    found[dict(result.group)["row"]].append(result)
            continue
        paths = sorted(Path(folder).glob("results/*.json")) or [*Path(folder).glob("results.json")]
        if not paths:
            raise ValueError(f"a run must have results.json or results/*.json, but {folder} has none; run evaluate.sh.")
        found[name] += [result for path in paths for result in results_table.read_results(path)]
    return found


def _differ(score: float, reference: float | None, decimals: int) -> str:
    return "" if reference is None else f" ({score - reference:+.{decimals}f})"


def make_table(rows: dict[str, Row], results: dict[str, list[Any]], recipe: str) -> str:
    """The Markdown table, tokenised BLEU, and a line on what it may not say.

    Raises:
        ValueError: if there are results of a row that is none.
    """
    if strangers := [name for name in results if name not in rows]:
        raise ValueError(f"a row must be one of {', '.join(rows)}, but got {', '.join(strangers)}.")
    tests = list(dict.fromkeys(result.test_set for several in results.values() for result in several))

    def scores_of(name: str, test: str) -> list[float]:
        chosen = [result for result in results.get(name, []) if result.test_set == test]
        return [result.record["scores"]["tokenized_bleu"]["mean"] for result in chosen]

    header = ["row", "what it is", "table", "published (IWSLT14)", *(f"{test}, measured" for test in tests), "seeds"]
    lines = []
    others = False
    for name, several in results.items():
        row = rows[name]
        published = ""
        if row.published != "-":
            against = None if name == REFERENCE else float(rows[REFERENCE].published)
            published = row.published + _differ(float(row.published), against, 1)
        cells = [f"`{name}`", row.what, row.tables.replace(" ", ", "), published]
        for test in tests:
            values, base = scores_of(name, test), scores_of(REFERENCE, test)
            own = _differ(mean(values), mean(base) if base and name != REFERENCE else None, 2) if values else ""
            changed = recipe == "iwslt14_de_en" and any(r.published is None for r in several if r.test_set == test)
            others = others or changed
            cells.append(results_table.format_values(values, "tokenized_bleu") + own + " *" * changed)
        seeds = ", ".join(sorted({result.seed for result in several}))
        lines.append([*cells, seeds])
    text = markdown_table.make_table(header, lines, 3)
    text += "\n\nTokenised BLEU, mean and deviation over seeds; in brackets the difference to MUSE.\n"
    if others:
        text += "\\* not the published setting: compare the differences only.\n"
    if recipe != "iwslt14_de_en":
        text += "Other data and sizes than the published ones: compare the differences only.\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "runs", nargs="+", metavar="ROW=FOLDER", help="a row and the folder of one of its runs, or a file of --keep"
    )
    parser.add_argument("--recipe", default="iwslt14_de_en", help="whose runs they are (default: iwslt14_de_en)")
    parser.add_argument("--output", type=Path, help="also write the table there")
    args = parser.parse_args()
    try:
        table = make_table(read_rows(), read_runs(args.runs), args.recipe)
        print(table, end="")
        if args.output is not None:
            results_table.write(args.output, table)
    except (OSError, ValueError) as error:
        print(f"ablation_table: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
