"""Limits on the size of files that are read as a whole: a sparse one takes no room on a disk, but all of the memory."""

from pathlib import Path

LARGEST_SETTINGS = 1 << 20  # bytes of settings; larger files are none of ours
LARGEST_VOCABULARY = 1 << 28  # bytes of codes, dictionaries and models of SentencePiece, which have a few megabytes


def check_size(path: Path, most_bytes: int, way_out: str) -> None:
    """Checks the size of a file before it is read.

    Args:
        path: the file.
        most_bytes: that it may have.
        way_out: what the user can do, for the message.

    Raises:
        ValueError: if it is larger.
    """
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"{path} must have at most {most_bytes:,} bytes, but has {size:,}; {way_out}.")
