"""Refuses an index of binarised data that claims more than it holds, and reads no hole of a sparse file."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import indexed_dataset

from muse_plugin.fairseq_repairs.repair import Repair, replace

CHUNK = 1 << 20  # bytes; an index that has so many zeros one after the other speaks of nothing
# Magic, version, type of the ids, sentences; int32 sizes and int64 places follow.
_MMAP = struct.Struct("<9sQBQ")
# Magic, version, type of the ids and its bytes, sentences, sizes; two lists of places and the sizes follow.
_OLDER = struct.Struct("<8sQQQQQ")


def _find_hole(path: Path) -> str:
    hole = bytes(CHUNK)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            if chunk == hole:
                return f"is empty from byte {file.tell() - CHUNK:,} on"
    return ""


def _find_shortage(path: Path, data: Path) -> str:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_OLDER.size)
    if head.startswith(b"TNTIDX") and len(head) == _OLDER.size:
        *_, sentences, sizes = _OLDER.unpack(head)
        return _say_claim(sentences, size, _OLDER.size + 8 * (2 * (sentences + 1) + sizes))
    if not head.startswith(b"MMIDIDX") or len(head) < _MMAP.size:
        return ""  # fairseq knows what to say of other files
    _, _, code, sentences = _MMAP.unpack(head[: _MMAP.size])
    fault = _say_claim(sentences, size, _MMAP.size + 12 * sentences)
    if fault or not sentences or code not in indexed_dataset._code_to_dtype:
        return fault
    lengths = np.memmap(path, np.int32, "r", _MMAP.size, (sentences,))
    tokens, least = int(lengths.sum(dtype=np.int64)), int(lengths.min())
    held = data.stat().st_size // np.dtype(indexed_dataset._code_to_dtype[code]).itemsize
    if least < 0 or tokens > held:
        return f"describes {tokens:,} tokens, the shortest sentence has {least:,}, and {data} holds {held:,}"
    return ""


def _say_claim(sentences: int, size: int, needed: int) -> str:
    return f"has {size:,} bytes, but {sentences:,} sentences need {needed:,}" if size < needed else ""


def is_hollow(path: str) -> bool:
    """Whether a file takes less than half of its length on the disk; a file system that compresses has such, too."""
    status = os.stat(path)
    return status.st_blocks * 512 < status.st_size // 2


def _apply() -> None:
    @replace(indexed_dataset, "make_dataset")
    def make_dataset(original: Any, path: str, impl: str, *rest: Any, **named: Any) -> Any:
        if impl in ("mmap", "lazy", "cached", "huffman") and indexed_dataset.dataset_exists(path, impl):
            index, data = Path(indexed_dataset.index_file_path(path)), Path(indexed_dataset.data_file_path(path))
            if fault := _find_hole(index) or _find_shortage(index, data):
                raise ValueError(
                    f"binarised data must be as they were written, but {index} {fault}; binarise the text again."
                )
        return original(path, impl, *rest, **named)

    @replace(indexed_dataset, "_warmup_mmap_file")
    def _warmup_mmap_file(original: Any, path: str) -> None:
        if not is_hollow(path):
            original(path)


REPAIR = Repair(
    why="the index of binarised data is believed: one of a few kilobytes asks for any amount of memory, and a sparse "
    "file of terabytes is read from end to end",
    remedy=_apply,
)
