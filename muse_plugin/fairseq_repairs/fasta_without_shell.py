"""Reads the positions and lengths of the sequences of a FASTA file in Python; fairseq asks a shell for them."""

from array import array
from typing import Any

import numpy as np
from fairseq.data.fasta_dataset import FastaDataset, fasta_file_path

from muse_plugin.fairseq_repairs.repair import Repair, replace

CHUNK = 1 << 20  # bytes read at once, since a line may be as long as the file


def index_fasta(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Finds the sequences of a FASTA file; lines before the first header belong to none.

    Args:
        path: the file, of which a line that begins with ``>`` is the header of a sequence, and the lines after it are
            the sequence.

    Returns:
        The byte at which each header begins, and the characters of each sequence without white space at the ends of
        its lines, both shape (sequences,), int64.
    """
    offsets, sizes = array("q"), array("q")
    position, in_header, at_line_start = 0, False, True
    with open(path, "rb") as file:
        while chunk := file.readline(CHUNK):
            if at_line_start:
                in_header = chunk.startswith(b">")
                if in_header:
                    offsets.append(position)
                    sizes.append(0)
            if sizes and not in_header:
                sizes[-1] += len(chunk.strip())
            position += len(chunk)
            at_line_start = chunk.endswith(b"\n")
    return np.array(offsets, dtype=np.int64), np.array(sizes, dtype=np.int64)


def _apply() -> None:
    @replace(FastaDataset, "_build_index")
    def _build_index(_: Any, self: FastaDataset, path: str) -> tuple[np.ndarray, np.ndarray]:
        if self.cache.is_symlink():  # which fairseq would write through
            raise ValueError(f"{self.cache} must be a file, which is made if missing, but is a link; remove it.")
        return index_fasta(fasta_file_path(path))


REPAIR = Repair(
    why="the path of a FASTA file goes to a shell as part of a command, so that a folder of data from elsewhere runs "
    "commands by the names of its files alone: fairseq infers languages and the kind of data from them",
    remedy=_apply,
)
