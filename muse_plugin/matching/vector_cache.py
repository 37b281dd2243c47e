"""Vectors of sentences on disk, read in blocks: the folder that ``muse-plugin match encode`` makes.

``vectors.bin`` holds the rows one after the other, ``ids`` one name per line, ``meta.json`` what made them. The last is
replaced as a whole each time, after what it speaks of has reached the disk: a cache holds what its ``meta.json`` says,
and perhaps more, whenever the program that wrote it died.

Only what is asked for is in memory. The file is read, not mapped: a system may map megabytes around every row that is
touched, which would count as this program's memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

from muse_plugin import __version__
from muse_plugin.files.json_objects import read_versioned, write_json
from muse_plugin_command.flags.match import DTYPES

FORMAT_VERSION = 1
META_NAME = "meta.json"
VECTORS_NAME = "vectors.bin"
IDS_NAME = "ids"
LOCK_NAME = "lock"
LONGEST_ID = 1 << 20  # bytes
# What else a cache may hold: indexes of it, and what a killed program left of a file it was writing.
INDEX_PREFIX = "index-"
_HOW = "name a folder that muse-plugin match encode made"
_SHOWN = 60  # characters of what a damaged file holds
_WIDEST = 1 << 20  # numbers of a vector: one must fit into memory
_MOST = 1 << 48  # of anything else that is counted
_CHUNK = 1 << 22  # bytes of ids read at a time
_MOST_ROWS = 8192  # of a block; more gain nothing


def _versions() -> dict[str, str]:
    return {"muse_plugin": __version__, "torch": str(torch.__version__)}


@dataclass(frozen=True)
class CacheMeta:
    """The settings and the state of a cache.

    Attributes:
        fingerprint: of the encoder, see ``fingerprint.py``.
        text_sha256: of the file that the sentences are from.
        with_ids: whether the first column of that file names each sentence; otherwise its line number does.
        sentences: of that file.
        width: numbers of a vector.
        dtype: one of ``DTYPES``, little-endian.
        max_words: words read of a sentence.
        done: sentences whose vectors and ids are on the disk.
        id_bytes: length of the ids of those, in bytes.
        truncated: how many of those were longer than ``max_words``.
        whole: whether nothing is missing.
        versions: of the programs that wrote it; for people.
    """

    fingerprint: str
    text_sha256: str
    with_ids: bool
    sentences: int
    width: int
    dtype: str
    max_words: int
    done: int = 0
    id_bytes: int = 0
    truncated: int = 0
    whole: bool = False
    versions: dict[str, str] = field(default_factory=_versions)

    @property
    def row_bytes(self) -> int:
        """Length of a vector on disk."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def file_sizes(self) -> dict[str, int]:
        """Bytes of the files of vectors and of ids, by their names."""
        return {VECTORS_NAME: self.done * self.row_bytes, IDS_NAME: self.id_bytes}

    def find_faults(self) -> list[str]:
        """Says which numbers cannot be, in sentences without an end."""
        faults = []
        if self.dtype not in DTYPES:
            faults.append(f"'dtype' must be one of {', '.join(DTYPES)} but is {self.dtype[:_SHOWN]!r}")
        least = {"width": 1, "max_words": 1, "sentences": 0, "done": 0, "id_bytes": 0, "truncated": 0}
        for name, number in least.items():
            value, most = getattr(self, name), _WIDEST if name == "width" else _MOST
            if not number <= value <= most:
                rule = f"at least {number}" if value < number else f"at most {most:,}"
                faults.append(f"'{name}' must be {rule} but is {str(value)[:_SHOWN]}")
        if faults:
            return faults
        if self.done > self.sentences or (self.whole and self.done != self.sentences):
            faults.append(f"{self.done} of {self.sentences} sentences cannot be done")
        return faults

    @property
    def numpy_dtype(self) -> "np.dtype[Any]":
        """Type of the numbers on disk, on any machine."""
        return np.dtype("<f2" if self.dtype == "float16" else "<f4")


def write_meta(meta: CacheMeta, folder: Path) -> None:
    """Replaces ``meta.json`` in one step."""
    write_json(folder / META_NAME, {"format_version": FORMAT_VERSION, **asdict(meta)}, indent=2)


def read_meta(folder: Path) -> Optional[CacheMeta]:
    """Reads ``meta.json``; None if there is none.

    Raises:
        ValueError: if it is damaged, of another format version, or no file of ours.
    """
    path = folder / META_NAME
    if not path.is_file():
        return None
    kinds: dict[str, Any] = {entry.name: entry.type for entry in fields(CacheMeta)}
    meta = CacheMeta(**read_versioned(path, FORMAT_VERSION, {**kinds, "versions": dict}, _HOW))
    faults = meta.find_faults()
    if faults:
        raise ValueError(f"{path} must be as muse-plugin match encode wrote it, but {'; '.join(faults)}; encode again.")
    return meta


def check_sizes(meta: CacheMeta, folder: Path) -> None:
    """Checks that the files of a whole cache are as long as its ``meta.json`` says.

    Raises:
        FileNotFoundError: if one is not there.
        ValueError: if one has another length.
    """
    for name, size in meta.file_sizes.items():
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(
                f"a cache must hold {path}, but it is not there; remove the folder and encode again."
            )
        found = path.stat().st_size
        if found != size:
            raise ValueError(
                f"{path} must have {size:,} bytes, but it has {found:,}; it was cut short or changed: remove the "
                "folder and encode again."
            )


class Blocks(NamedTuple):
    """How many vectors are in memory at once.

    Attributes:
        queries: of the first list.
        corpus: of the second list.
    """

    queries: int
    corpus: int


def plan_blocks(memory: int, width: int, outputs: int) -> Blocks:
    """Divides memory: about a third for the vectors and a model's copies of them, a quarter for scores.

    Args:
        memory: in MiB.
        width: numbers of a vector.
        outputs: numbers per pair.
    """
    limit = memory << 20
    corpus = max(1, min(_MOST_ROWS, limit // 16 // (4 * width)))
    queries = max(1, min(corpus, limit // 4 // (corpus * 4 * (3 * outputs + 4))))
    return Blocks(queries, corpus)


class VectorCache:
    """A whole cache, for reading.

    Args:
        folder: the cache.

    Attributes:
        meta: its settings, see ``CacheMeta``.

    Raises:
        FileNotFoundError: if it or a file of it is not there.
        NotADirectoryError: if it is a file.
        ValueError: if it is no cache, not whole, cut short or of another format version.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.exists():
            raise FileNotFoundError(
                f"there is no cache {folder}; make it with muse-plugin match encode --output {folder}."
            )
        if not folder.is_dir():
            raise NotADirectoryError(f"a cache is a folder, but {folder} is a file; {_HOW}.")
        meta = read_meta(folder)
        if meta is None:
            raise ValueError(f"a cache must hold {META_NAME}, but {folder} does not; {_HOW}.")
        if not meta.whole:
            raise ValueError(
                f"a cache must be whole, but {folder} has {meta.done:,} of {meta.sentences:,} sentences; run the same "
                "muse-plugin match encode again, and it continues from there."
            )
        check_sizes(meta, folder)
        self.folder = folder
        self.meta = meta
        # Read at once: lines are on the disk or not, so nothing that is counted here can be claimed alone.
        self._offsets = self._find_offsets()

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
        with (self.folder / IDS_NAME).open("rb") as file:
            found = []
            for row in rows:
                file.seek(int(self._offsets[row]))
                found.append(self._decode(file.read(int(self._offsets[row + 1] - self._offsets[row])), row))
        return found

    def _find_offsets(self) -> np.ndarray:
        """Where each id begins, and where the last one ends; 8 bytes per sentence that has an id."""
        parts = [np.zeros(1, dtype=np.int64)]
        count = position = last = 0
        with (self.folder / IDS_NAME).open("rb") as file:
            while count <= len(self) and (chunk := file.read(_CHUNK)):
                ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n")) + position + 1
                position += len(chunk)
                longest = int(np.diff(ends, prepend=last, append=position).max())
                if longest > LONGEST_ID:
                    raise ValueError(
                        f"an id must have at most {LONGEST_ID:,} bytes, but {self.folder / IDS_NAME} has one of "
                        f"{longest:,} or more; remove the folder and encode again with shorter ones."
                    )
                parts.append(ends)
                count += len(ends)
                last = int(ends[-1]) if len(ends) else last
        if count != len(self) or last != self.meta.id_bytes:
            raise ValueError(
                f"{self.folder / IDS_NAME} must have a line for each of {len(self):,} sentences, but it has not; "
                "remove the folder and encode again."
            )
        return np.concatenate(parts)

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
        wanted = set(names)
        with (self.folder / IDS_NAME).open("rb") as file:
            return {name: row for row, line in enumerate(file) if (name := self._decode(line, row)) in wanted}
