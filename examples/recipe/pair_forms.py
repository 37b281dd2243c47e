"""What the two ``pairs.py`` share: pairs of texts in one form, whatever the source has.

Each line of the output is a label, a first and a second text with tabs between them; white space of every kind is one
space. Pairs whose label is "-" (annotators did not agree) are left out; how many, standard error says.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

ENTAILMENT = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"


class Pair(NamedTuple):
    """A pair as the source has it, and where it is found there."""

    place: str
    label: str
    first: str
    second: str


class Form(NamedTuple):
    """A form of the source.

    Attributes:
        labels: all that a pair may have.
        read: a file to pairs.
        words: makes a text of the output of one of the source; by default it stays.
        written: the labels as the source has them, in the same order; by default as in ``labels``.
    """

    labels: Sequence[str]
    read: Callable[[BinaryIO], Iterator[Pair]]
    words: Callable[[str], str] = str
    written: Sequence[str] = ()


def split_lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Number from 1 and text of each line that is not empty; only a line feed ends a line."""
    for number, raw in enumerate(file, start=1):
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"line {number}: must be UTF-8, but is not ({error.reason}).") from error
        if line:
            yield number, line


def split_cells(line: str, number: int, least: int) -> list[str]:
    """The cells of a line.

    Raises:
        ValueError: if there are fewer than ``least``.
    """
    cells = line.split("\t")
    if len(cells) < least:
        raise ValueError(f"line {number}: must have {least} columns separated by tabs, but has {len(cells)}.")
    return cells


def read_table(file: BinaryIO, label: str, first: str, second: str) -> Iterator[Pair]:
    """Columns by their names in the first line, without quoting."""
    names: list[str] = []
    for number, line in split_lines(file):
        if not names:
            names = line.split("\t")
            missing = [name for name in (label, first, second) if names.count(name) != 1]
            if missing:
                raise ValueError(f"line {number}: must name each of the columns {', '.join(missing)} once.")
            places = [names.index(name) for name in (label, first, second)]
            continue
        cells = split_cells(line, number, 1 + max(places))
        yield Pair(f"line {number}", *(cells[place] for place in places))


def read_sick(file: BinaryIO) -> Iterator[Pair]:
    """Number, sentence A, sentence B, relatedness, label."""
    for number, line in split_lines(file):
        cells = split_cells(line, number, 5)
        yield Pair(f"line {number}", cells[4].lower(), cells[1], cells[2])


def read_columns(file: BinaryIO) -> Iterator[Pair]:
    """First text, second text, label."""
    for number, line in split_lines(file):
        first, second, label, *_ = split_cells(line, number, 3)
        yield Pair(f"line {number}", label, first, second)


def read_pairs(form: Form, file: BinaryIO) -> Iterator[tuple[str, str, str]]:
    """Label, first and second text of each pair.

    Raises:
        ValueError: if a label is neither known nor ``-``; the sentence says where.
    """
    names = {NO_LABEL: NO_LABEL, **dict(zip(form.written or form.labels, form.labels, strict=True))}
    for place, label, *texts in form.read(file):
        if label not in names:
            written = f" The source writes {', '.join(form.written)}." * bool(form.written)
            raise ValueError(
                f"{place}: the label must be one of {', '.join(form.labels)}, but is {label[:40]!r}.{written}"
            )
        first, second = (" ".join(form.words(text).split()) for text in texts)
        yield names[label], first, second


def main(forms: Mapping[str, Form]) -> int:
    parser = argparse.ArgumentParser(description="Pairs of texts in one form.")
    parser.add_argument("form", choices=forms, metavar="FORM", help=f"one of {', '.join(forms)}")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N labelled pairs")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="then write N pairs at most")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    labelled = written = dropped = 0
    try:
        for pair in read_pairs(forms[args.form], sys.stdin.buffer):
            if pair[0] == NO_LABEL:
                dropped += 1
                continue
            labelled += 1
            if labelled > args.skip and (args.limit is None or written < args.limit):
                written += 1
                print(*pair, sep="\t")
    except ValueError as error:
        print(f"pairs: error: {args.form}: {error}", file=sys.stderr)
        return 2
    print(f"{args.form}: {written:,} pairs, {dropped:,} without a label left out", file=sys.stderr)
    return 0
