"""Reads what fairseq-generate printed: its lines ``S-`` (source), ``T-`` (target), ``H-`` and ``D-`` (hypotheses).

The log has the sentences in the order of their batches; the number after the letter is the line in the test set.
``D-`` lines, which fairseq has since 0.10, are the hypotheses after the flags ``--bpe`` and ``--tokenizer``; so are
the ``T-`` lines, and fairseq's own score compares those two. Older logs have ``H-`` lines alone.
"""

import itertools
import re
from pathlib import Path
from typing import NamedTuple, Optional

from muse_plugin.files.lines import read_lines

_LINE = re.compile(r"([STHDP])-(\d+)(?:\t(.*))?")
_CLOSING_LINE = re.compile(r"(?:\| )?Generate \S+ with beam=")
_SCORED = "HD"  # these have the model's score before the text
_NUM_SHOWN = 5


class GenerationLog(NamedTuple):
    """The lines of one log, by sentence id.

    Attributes:
        path: the file.
        lines: for each of the letters S, T, H, D and P that occurs, text by sentence id.
        is_closed: whether the log has the line ``Generate ... with beam=...``, with which fairseq-generate ends.
    """

    path: Path
    lines: dict[str, dict[int, str]]
    is_closed: bool

    def in_order(self, letter: str) -> Optional[list[str]]:
        """Returns the texts of one letter in the order of the test set, or None if the log has no such lines."""
        texts = self.lines.get(letter)
        return None if texts is None else [texts[number] for number in sorted(texts)]


def read_generation_log(path: Path, what: str = "--generation-log") -> GenerationLog:
    """Reads a log and checks that no sentence in it is cut short or there twice.

    Args:
        path: the file.
        what: what the file is, for messages.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it has no hypotheses, two of them for one sentence, or only some of the lines of a sentence.
    """
    lines: dict[str, dict[int, str]] = {}
    is_closed = False
    for line in read_lines(path, what):
        match = _LINE.fullmatch(line)
        if match is None:
            is_closed = is_closed or _CLOSING_LINE.match(line) is not None
            continue
        letter, number, text = match[1], int(match[2]), match[3] or ""
        if letter in _SCORED:
            text = text.partition("\t")[2]
        known = lines.setdefault(letter, {}).setdefault(number, text)
        if known != text and letter != "P":
            raise ValueError(
                f"{what} must have one {letter}- line for each sentence, but {path} has two different ones for "
                f"sentence {number}: {known[:60]!r} and {text[:60]!r}; generate with --nbest 1, and give several "
                "logs as several files."
            )
    if "H" not in lines:
        raise ValueError(
            f"{what} must name the output of fairseq-generate, but {path} has no H- lines; generate without --quiet "
            "and with --results-path, or give plain text by --hypotheses."
        )
    log = GenerationLog(path, lines, is_closed)
    _check_groups(log, what)
    return log


def _check_groups(log: GenerationLog, what: str) -> None:
    """Each sentence has the same kinds of lines; where the writing stopped, one lacks some."""
    every = set().union(*log.lines.values())
    for letter, texts in log.lines.items():
        if missing := sorted(every - set(texts)):
            raise ValueError(
                f"{what} must have the same kinds of lines for every sentence, but {log.path} has no {letter}- line "
                f"for {len(missing)} of {len(every)} sentences ({_list(missing)}){_note_if_open(log)}; generate again."
            )


def check_complete(log: GenerationLog, num_sentences: Optional[int], what: str = "--generation-log") -> int:
    """Checks that a log holds all sentences of its test set.

    Args:
        log: the log.
        num_sentences: how many there are; if None, as many as the highest id says.
        what: what the file is, for messages.

    Returns:
        The number of sentences.

    Raises:
        ValueError: if a sentence is missing, or an id is too high.
    """
    found = log.lines["H"].keys()
    expected = max(found) + 1 if num_sentences is None else num_sentences
    if missing := expected - sum(number < expected for number in found):
        first = itertools.islice((number for number in range(expected) if number not in found), _NUM_SHOWN + 1)
        raise ValueError(
            f"{what} must hold the {expected} sentences 0 to {expected - 1}, but {log.path} lacks {missing} of "
            f"them ({_list(list(first))}){_note_if_open(log)}; generate again, without "
            "--skip-invalid-size-inputs-valid-test."
        )
    if excess := sorted(number for number in found if number >= expected):
        raise ValueError(
            f"{what} must hold the {expected} sentences 0 to {expected - 1}, but {log.path} has {len(excess)} more "
            f"({_list(excess)}); give the references and --num-sentences of the same test set."
        )
    return expected


def _list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_NUM_SHOWN])
    return f"ids {shown}, ..." if len(numbers) > _NUM_SHOWN else f"ids {shown}"


def _note_if_open(log: GenerationLog) -> str:
    if log.is_closed:
        return ""
    return "; its closing line 'Generate ... with beam=...' is missing too, so it was not written to its end"
