"""Raw text line by line, from a file or standard input to a file or standard output."""

import codecs
import contextlib
import logging
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Optional

from muse_plugin.files.atomic_files import open_atomically

logger = logging.getLogger(__name__)

LONGEST_LINE = 1 << 22  # bytes; a line without end must not fill the memory


class _CleanCharacters(dict[int, Optional[str]]):
    """What ``str.translate`` puts in place of each character; worked out when a character is first met."""

    def __missing__(self, code: int) -> Optional[str]:
        category = unicodedata.category(chr(code))
        clean: Optional[str] = chr(code)
        if category in ("Cc", "Zl", "Zp", "Zs"):
            clean = " "
        elif category == "Cs":
            clean = "\N{REPLACEMENT CHARACTER}"
        elif category == "Cf":
            clean = None
        self[code] = clean
        return clean


_clean_characters = _CleanCharacters()


def clean_line(line: str) -> str:
    """Makes one printable line: no control or format characters, every kind of white space a single space.

    Line separators (carriage return, U+0085, U+2028, ...), tabs and non-breaking spaces become a space; invisible
    format characters (soft hyphen, byte order mark, zero-width characters) are dropped; surrogates become U+FFFD.
    """
    if not (line.isascii() and line.isprintable()):
        line = line.translate(_clean_characters)
    return " ".join(line.split())


def iterate_lines(stream: BinaryIO, first_line: int = 1) -> Iterator[tuple[str, bool]]:
    r"""Yields (text, was valid UTF-8) for each line of a byte stream; only ``\n`` ends a line.

    Python's text mode and ``str.splitlines`` also break at carriage returns and Unicode separators, which shifts every
    later line of a parallel text. Invalid bytes are replaced by U+FFFD. A last line without ``\n`` counts as a line.

    Args:
        stream: where to read.
        first_line: the number of its first line, for the warning that of a line of more than ``LONGEST_LINE`` bytes
            only the beginning is read.
    """
    for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=first_line):
        is_cut = len(raw) == LONGEST_LINE and not raw.endswith(b"\n") and _skip_rest(stream)
        if is_cut:
            logger.warning("line %d is longer than %d bytes; only its beginning is read.", number, LONGEST_LINE)
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            # Of a line that was cut, half a character at its end is left out.
            yield codecs.utf_8_decode(raw, "strict", not is_cut)[0], True
        except UnicodeDecodeError:
            yield codecs.utf_8_decode(raw, "replace", not is_cut)[0], False


def _skip_rest(stream: BinaryIO) -> bool:
    """Goes on to the next line; false if this one had ended already, with the file."""
    has_more = False
    while raw := stream.readline(LONGEST_LINE):
        has_more = has_more or raw != b"\n"
        if raw.endswith(b"\n"):
            break
    return has_more


@contextlib.contextmanager
def open_input(path: Optional[Path]) -> Iterator[BinaryIO]:
    """A file, or standard input."""
    if path is None:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as stream:
            yield stream


@contextlib.contextmanager
def open_output(path: Optional[Path]) -> Iterator[BinaryIO]:
    """Standard output, or a file that takes its name only when everything was written; a pipe is written directly."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open_atomically(path) as stream:
        yield stream
