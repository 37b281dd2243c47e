"""``muse-plugin benchmark report``: writes BENCHMARKS.md, with its figures, from the JSON of the other kinds."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from muse_plugin.benchmark import growth_plot
from muse_plugin.benchmark.gpu_steps import format_steps, read_steps
from muse_plugin.benchmark.records import Record, read_record
from muse_plugin.benchmark.tables import RATED, format_table
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.results.figures import check_format, import_matplotlib
from muse_plugin.results.run_record import format_gpu
from muse_plugin_command.flags.benchmark import KINDS

SECTIONS = {
    "generate": "Decoding",
    "train": "Training step",
    "conv": "Dynamic convolution",
    "attention": "Self-attention",
    "sentence": "Sentence models",
    "loss": "Output layer and loss",
    "batches": "Forming batches",
}
_HEAD = """# Benchmarks

Written by `muse-plugin benchmark report`; [{script}]({script}) measures everything again.

Contestants run in turn in one process (A B A B). A number is the median of all rounds. A ratio is how many times as
fast, or as small, as the first contestant of the table, taken round by round: its median and, in brackets, the range of
the middle half. Models of one table have equal numbers of parameters, by the width of their feed-forward layers;
weights and words are random, and all sentences of a batch have the same length.
"""


def run(args: argparse.Namespace) -> int:
    """Writes the report.

    Raises:
        ValueError: if a file holds something else, or a folder is missing.
        FileNotFoundError: if a file is missing.
        ImportError: if figures are asked for and matplotlib is missing.
    """
    records = [read_record(path) for path in args.records]
    figures = {}
    if args.figures is not None:
        import_matplotlib("--figures")
        if not args.figures.is_dir():
            raise ValueError(f"--figures must be a folder that exists, but got {args.figures}; make it first.")
        figures = _draw(records, args.figures)
    folder = args.output.parent.resolve()
    relative = {kind: Path(os.path.relpath(path.resolve(), folder)).as_posix() for kind, path in figures.items()}
    text = format_report(records, relative, args.script)
    if args.gpu_steps is not None:
        text += "\n" + format_steps(read_steps(args.gpu_steps))
    with open_atomically(args.output) as file:
        file.write(text.encode())
    sys.stdout.write("".join(f"wrote {path}\n" for path in (args.output, *figures.values())))
    return 0


def format_report(records: Sequence[Record], figures: Optional[dict[str, str]] = None, script: str = "") -> str:
    """Formats the whole file.

    Args:
        records: of any kinds and machines.
        figures: the path of a figure relative to the file, by kind of benchmark.
        script: that makes the records.

    Returns:
        Markdown.
    """
    lines = [_HEAD.format(script=script), *_format_machines(records)]
    for kind, title in SECTIONS.items():
        own = [record for record in records if record.kind == kind]
        lines += ["", f"## {title}", "", KINDS[kind].description, ""]
        if figures and kind in figures:
            lines += [f"![{title}: how its cost grows with the length of sentences]({figures[kind]})", ""]
        lines += ["Not measured.", ""] if not own else []
        for record in own:
            lines += _format_record(record, records)
    return "\n".join(lines).rstrip("\n") + "\n"


def _format_record(record: Record, records: Sequence[Record]) -> Iterator[str]:
    machine, device = _list_machines(records).index(record.run) + 1, record.settings["device"]
    yield f"`{record.command}` on machine {machine}, {'its CPU' if device == 'cpu' else device}:"
    yield ""
    for _, group in itertools.groupby(record.measurements, key=lambda measurement: measurement.columns):
        yield format_table(list(group), has_rates=record.kind in RATED)
        yield ""


def _format_machines(records: Sequence[Record]) -> Iterator[str]:
    for number, run in enumerate(_list_machines(records), 1):
        hardware, versions, git = run["hardware"], run["versions"], run["git"]
        gpus = "".join(f", {format_gpu(gpu)}" for gpu in hardware.get("gpus") or [])
        triton = f", triton {versions['triton']}" if gpus and versions.get("triton") else ""
        commit = git["commit"][:10] + (" with changes" if git["dirty"] else "") if git else "unknown"
        yield (
            f"Machine {number}: {hardware['cpu']}, {_count(hardware['cores'], 'core')}, {hardware['memory_gib']:.0f} "
            f"GiB{gpus}; {_count(run['threads']['torch'], 'thread')}; Python {versions['python']}, torch "
            f"{versions['torch']}, fairseq-fixed {versions['fairseq-fixed']}{triton}; commit {commit}."
        )
        yield ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _list_machines(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Each machine and state of the software, in order."""
    runs: list[dict[str, Any]] = []
    for record in records:
        runs += [] if record.run in runs else [record.run]
    return runs


def _draw(records: Sequence[Record], folder: Path) -> dict[str, Path]:
    figures = {}
    for kind in ("generate", "train"):
        curves = growth_plot.collect(record for record in records if record.kind == kind)
        if curves:
            path = folder / f"{kind}.svg"
            check_format(path, "--figures")
            growth_plot.draw(path, curves, kind)
            figures[kind] = path
    return figures
