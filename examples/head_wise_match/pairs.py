"""Pairs of texts in one form: ``python pairs.py FORM <original >label-first-second.tsv``.

Each line of the output is a label, a first and a second text with tabs between them, as they are written in the
source; white space of every kind is one space. Pairs whose label is "-" (annotators did not agree) are left out; how
many, standard error says.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

ENTAILMENT = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"
SQUAD_HELD_OUT = 20  # of the articles of a training file, every 20th is for validation


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
        read: bytes of the file to pairs.
    """

    labels: tuple[str, ...]
    read: Callable[[bytes], Iterator[Pair]]


def split_lines(content: bytes) -> Iterator[tuple[int, str]]:
    """Number from 1 and text of each line that is not empty; only a line feed ends a line."""
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            line = raw.removesuffix(b"\r").decode("utf-8")
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


def name_label(cell: str, names: tuple[str, str]) -> str:
    """The name of a label that is written 0 or 1; anything else stays, and is refused later."""
    return names[int(cell)] if cell in ("0", "1") else cell


def read_table(content: bytes, label: str, first: str, second: str) -> Iterator[Pair]:
    """Columns by their names in the first line, without quoting."""
    names: list[str] = []
    for number, line in split_lines(content):
        if not names:
            names = line.split("\t")
            missing = [name for name in (label, first, second) if names.count(name) != 1]
            if missing:
                raise ValueError(f"line {number}: must name each of the columns {', '.join(missing)} once.")
            places = [names.index(name) for name in (label, first, second)]
            continue
        cells = split_cells(line, number, 1 + max(places))
        yield Pair(f"line {number}", *(cells[place] for place in places))


def read_nli(content: bytes) -> Iterator[Pair]:
    """SNLI and MultiNLI as text files with a header."""
    return read_table(content, "gold_label", "sentence1", "sentence2")


def read_qnli(content: bytes) -> Iterator[Pair]:
    """GLUE's columns of QNLI."""
    return read_table(content, "label", "question", "sentence")


def read_qqp(content: bytes) -> Iterator[Pair]:
    """GLUE's columns of QQP."""
    for pair in read_table(content, "is_duplicate", "question1", "question2"):
        yield pair._replace(label=name_label(pair.label, QQP_LABELS))


def read_sick(content: bytes) -> Iterator[Pair]:
    """Number, sentence A, sentence B, relatedness, label."""
    for number, line in split_lines(content):
        cells = split_cells(line, number, 5)
        yield Pair(f"line {number}", cells[4].lower(), cells[1], cells[2])


def read_mrpc(content: bytes) -> Iterator[Pair]:
    """0 or 1, two numbers, sentence 1, sentence 2."""
    for number, line in split_lines(content):
        cells = split_cells(line, number, 5)
        yield Pair(f"line {number}", name_label(cells[0], MRPC_LABELS), cells[3], cells[4])


def read_numbered(content: bytes, names: tuple[str, str]) -> Iterator[Pair]:
    """First text, second text, 0 or 1."""
    for number, line in split_lines(content):
        cells = split_cells(line, number, 3)
        yield Pair(f"line {number}", name_label(cells[2], names), cells[0], cells[1])


def read_squad(content: bytes, held_out: bool) -> Iterator[Pair]:
    """Questions of SQuAD 2.0 with their paragraphs.

    Args:
        content: the JSON.
        held_out: the articles for validation instead of those for training.
    """
    for number, article in enumerate(_read_articles(content), start=1):
        if held_out == (number % SQUAD_HELD_OUT == 0):
            yield from _read_article(article, number)


def read_whole_squad(content: bytes) -> Iterator[Pair]:
    """All questions of SQuAD 2.0 with their paragraphs."""
    for number, article in enumerate(_read_articles(content), start=1):
        yield from _read_article(article, number)


def _read_articles(content: bytes) -> list[Any]:
    try:
        articles = json.loads(content.decode("utf-8"))["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"must be SQuAD's JSON, an object with 'data', but is not ({error!r:.80}).") from error
    if not isinstance(articles, list):
        raise ValueError("must be SQuAD's JSON, but its 'data' is no list of articles.")
    return articles


def _read_article(article: Any, number: int) -> Iterator[Pair]:
    place = f"article {number}"
    try:
        for position, paragraph in enumerate(article["paragraphs"], start=1):
            place = f"article {number}, paragraph {position}"
            for count, entry in enumerate(paragraph["qas"], start=1):
                place = f"article {number}, paragraph {position}, question {count}"
                question, context, impossible = entry["question"], paragraph["context"], entry["is_impossible"]
                if not (isinstance(question, str) and isinstance(context, str) and isinstance(impossible, bool)):
                    raise TypeError("question and context are texts, is_impossible is true or false")
                yield Pair(place, SQUAD_LABELS[impossible], question, context)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{place}: must be as SQuAD 2.0 has it, but is not ({error!r:.80}).") from error


MRPC_LABELS = ("no_paraphrase", "paraphrase")
QQP_LABELS = ("not_duplicate", "duplicate")
WIKIQA_LABELS = ("wrong", "right")
SQUAD_LABELS = ("answerable", "unanswerable")
QNLI_LABELS = ("entailment", "not_entailment")

FORMS: dict[str, Form] = {
    "nli": Form(ENTAILMENT, read_nli),
    "sick": Form(ENTAILMENT, read_sick),
    "mrpc": Form(MRPC_LABELS, read_mrpc),
    "qqp": Form(QQP_LABELS, read_qqp),
    "qqp-numbered": Form(QQP_LABELS, lambda content: read_numbered(content, QQP_LABELS)),
    "wikiqa": Form(WIKIQA_LABELS, lambda content: read_numbered(content, WIKIQA_LABELS)),
    "qnli": Form(QNLI_LABELS, read_qnli),
    "squad": Form(SQUAD_LABELS, read_whole_squad),
    "squad-train": Form(SQUAD_LABELS, lambda content: read_squad(content, held_out=False)),
    "squad-valid": Form(SQUAD_LABELS, lambda content: read_squad(content, held_out=True)),
}


def check_pairs(pairs: Iterable[Pair], labels: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Label, first and second text of each pair, with single spaces.

    Raises:
        ValueError: if a label is neither known nor ``-``; the sentence says where.
    """
    for place, label, first, second in pairs:
        if label not in labels and label != NO_LABEL:
            raise ValueError(f"{place}: the label must be one of {', '.join(labels)}, but is {label[:40]!r}.")
        yield label, " ".join(first.split()), " ".join(second.split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("form", choices=FORMS, metavar="FORM", help=f"one of {', '.join(FORMS)}")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N labelled pairs")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="then write N pairs at most")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    form = FORMS[args.form]
    labelled = written = dropped = 0
    try:
        for pair in check_pairs(form.read(sys.stdin.buffer.read()), form.labels):
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


if __name__ == "__main__":
    sys.exit(main())
