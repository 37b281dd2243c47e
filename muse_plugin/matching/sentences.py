"""Reads files of one sentence a line, with or without ids, for vectors of them."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from muse_plugin.files.lines import clean_line, iterate_stream
from muse_plugin.inference.resumable_output import hash_file
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.vector_cache import LONGEST_ID

logger = logging.getLogger(__name__)

_BUFFER_ROWS = 4096
_BUFFER_BYTES = 1 << 26


class NamedSentence(NamedTuple):
    """A line of text.

    Attributes:
        line: its number, from 1.
        name: its id.
        text: the sentence.
    """

    line: int
    name: str
    text: str


def buffer_rows(model: PairModel) -> int:
    """Sentences that are held at a time."""
    return max(model.predictor.batch_size, min(_BUFFER_ROWS, _BUFFER_BYTES // (4 * model.width)))


def survey_text(model: PairModel, source: Path, with_ids: bool) -> tuple[str, int]:
    """Checks a whole text before hours are spent on its first half.

    Args:
        model: the model.
        source: the file.
        with_ids: whether the first column is an id.

    Returns:
        SHA-256 of the file, and the number of its sentences.

    Raises:
        ValueError: if there is no sentence, a line is blank, an id is missing or there twice, or a sentence is too long
            and such are refused.
    """
    digest = hash_file(source)
    count = 0
    tab = False
    refuse, split = model.predictor.long_texts == "refuse", model.predictor.tokenizer.split
    names: dict[str, int] = {}
    for sentence in iterate_sentences(source, with_ids, warns=True):
        count += 1
        if with_ids and names.setdefault(sentence.name, sentence.line) != sentence.line:
            raise ValueError(
                f"ids must be unique, but {sentence.name!r} of line {sentence.line} of {source} is that of line "
                f"{names[sentence.name]} too."
            )
        if refuse:
            read_words(model, [sentence], counts=False)
        elif not (clean_line if sentence.text.isascii() else split)(sentence.text):  # word pieces know some signs only
            _refuse_blank(sentence)
        if "\t" in sentence.text and not (tab or with_ids):
            tab = True
            logger.warning(
                "line %d has a tab, which is read as a space; give --ids if the text before it is an id.",
                sentence.line,
            )
    if count == 0:
        raise ValueError(f"a text must have a sentence, but {source} is empty.")
    return digest, count


def iterate_sentences(source: Path, with_ids: bool, warns: bool = False) -> Iterator[NamedSentence]:
    """Yields the lines of a text with their ids.

    Args:
        source: the file.
        with_ids: whether the first column is an id.
        warns: whether lines that are not UTF-8 are reported.

    Raises:
        ValueError: if a line has no id, or one that no cache can hold.
    """
    with source.open("rb") as file:
        for number, (text, is_valid) in enumerate(iterate_stream(file), start=1):
            if warns and not is_valid:
                logger.warning("line %d is not valid UTF-8; its invalid bytes were replaced by U+FFFD.", number)
            if not with_ids:
                yield NamedSentence(number, str(number), text)
                continue
            name, tab, text = text.partition("\t")
            name = clean_line(name)
            if not tab or not name:
                raise ValueError(
                    f"with --ids, a line is an id, a tab and a sentence, but line {number} of {source} is "
                    f"{(name + tab + text)[:60]!r}."
                )
            if len(name.encode()) >= LONGEST_ID:
                raise ValueError(
                    f"an id must have fewer than {LONGEST_ID:,} bytes, but that in line {number} of {source} has "
                    f"{len(name.encode()):,}; shorten it."
                )
            yield NamedSentence(number, name, text)


def read_words(
    model: PairModel, sentences: Sequence[NamedSentence], counts: bool = True
) -> tuple[list[list[str]], int]:
    """Turns sentences into the words that the model reads.

    Args:
        model: the model.
        sentences: what to read.
        counts: whether words are counted for the report on unknown ones.

    Returns:
        The words of each, and how many were cut.

    Raises:
        ValueError: if a sentence is blank, or too long and such are refused; the sentence has its line.
    """
    read = []
    truncated = 0
    for sentence in sentences:
        words = model.predictor.tokenizer.split(sentence.text)
        if not words:
            _refuse_blank(sentence)
        if model.predictor.is_too_long(words, sentence.line):
            truncated += 1
            words = words[: model.max_words]
        if counts:
            model.predictor.count_words(words)
        read.append(words)
    return read, truncated


def _refuse_blank(sentence: NamedSentence) -> None:
    raise ValueError(
        f"every line must have a sentence, for there is no vector of nothing, but line {sentence.line} is blank; "
        "remove it, and give --ids if the numbers of the other lines matter."
    )
