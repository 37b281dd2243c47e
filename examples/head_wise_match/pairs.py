"""Pairs of texts as they are written in the source: ``python pairs.py FORM <original >label-first-second.tsv``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Optional

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipe"))

from pair_forms import (
    ENTAILMENT,
    Form,
    Pair,
    main,
    read_columns,
    read_sick,
    read_table,
    split_cells,
    split_lines,
)

SQUAD_HELD_OUT = 20  # of the articles of a training file, every 20th is for validation


def read_nli(file: BinaryIO) -> Iterator[Pair]:
    """SNLI and MultiNLI as text files with a header."""
    return read_table(file, "gold_label", "sentence1", "sentence2")


def read_qnli(file: BinaryIO) -> Iterator[Pair]:
    """GLUE's columns of QNLI."""
    return read_table(file, "label", "question", "sentence")


def read_qqp(file: BinaryIO) -> Iterator[Pair]:
    """GLUE's columns of QQP."""
    return read_table(file, "is_duplicate", "question1", "question2")


def read_mrpc(file: BinaryIO) -> Iterator[Pair]:
    """0 or 1, two numbers, sentence 1, sentence 2."""
    for number, line in split_lines(file):
        cells = split_cells(line, number, 5)
        yield Pair(f"line {number}", cells[0], cells[3], cells[4])


def read_squad(file: BinaryIO, held_out: Optional[bool] = None) -> Iterator[Pair]:
    """Questions of SQuAD 2.0 with their paragraphs.

    Args:
        file: the JSON.
        held_out: only the articles for validation, or only those for training; None for all.
    """
    for number, article in enumerate(_read_articles(file), start=1):
        if held_out in (None, number % SQUAD_HELD_OUT == 0):
            yield from _read_article(article, number)


def _read_articles(file: BinaryIO) -> list[Any]:
    try:
        articles = json.loads(file.read().decode("utf-8"))["data"]
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


NUMBERS = ("0", "1")
MRPC_LABELS = ("no_paraphrase", "paraphrase")
QQP_LABELS = ("not_duplicate", "duplicate")
WIKIQA_LABELS = ("wrong", "right")
SQUAD_LABELS = ("answerable", "unanswerable")
QNLI_LABELS = ("entailment", "not_entailment")

FORMS: dict[str, Form] = {
    "nli": Form(ENTAILMENT, read_nli),
    "sick": Form(ENTAILMENT, read_sick),
    "mrpc": Form(MRPC_LABELS, read_mrpc, written=NUMBERS),
    "qqp": Form(QQP_LABELS, read_qqp, written=NUMBERS),
    "qqp-numbered": Form(QQP_LABELS, read_columns, written=NUMBERS),
    "wikiqa": Form(WIKIQA_LABELS, read_columns, written=NUMBERS),
    "qnli": Form(QNLI_LABELS, read_qnli),
    "squad": Form(SQUAD_LABELS, read_squad),
    "squad-train": Form(SQUAD_LABELS, lambda file: read_squad(file, held_out=False)),
    "squad-valid": Form(SQUAD_LABELS, lambda file: read_squad(file, held_out=True)),
}

if __name__ == "__main__":
    sys.exit(main(FORMS))
