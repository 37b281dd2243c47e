r"""Reads the lines of text files, plain or compressed with gzip; what is damaged is refused.

Only ``\n`` ends a line: ``str.splitlines`` also breaks at separators within a sentence. See ``text_streams.py`` for
what reads on past bytes that are no text.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

BIG_FILE = 50_000_000  # bytes on disk from which a progress bar is shown
_GZIP_START = b"\x1f\x8b"
_LINES_PER_REPORT = 10_000
LONGEST_LINE = 1 << 25  # bytes; a line without end must not fill the memory
LONGEST_TEXT = 1 << 32  # characters of a file that is in memory at once


def check_file(path: Path, flag: str) -> None:
    """Checks that an input is a file.

    Args:
        path: the file.
        flag: what names it on the command line, for messages.

    Raises:
        FileNotFoundError: if it does not exist.
        IsADirectoryError: if it is a folder.
    """
    if not path.exists():
        raise FileNotFoundError(f"{flag} must name a file, but {path} does not exist; check the path.")
    if path.is_dir():
        raise IsADirectoryError(f"{flag} must name a file, but {path} is a folder; name a file in it.")


def iterate_lines(path: Path, flag: str) -> Iterator[tuple[int, str]]:
    r"""Yields (number from 1, text without its line end ``\n`` or ``\r\n``) of a UTF-8 file.

    A byte-order mark at the start is dropped. A file that starts as gzip does is decompressed, whatever its name.

    Args:
        path: the file.
        flag: what names it on the command line, for messages.

    Raises:
        FileNotFoundError: if it does not exist.
        IsADirectoryError: if it is a folder.
        ValueError: if it is empty, damaged or not UTF-8, or has a line without end; the sentence has its number.
    """
    check_file(path, flag)
    number = 0
    try:
        for number, raw in enumerate(_iterate_bytes(path), start=1):
            text = _decode(raw.removesuffix(b"\n").removesuffix(b"\r"), number, path, flag)
            yield number, text.removeprefix("\ufeff") if number == 1 else text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{flag}: {path} starts as a gzip file but cannot be decompressed ({error}); copy it again."
        ) from error
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


def _iterate_bytes(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with (
        path.open("rb") as stream,
        tqdm(total=size, unit="B", unit_scale=True, desc=path.name, disable=size < BIG_FILE) as bar,
    ):
        is_gzip = stream.peek(2)[:2] == _GZIP_START
        read = (gzip.GzipFile(fileobj=stream) if is_gzip else stream).readline
        for number, raw in enumerate(iter(lambda: read(LONGEST_LINE + 1), b"")):
            if len(raw) > LONGEST_LINE:
                raise ValueError(
                    f"a line must have at most {LONGEST_LINE:,} bytes, but line {number + 1} of {path} has more; check "
                    "how it was made."
                )
            if number % _LINES_PER_REPORT == 0:
                bar.update(stream.tell() - bar.n)
            yield raw


def _decode(raw: bytes, number: int, path: Path, flag: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{flag} must name a UTF-8 text file, but line {number} of {path} has the byte "
            f"0x{raw[error.start]:02x} at position {error.start + 1}; convert the file to UTF-8 first."
        ) from error
