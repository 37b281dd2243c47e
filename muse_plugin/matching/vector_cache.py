"""Vectors of sentences on disk, read in blocks: the folder that ``muse-plugin match encode`` makes.

``vectors.bin`` holds the rows one after the other, ``ids`` one name per line, ``meta.json`` what made them (see
``cache_meta.py``). Only what is asked for is in memory. The file is read, not mapped: a system may map megabytes around
every row that is touched, which would count as this program's memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Optional

import numpy as np
import torch
from torch import Tensor

from muse_plugin.matching.cache_meta import IDS_NAME, LONGEST_ID, VECTORS_NAME, check_sizes, require_meta

_CHUNK = 1 << 22  # bytes of ids read at a time


class VectorCache:
    """A whole cache, for reading.

    Args:
        folder: the cache.

    Attributes:
        meta: its settings, see ``CacheMeta``.

    Raises:
        FileNotFoundError: if it or a file of it is not there.
        ValueError: if it is no cache, not whole, cut short or of another format version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meta = require_meta(folder)
        check_sizes(self.meta, folder)
        self._offsets: Optional[np.ndarray] = None

    def __len__(self) -> int:
        return self.meta.done

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.meta.width

    def read(self, start: int, stop: int) -> Tensor:
        """Rows ``start`` to ``stop``, shape (N, ``width``), float32.

        Raises:
            ValueError: if a row is not finite.
        """
        stop = min(stop, len(self))
        rows = np.empty((max(stop - start, 0), self.width), dtype=self.meta.numpy_dtype)
        with self._open() as file:
            self._fill(file, start, rows)
        return self._check(rows, range(start, stop))

    def gather(self, rows: Tensor) -> Tensor:
        """The rows with these numbers, shape (N, ``width``), float32.

        Args:
            rows: int64, shape (N,).

        Raises:
            ValueError: if a row is not finite.
        """
        numbers = rows.tolist()
        found = np.empty((len(numbers), self.width), dtype=self.meta.numpy_dtype)
        with self._open() as file:
            for place in np.argsort(numbers, kind="stable"):  # in the order of the file
                self._fill(file, numbers[place], found[place : place + 1])
        return self._check(found, numbers)

    def _open(self) -> BinaryIO:
        return (self.folder / VECTORS_NAME).open("rb", buffering=0)

    def _fill(self, file: BinaryIO, start: int, rows: np.ndarray) -> None:
        file.seek(start * self.meta.row_bytes)
        target = rows.reshape(-1).view(np.uint8).data
        while target:
            count = file.readinto(target)  # type: ignore[attr-defined]
            if not count:
                raise ValueError(f"{self.folder / VECTORS_NAME} was cut short while it was read; encode again.")
            target = target[count:]

    def _check(self, rows: np.ndarray, numbers: Sequence[int]) -> Tensor:
        block = torch.from_numpy(rows.astype(np.float32, copy=False))
        bad = (~torch.isfinite(block).all(dim=1)).nonzero()
        if len(bad):
            number = numbers[int(bad[0])]
            raise ValueError(
                f"vectors must be finite, but that of sentence {self.names([number])[0]} in {self.folder} is not; the "
                "file is damaged, so remove the folder and encode again."
            )
        return block

    def blocks(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """Yields the number of the first row, and up to ``rows`` rows."""
        for start in range(0, len(self), rows):
            yield start, self.read(start, start + rows)

    def names(self, rows: Iterable[int]) -> list[str]:
        """The ids of the rows with these numbers.

        Raises:
            ValueError: if the file of ids is damaged.
        """
        if self._offsets is None:
            self._offsets = self._find_lines()
        with (self.folder / IDS_NAME).open("rb") as file:
            found = []
            for row in rows:
                file.seek(int(self._offsets[row]))
                found.append(self._decode(file.read(int(self._offsets[row + 1] - self._offsets[row])), row))
        return found

    def _find_lines(self) -> np.ndarray:
        """Where each id begins, and where the last one ends; 8 bytes per sentence."""
        offsets = np.zeros(len(self) + 1, dtype=np.int64)
        count = position = 0
        with (self.folder / IDS_NAME).open("rb") as file:
            while chunk := file.read(_CHUNK):
                ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n"))
                if count + len(ends) > len(self):
                    break
                offsets[count + 1 : count + 1 + len(ends)] = ends + position + 1
                count += len(ends)
                position += len(chunk)
        if count != len(self) or offsets[-1] != self.meta.id_bytes:
            raise ValueError(
                f"{self.folder / IDS_NAME} must have a line for each of {len(self):,} sentences, but it has not; "
                "remove the folder and encode again."
            )
        longest = int(np.diff(offsets).max(initial=0))
        if longest > LONGEST_ID:
            raise ValueError(
                f"an id must have at most {LONGEST_ID:,} bytes, but {self.folder / IDS_NAME} has one of {longest:,}; "
                "remove the folder and encode again with shorter ones."
            )
        return offsets

    def _decode(self, line: bytes, row: int) -> str:
        try:
            return line.decode("utf-8").rstrip("\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"ids must be UTF-8, but line {row + 1} of {self.folder / IDS_NAME} is not; remove the folder and "
                "encode again."
            ) from error

    def find(self, names: Iterable[str]) -> dict[str, int]:
        """The row numbers of ids; those that are not there are left out.

        Raises:
            ValueError: if the file of ids is damaged.
        """
        if self._offsets is None:
            self._offsets = self._find_lines()  # also sees to it that no line is too long
        wanted = set(names)
        with (self.folder / IDS_NAME).open("rb") as file:
            return {name: row for row, line in enumerate(file) if (name := self._decode(line, row)) in wanted}


def check_made_by(cache: VectorCache, fingerprint: str, width: int) -> None:
    """Checks that vectors are those of a model.

    Args:
        cache: the vectors.
        fingerprint: of the model, for ``cache.meta.max_words``.
        width: of its vectors.

    Raises:
        ValueError: if they are of another.
    """
    if cache.meta.fingerprint != fingerprint:
        raise ValueError(
            f"vectors must be of the model that reads them, but {cache.folder} was made by the encoder "
            f"{cache.meta.fingerprint[:16]} and --path is {fingerprint[:16]}; name the checkpoint (and --data) that "
            "made it, or encode the text again with this one."
        )
    if cache.width != width:
        raise ValueError(
            f"this model's vectors have width {width}, but those of {cache.folder} have {cache.width}; encode the text "
            "again."
        )
