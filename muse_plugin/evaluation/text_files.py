"""Reads text files, plain or compressed with gzip, one sentence a line."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

_GZIP_START = b"\x1f\x8b"
_LONGEST = 1 << 32  # bytes of a whole file, unpacked, which is in memory at once


def read_lines(path: Path, what: str) -> list[str]:
    r"""Reads all lines of a UTF-8 text file; a file that starts as gzip does is decompressed.

    Only ``\n`` ends a line: ``str.splitlines`` also breaks at separators within a sentence. A last line without ``\n``
    counts as a line.

    Args:
        path: the file.
        what: what the file is, for messages, such as ``--references``.

    Returns:
        The lines, without line ends; at least one.

    Raises:
        FileNotFoundError: if there is no such file.
        IsADirectoryError: if it is a folder.
        ValueError: if it is empty, damaged or not UTF-8; the sentence has the number of the line.
    """
    if not path.exists():
        raise FileNotFoundError(f"{what} must name a file, but {path} does not exist; check the path.")
    if path.is_dir():
        raise IsADirectoryError(f"{what} must name a file, but {path} is a folder; name a file in it.")
    try:
        lines = [_decode(raw, number, path, what) for number, raw in enumerate(_iterate_bytes(path), start=1)]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{what}: {path} starts as a gzip file but cannot be decompressed ({error}); copy it again."
        ) from error
    if not lines:
        raise ValueError(f"{what} must name a file with text, but {path} is empty; check how it was made.")
    return lines


def _iterate_bytes(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        is_gzip = stream.peek(2)[:2] == _GZIP_START
        read = (gzip.GzipFile(fileobj=stream) if is_gzip else stream).readline
        left = _LONGEST
        while raw := read(left + 1):
            left -= len(raw)
            if left < 0:
                raise ValueError(
                    f"a text to score must have at most {_LONGEST:,} bytes, but {path} has more when unpacked; check "
                    "how it was made."
                )
            yield raw.removesuffix(b"\n").removesuffix(b"\r")


def _decode(raw: bytes, number: int, path: Path, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what} must name a UTF-8 text file, but line {number} of {path} has the byte "
            f"0x{raw[error.start]:02x} at position {error.start + 1}; convert the file to UTF-8 first."
        ) from error
