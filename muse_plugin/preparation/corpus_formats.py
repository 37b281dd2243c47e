"""The formats of labelled text: how a file is cut into examples. Nothing is cleaned or tokenised here.

A line is blank if it has nothing but white space and invisible characters.
To add a format, write a class with ``sides``, ``tags`` and ``read`` and name it in ``parse_format``.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, Protocol, Union

from muse_plugin.files.lines import LONGEST_LINE, clean_line, iterate_lines
from muse_plugin_command.flags.prepare_text import FORMATS

DOCUMENT_START = "-DOCSTART-"
_CONLLU_WORD, _CONLLU_TAG = 2, 4  # FORM and UPOS
_CONLLU_ID = re.compile(r"\d+([-.]\d+)?")
MOST_WORDS = 100_000  # of a tagged sentence; a file without blank lines must not fill the memory
_NAMED_AT_MOST = 20


class Example(NamedTuple):
    """What a file says about one sentence, as it is written there.

    Attributes:
        lines: the line in the file, counted from 1, of each label.
        labels: one label, or the tag of each word.
        texts: one text, or two if sentences come in pairs; none if ``words`` are given.
        words: the words of a tagged sentence, as many as labels.
    """

    lines: tuple[int, ...]
    labels: tuple[str, ...]
    texts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class CorpusFormat(Protocol):
    """A way of writing labelled text.

    Attributes:
        sides: 1, or 2 if texts come in pairs.
        tags: true if each word has a label, false if each sentence has.
    """

    sides: int
    tags: bool

    def read(self, path: Path, flag: str) -> Iterator[Example]:
        """Yields the examples of a file; a blank line counts as an empty text where a line is an example.

        Args:
            path: the file.
            flag: what names it on the command line, for messages.

        Raises:
            ValueError: if a line is not of this format; the sentence has its number.
        """


@dataclass
class LabelledLines:
    """A label, a separator, a text: one example a line. Further separators belong to the text."""

    separator: str
    header: bool
    sides = 1
    tags = False

    def read(self, path: Path, flag: str) -> Iterator[Example]:
        """See ``CorpusFormat``."""
        name = {"\t": "tab", " ": "space"}[self.separator]
        for number, line in iterate_lines(path, flag):
            if self.header and number == 1:
                continue
            label, found, text = line.partition(self.separator)
            if not found and clean_line(line):
                raise ValueError(
                    f"each line must hold a label, a {name} and a text, but line {number} of {path} has no {name}: "
                    f"{line[:40]!r}; correct it or choose another --format."
                )
            yield Example((number,), (label.strip(),), (text,))


class Table:
    """Columns separated by tabs, without quoting: one example a line.

    Args:
        columns: column of each role (``text``, ``label``, perhaps ``pair``), by its number from 1 or by its name in
            the first line.
        header: whether the first line has names; it has if a column is given by name.
    """

    tags = False
    separator = "tabs"

    def __init__(self, columns: dict[str, Union[int, str]], header: bool) -> None:
        self.columns = columns
        self.header = header or any(isinstance(column, str) for column in columns.values())
        self.sides = 2 if "pair" in columns else 1

    def read(self, path: Path, flag: str) -> Iterator[Example]:
        """See ``CorpusFormat``."""
        rows = self._read_rows(path, flag)
        names = [name.strip() for name in next(rows)[1]] if self.header else []
        positions = {role: self._locate(column, names, path) for role, column in self.columns.items()}
        sides = ("text", "pair")[: self.sides]
        for number, cells in rows:
            if not any(map(clean_line, cells)):
                yield Example((number,), ("",), ("",) * self.sides)
                continue
            least = max(positions.values()) + 1
            if len(cells) < least:
                raise ValueError(
                    f"each line must have at least {least} columns separated by {self.separator}, but line {number} of "
                    f"{path} has {len(cells)}; correct the line or --format."
                )
            yield Example(
                (number,), (cells[positions["label"]].strip(),), tuple(cells[positions[side]] for side in sides)
            )

    def _read_rows(self, path: Path, flag: str) -> Iterator[tuple[int, list[str]]]:
        """Yields the cells of each row with the number of its first line."""
        for number, line in iterate_lines(path, flag):
            yield number, line.split("\t")

    def _locate(self, column: Union[int, str], names: list[str], path: Path) -> int:
        if isinstance(column, int):
            return column - 1
        if names.count(column) != 1:
            raise ValueError(
                f"--format must name columns of the first line, but {path} has {names.count(column)} columns named "
                f"{column!r} between {self.separator}; it has {_list_names(names)}."
            )
        return names.index(column)


class CommaTable(Table):
    """Columns separated by commas, with the quotes of Python's csv module: a quoted text may go over several lines."""

    separator = "commas"

    def _read_rows(self, path: Path, flag: str) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(LONGEST_LINE)
        size, first = 0, 1

        def read_lines() -> Iterator[str]:
            nonlocal size
            for _, line in iterate_lines(path, flag):
                size += len(line) + 1
                if size > LONGEST_LINE + 1:  # a quote without end must not fill the memory
                    raise csv.Error(f"it has more than {LONGEST_LINE:,} characters")
                yield f"{line}\n"

        rows = csv.reader(read_lines(), strict=True)
        try:
            for cells in rows:
                yield first, cells
                size, first = 0, rows.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{flag} must be quoted as csv is, but the row that begins in line {first} of {path} is not ({error}); "
                "correct it or choose another --format."
            ) from error


def _list_names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST:,} more" if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(repr(name[:40]) for name in names[:_NAMED_AT_MOST]) + more


class TaggedWords:
    """One word and its tag a line, a blank line after each sentence.

    A line with a tab is cut at tabs, any other at white space. Lines whose first column is ``-DOCSTART-`` are passed
    over. A line that begins with ``#`` is a comment if it has no further column; with ``conllu`` always, and ranges
    of words (``1-2``) and empty nodes (``8.1``) are passed over, too.

    Args:
        word: column of the word, from 1; the first if None (in CoNLL-U the second, FORM).
        tag: column of the tag, from 1; the last if None (in CoNLL-U the fourth, UPOS).
        conllu: whether the file is CoNLL-U, where the first column numbers the words.
    """

    sides = 1
    tags = True

    def __init__(self, word: Optional[int], tag: Optional[int], conllu: bool) -> None:
        self.conllu = conllu
        self.word = word or (_CONLLU_WORD if conllu else 1)
        self.tag = tag or (_CONLLU_TAG if conllu else None)

    def read(self, path: Path, flag: str) -> Iterator[Example]:
        """See ``CorpusFormat``."""
        rows: list[tuple[int, str, str]] = []
        for number, line in iterate_lines(path, flag):
            if not clean_line(line):
                if rows:
                    yield _join_rows(rows)
                rows = []
                continue
            cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            if not self._is_skipped(cells, number, path):
                rows.append((number, *self._pick(cells, number, path)))
            if len(rows) > MOST_WORDS:
                raise ValueError(
                    f"a blank line must follow each sentence, but {path} has {MOST_WORDS:,} words before line {number} "
                    "and no blank line between them; correct the file or choose another --format."
                )
        if rows:
            yield _join_rows(rows)

    def _is_skipped(self, cells: list[str], number: int, path: Path) -> bool:
        if cells[0] == DOCUMENT_START or (cells[0].startswith("#") and (self.conllu or len(cells) == 1)):
            return True
        if not self.conllu:
            return False
        match = _CONLLU_ID.fullmatch(cells[0])
        if match is None:
            raise ValueError(
                f"with --conllu the first column must number the words, but line {number} of {path} begins with "
                f"{cells[0][:40]!r}; correct the line or drop --conllu."
            )
        return match[1] is not None

    def _pick(self, cells: list[str], number: int, path: Path) -> tuple[str, str]:
        least = max(2, self.word, self.tag or 0)
        if len(cells) < least:
            raise ValueError(
                f"each line must have at least {least} columns, among them a word and its tag, but line {number} of "
                f"{path} has {len(cells)}: {' '.join(cells)[:40]!r}; correct the line or --format."
            )
        word, tag = cells[self.word - 1], cells[self.tag - 1 if self.tag else -1]
        if not word:
            raise ValueError(
                f"each line must have a word, but in line {number} of {path} column {self.word} is empty; correct the "
                "line or --format."
            )
        return word, tag.strip()


def _join_rows(rows: list[tuple[int, str, str]]) -> Example:
    lines, words, tags = zip(*rows, strict=True)
    return Example(lines, tags, words=words)


def choose_format(path: Path) -> str:
    """The ``--format`` of a file for which none is given."""
    return "csv" if path.name.lower().removesuffix(".gz").endswith(".csv") else "label-tab-text"


def parse_format(text: str, header: bool = False, conllu: bool = False) -> CorpusFormat:
    """Makes the reader that ``--format`` asks for.

    Args:
        text: the value of ``--format``.
        header: ``--header``, the first line is no example.
        conllu: ``--conllu``.

    Raises:
        ValueError: if there is no such format, or a flag does not go with it.
    """
    name, colon, columns = text.partition(":")
    if conllu and name != "conll":
        raise ValueError(f"--conllu needs --format conll, but got --format {text}; drop one of them.")
    if header and name == "conll":
        raise ValueError(f"--header needs a format with one example a line, but got --format {text}; drop --header.")
    if text in ("label-tab-text", "label-space-text"):
        return LabelledLines("\t" if text == "label-tab-text" else " ", header)
    if text == "csv":
        return CommaTable({"text": "text", "label": "label"}, header)
    if name in ("tsv", "csv") and colon:
        return (Table if name == "tsv" else CommaTable)(_parse_columns(text, name, columns), header)
    if text == "conll":
        return TaggedWords(None, None, conllu)
    if name == "conll":
        numbers = re.fullmatch(r"([1-9]\d*),([1-9]\d*)", columns)
        if numbers is None or numbers[1] == numbers[2]:
            raise ValueError(
                f"conll must be followed by the columns of word and tag, two numbers from 1 on as in conll:2,4, but "
                f"got --format {text}; leave them out for the first and the last column."
            )
        return TaggedWords(int(numbers[1]), int(numbers[2]), conllu)
    raise ValueError(f"--format must be one of {FORMATS}, but got {text!r}.")


def _parse_columns(text: str, name: str, columns: str) -> dict[str, Union[int, str]]:
    roles: dict[str, Union[int, str]] = {}
    for part in columns.split(","):
        role, _, column = (piece.strip() for piece in part.partition("="))
        if role not in ("text", "pair", "label") or role in roles or column in ("", "0"):
            raise ValueError(
                f"{name} must be followed by text=COLUMN, label=COLUMN and perhaps pair=COLUMN, each once, a column "
                f"being a number from 1 on or a name, but got {part!r} in --format {text}; correct it."
            )
        roles[role] = int(column) if re.fullmatch(r"[0-9]+", column) else column
    missing = [role for role in ("text", "label") if role not in roles]
    if missing:
        raise ValueError(f"{name} needs a column for text and one for label, but --format {text} lacks {missing[0]}=.")
    if len(set(roles.values())) < len(roles):
        raise ValueError(f"{name} needs a column of its own for each role, but --format {text} gives one twice.")
    return roles
