"""Pairs of sentences in lower-case words: ``python pairs.py FORM <original >label-premise-hypothesis.tsv``."""

import csv
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

from pair_forms import ENTAILMENT, Form, Pair, main, read_columns, read_sick, read_table, split_cells, split_lines


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


def read_snli(file: BinaryIO) -> Iterator[Pair]:
    """SNLI's and MultiNLI's columns by their names in the first line."""
    return read_table(file, "gold_label", "sentence1_binary_parse", "sentence2_binary_parse")


def read_revised(file: BinaryIO) -> Iterator[Pair]:
    """Header, then sentence 1, sentence 2, label; cells may be in double quotes."""
    lines = [*split_lines(file)]
    rows = csv.reader((line for _, line in lines), delimiter="\t")
    next(rows, None)
    for row in rows:
        number = lines[rows.line_num - 1][0]
        first, second, label, *_ = split_cells("\t".join(row), number, 3)
        yield Pair(f"line {number}", label, first, second)


FORMS = {
    "sick": Form(ENTAILMENT, read_sick, tokenize),
    "snli": Form(ENTAILMENT, read_snli, read_leaves),
    "snli-small-train": Form(ENTAILMENT, read_revised, tokenize_plain),
    "snli-small": Form(ENTAILMENT, read_columns, str.lower, written=("0", "1", "2")),
    "mnli": Form(ENTAILMENT, read_snli, read_leaves),
    "scitail": Form(ENTAILMENT[:2], read_columns, tokenize, written=("entails", "neutral")),
    "scitail-small": Form(ENTAILMENT[:2], read_columns, str.lower, written=("0", "1")),
}

if __name__ == "__main__":
    sys.exit(main(FORMS))
