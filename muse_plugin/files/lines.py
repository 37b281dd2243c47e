r"""Reads and writes text line by line: files, plain or compressed with gzip, and the standard streams.

Only ``\n`` ends a line: Python's text mode and ``str.splitlines`` also break at carriage returns and Unicode
separators, which shifts every later line of a parallel text.
"""

import codecs
import contextlib
import gzip
import logging
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Optional, Union

from tqdm import tqdm

from muse_plugin.files.atomic_files import open_atomically

logger = logging.getLogger(__name__)

LONGEST_LINE = 1 << 22  # bytes; a line without end must not fill the memory
LONGEST_TEXT = 1 << 32  # characters of a file that is in memory at once
BIG_FILE = 50_000_000  # bytes on disk from which a progress bar is shown

_GZIP_START = b"\x1f\x8b"
_LINES_PER_REPORT = 10_000


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


# ---- lines in --------------------------------------------------------------------------------------------------------


def _iterate_raw(stream: Union[BinaryIO, gzip.GzipFile], first_line: int = 1) -> Iterator[tuple[int, bytes, bool]]:
    r"""Yields (number, bytes without the end ``\n`` or ``\r\n``, whether these are only its beginning) of each line."""
    for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=first_line):
        rest = b"\n" if raw.endswith(b"\n") or len(raw) < LONGEST_LINE else stream.readline(LONGEST_LINE)
        yield number, raw.removesuffix(b"\n").removesuffix(b"\r"), rest not in (b"", b"\n")
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE)


def iterate_stream(stream: BinaryIO, first_line: int = 1) -> Iterator[tuple[str, bool]]:
    r"""Yields (text, was valid UTF-8) for each line of a byte stream, and stops at none, however odd.

    Invalid bytes are replaced by U+FFFD. A last line without ``\n`` counts as a line.

    Args:
        stream: where to read.
        first_line: the number of its first line, for the warning that of a line of more than ``LONGEST_LINE`` bytes
            only the beginning is read.

    Raises:
        ValueError: if the stream starts as gzip does.
    """
    for number, raw, is_cut in _iterate_raw(stream, first_line):
        if number == 1 and raw.startswith(_GZIP_START):
            raise ValueError(
                "lines are read from plain text, but the input starts as a gzip file does; decompress it first, for "
                "example by gzip -d."
            )
        if is_cut:
            logger.warning("line %d is longer than %d bytes; only its beginning is read.", number, LONGEST_LINE)
        try:
            # Of a line that was cut, half a character at its end is left out.
            yield codecs.utf_8_decode(raw, "strict", not is_cut)[0], True
        except UnicodeDecodeError:
            yield codecs.utf_8_decode(raw, "replace", not is_cut)[0], False


def check_file(path: Path, flag: str) -> None:
    """Checks that an input, which a flag names, is a file.

    Raises:
        FileNotFoundError: if it does not exist.
        IsADirectoryError: if it is a folder.
    """
    if not path.exists():
        raise FileNotFoundError(f"{flag} must name a file, but {path} does not exist; check the path.")
    if path.is_dir():
        raise IsADirectoryError(f"{flag} must name a file, but {path} is a folder; name a file in it.")


def iterate_bytes(path: Path, what: str) -> Iterator[tuple[int, bytes]]:
    r"""Yields (number from 1, bytes without the line end ``\n`` or ``\r\n``) of a file.

    A file that starts as gzip does is decompressed, whatever its name. Of a big one, progress is shown. Messages call
    the file ``what``, such as its flag.

    Raises:
        FileNotFoundError: if it does not exist.
        IsADirectoryError: if it is a folder.
        ValueError: if it is damaged or has a line of more than ``LONGEST_LINE`` bytes; the sentence has its number.
    """
    check_file(path, what)
    try:
        yield from _iterate_bytes(path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{what}: {path} starts as a gzip file but cannot be decompressed ({error}); copy it again."
        ) from error


def _iterate_bytes(path: Path) -> Iterator[tuple[int, bytes]]:
    size = path.stat().st_size
    with (
        path.open("rb") as stream,
        tqdm(total=size, unit="B", unit_scale=True, desc=path.name, disable=size < BIG_FILE) as bar,
    ):
        is_gzip = stream.peek(2)[:2] == _GZIP_START
        for number, raw, is_cut in _iterate_raw(gzip.GzipFile(fileobj=stream) if is_gzip else stream):
            if is_cut:
                raise ValueError(
                    f"a line must have at most {LONGEST_LINE:,} bytes, but line {number} of {path} has more; check how "
                    "it was made."
                )
            if number % _LINES_PER_REPORT == 0:
                bar.update(stream.tell() - bar.n)
            yield number, raw


def iterate_lines(path: Path, flag: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text) of the lines of a UTF-8 file; a byte-order mark at the start is dropped.

    Arguments and errors are those of ``iterate_bytes``.

    Raises:
        ValueError: also if the file is empty or not UTF-8.
    """
    number = 0
    for number, raw in iterate_bytes(path, flag):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{flag} must name a UTF-8 text file, but line {number} of {path} has the byte "
                f"0x{raw[error.start]:02x} at position {error.start + 1}; convert the file to UTF-8 first."
            ) from error
        yield number, text.removeprefix("\ufeff") if number == 1 else text
    if not number:
        raise ValueError(f"{flag} must name a file with text, but {path} is empty; check how it was made.")


def read_lines(path: Path, flag: str) -> list[str]:
    """The lines of a whole file, as ``iterate_lines`` gives them; at least one.

    Raises:
        ValueError: also if they have more than ``LONGEST_TEXT`` characters.
    """
    lines = []
    left = LONGEST_TEXT
    for _, line in iterate_lines(path, flag):
        left -= len(line) + 1
        if left < 0:
            raise ValueError(
                f"{flag} must have at most {LONGEST_TEXT:,} characters, but {path} has more when unpacked; check how "
                "it was made."
            )
        lines.append(line)
    return lines


# ---- both ends -------------------------------------------------------------------------------------------------------


def open_input(path: Optional[Path]) -> contextlib.AbstractContextManager[BinaryIO]:
    """A file, or standard input, which is not closed."""
    return contextlib.nullcontext(sys.stdin.buffer) if path is None else path.open("rb")


@contextlib.contextmanager
def open_output(path: Optional[Path]) -> Iterator[BinaryIO]:
    """Standard output, or a file that takes its name only when everything was written; a pipe is written directly."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open_atomically(path) as stream:
        yield stream
