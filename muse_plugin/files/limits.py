"""Limits on the size of files that are read as a whole: a sparse one takes no room on a disk, but all of the memory."""

from pathlib import Path

LARGEST_SETTINGS = 1 << 20  # bytes of settings; larger files are none of ours
LARGEST_VOCABULARY = 1 << 28  # bytes of codes, dictionaries and models of SentencePiece, which have a few megabytes


def check_size(path: Path, most_bytes: int, way_out: str) -> None:
    """Raises ValueError if a file has more than ``most_bytes``; ``way_out`` is what the message says to do."""
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"{path} must have at most {most_bytes:,} bytes, but has {size:,}; {way_out}.")
