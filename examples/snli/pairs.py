"""Pairs of sentences in one form: ``python pairs.py FORM <original >label-premise-hypothesis.tsv``.

Each line of the output is a label, a premise and a hypothesis with tabs between them: lower-case, words separated by
spaces. Pairs whose label is "-" (annotators did not agree) are left out; how many, standard error says.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"


@cache
def tokenizer() -> Any:
    from sacremoses import MosesTokenizer  # takes seconds, and most forms are tokenised already

    return MosesTokenizer(lang="en")


def tokenize(text: str) -> str:
    """Words as Moses separates them, in lower case."""
    return " ".join(tokenizer().tokenize(text, escape=False)).lower()


def tokenize_plain(text: str) -> str:
    """The same without punctuation, as the dev and test sets of snli-small are."""
    return " ".join(word for word in tokenize(text).split() if any(c.isalnum() for c in word))


def read_leaves(parse: str) -> str:
    """The words of a binary parse ``( ( A man ) walks )``, in lower case."""
    return " ".join(word for word in parse.split() if word not in ("(", ")")).lower()


def read_sick(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Number, sentence A, sentence B, relatedness, label."""
    for number, line in enumerate(lines, start=1):
        cells = split(line, number, 5)
        yield cells[4].lower(), tokenize(cells[1]), tokenize(cells[2])


def read_snli(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """SNLI's and MultiNLI's columns by their names in the first line; words are those of the parses."""
    names: list[str] = []
    for number, line in enumerate(lines, start=1):
        if number == 1:
            names = line.split("\t")
            missing = {"gold_label", "sentence1_binary_parse", "sentence2_binary_parse"} - set(names)
            if missing:
                raise ValueError(f"the first line must name the columns {', '.join(sorted(missing))}.")
            continue
        row = dict(zip(names, split(line, number, 5), strict=False))
        yield row["gold_label"], read_leaves(row["sentence1_binary_parse"]), read_leaves(row["sentence2_binary_parse"])


def read_revised(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Header, then sentence 1, sentence 2, label; cells may be in double quotes."""
    rows = csv.reader(lines, delimiter="\t")
    next(rows, None)
    for number, row in enumerate(rows, start=2):
        premise, hypothesis, label = split("\t".join(row), number, 3)[:3]
        yield label, tokenize_plain(premise), tokenize_plain(hypothesis)


def read_numbered(lines: Iterable[str], labels: Sequence[str] = LABELS) -> Iterator[tuple[str, str, str]]:
    """Premise, hypothesis, number of the label; the text is tokenised."""
    *others, last = (str(number) for number in range(len(labels)))
    for number, line in enumerate(lines, start=1):
        premise, hypothesis, label = split(line, number, 3)[:3]
        if label not in (*others, last):
            raise ValueError(f"line {number}: the label must be {', '.join(others)} or {last}, but is {label!r}.")
        yield labels[int(label)], premise.lower(), hypothesis.lower()


def read_scitail(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Premise, hypothesis, label, which is "entails" or "neutral"."""
    for number, line in enumerate(lines, start=1):
        premise, hypothesis, label = split(line, number, 3)[:3]
        if label not in ("entails", "neutral"):
            raise ValueError(f"line {number}: the label must be entails or neutral, but is {label!r}.")
        yield "entailment" if label == "entails" else label, tokenize(premise), tokenize(hypothesis)


def split(line: str, number: int, least: int) -> list[str]:
    """The cells of a line.

    Raises:
        ValueError: if there are fewer than ``least``.
    """
    cells = line.split("\t")
    if len(cells) < least:
        raise ValueError(f"line {number}: must have {least} columns separated by tabs, but has {len(cells)}.")
    return cells


FORMS: dict[str, Callable[[Iterable[str]], Iterator[tuple[str, str, str]]]] = {
    **{f"sick-{split}": read_sick for split in ("train", "valid", "test")},
    **{f"snli-{split}": read_snli for split in ("train", "valid", "test")},
    "snli-small-train": read_revised,
    "snli-small-valid": read_numbered,
    "snli-small-test": read_numbered,
    **{f"mnli-{split}": read_snli for split in ("train", "test", "test1")},
    **{f"scitail-{split}": read_scitail for split in ("train", "valid", "test")},
    **{f"scitail-small-{split}": partial(read_numbered, labels=LABELS[:2]) for split in ("train", "test")},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("form", choices=FORMS, metavar="FORM", help=f"one of {', '.join(FORMS)}")
    args = parser.parse_args()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", newline="\n")
    lines = (line.rstrip("\r\n") for line in sys.stdin)
    kept = dropped = 0
    try:
        for label, premise, hypothesis in FORMS[args.form](line for line in lines if line):
            if label == NO_LABEL:
                dropped += 1
                continue
            if label not in LABELS:
                raise ValueError(
                    f"pair {kept + dropped + 1}: the label must be one of {', '.join(LABELS)}, not {label!r}."
                )
            if "\t" in premise + hypothesis or not (premise and hypothesis):
                raise ValueError(f"pair {kept + dropped + 1}: both sentences must have a word, and no tab.")
            kept += 1
            print(label, premise, hypothesis, sep="\t")
    except ValueError as error:
        print(f"pairs: error: {args.form}: {error}", file=sys.stderr)
        return 2
    print(f"{args.form}: {kept:,} pairs, {dropped:,} without a label left out", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
