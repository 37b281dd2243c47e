"""What is written beside cached vectors, in ``meta.json``: how to read them, and what made them.

The file is replaced as a whole each time, after what it speaks of has reached the disk. So a cache holds what its
``meta.json`` says, and perhaps more, whenever the program that wrote it died.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch

from muse_plugin import __version__
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.json_objects import find_faults, read_json_object

FORMAT_VERSION = 1
META_NAME = "meta.json"
VECTORS_NAME = "vectors.bin"
IDS_NAME = "ids"
LOCK_NAME = "lock"
LONGEST_ID = 1 << 20  # bytes
DTYPES = ("float32", "float16")
# What else a cache may hold: indexes of it, and what a killed program left of a file it was writing.
INDEX_PREFIX = "index-"
_HOW = "name a folder that muse-plugin match encode made"
_LONGEST_META = 1 << 16  # bytes; it has a few hundred
_SHOWN = 60  # characters of what a damaged file holds


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
    def numpy_dtype(self) -> "np.dtype[Any]":
        """Type of the numbers on disk, on any machine."""
        return np.dtype("<f2" if self.dtype == "float16" else "<f4")


def write_meta(meta: CacheMeta, folder: Path) -> None:
    """Replaces ``meta.json`` in one step."""
    with open_atomically(folder / META_NAME) as file:
        file.write((json.dumps({"format_version": FORMAT_VERSION, **asdict(meta)}, indent=2) + "\n").encode("utf-8"))


def read_meta(folder: Path) -> Optional[CacheMeta]:
    """Reads ``meta.json``; None if there is none.

    Raises:
        ValueError: if it is damaged, of another format version, or no file of ours.
    """
    path = folder / META_NAME
    if not path.is_file():
        return None
    content = read_json_object(path, _HOW, _LONGEST_META)
    if "format_version" not in content:
        raise ValueError(f"{path} must describe cached vectors, but it holds something else; {_HOW}.")
    version = content.pop("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} must have format_version {FORMAT_VERSION}, but got {repr(version)[:_SHOWN]}; encode again with "
            "this version of muse_plugin, or use the version that wrote it."
        )
    faults = _find_faults(content)
    if faults:
        raise ValueError(f"{path} must be as muse-plugin match encode wrote it, but {'; '.join(faults)}; encode again.")
    return CacheMeta(**content)


def _find_faults(content: dict[str, Any]) -> list[str]:
    kinds: dict[str, Any] = {entry.name: entry.type for entry in fields(CacheMeta)}
    kinds["versions"] = dict
    if faults := find_faults(content, kinds):
        return faults
    if content["dtype"] not in DTYPES:
        faults.append(f"'dtype' must be one of {', '.join(DTYPES)} but is {repr(content['dtype'])[:_SHOWN]}")
    sizes = ("width", "max_words")
    faults += [f"'{name}' must be at least 1 but is {content[name]}" for name in sizes if content[name] < 1]
    counts = ("sentences", "done", "id_bytes", "truncated")
    faults += [f"'{name}' must be at least 0 but is {content[name]}" for name in counts if content[name] < 0]
    if content["done"] > content["sentences"] or (content["whole"] and content["done"] != content["sentences"]):
        faults.append(f"{content['done']} of {content['sentences']} sentences cannot be done")
    return faults


def require_meta(folder: Path) -> CacheMeta:
    """Reads the ``meta.json`` of a cache that is there and whole.

    Raises:
        FileNotFoundError: if there is no such folder.
        NotADirectoryError: if it is a file.
        ValueError: if it is no cache, not whole, or not readable by this version.
    """
    if not folder.exists():
        raise FileNotFoundError(f"there is no cache {folder}; make it with muse-plugin match encode --output {folder}.")
    if not folder.is_dir():
        raise NotADirectoryError(f"a cache is a folder, but {folder} is a file; {_HOW}.")
    meta = read_meta(folder)
    if meta is None:
        raise ValueError(f"a cache must hold {META_NAME}, but {folder} does not; {_HOW}.")
    if not meta.whole:
        raise ValueError(
            f"a cache must be whole, but {folder} has {meta.done:,} of {meta.sentences:,} sentences; run the same "
            "muse-plugin match encode again, and it goes on from there."
        )
    return meta


def check_sizes(meta: CacheMeta, folder: Path) -> None:
    """Checks that the files of a whole cache are as long as its ``meta.json`` says.

    Raises:
        FileNotFoundError: if one is not there.
        ValueError: if one has another length.
    """
    for name, size in ((VECTORS_NAME, meta.done * meta.row_bytes), (IDS_NAME, meta.id_bytes)):
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
