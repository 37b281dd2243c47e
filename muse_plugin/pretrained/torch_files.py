"""Checks a file of ``torch.save`` before torch reads it, so that a small file cannot fill the memory.

``torch.save`` packs nothing, so what a file holds is no larger than the file. One that unpacks to more, or that states
how much memory to take, was made to do harm. That reading runs no code is torch's part (``weights_only``).
"""

import itertools
import pickletools
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from torch import Tensor

from muse_plugin.pretrained.pickle_sizes import find_excess

_ARCHIVE_START = b"PK"
_PICKLE_NAME = "data.pkl"
_PICKLES_BEFORE_1_6 = 5  # magic number, version, machine, content, keys of what follows
# On torch's own list of harmless names: bytearray(n) takes n bytes.
_TAKES_MEMORY = "bytearray"
_LONGEST_NAME = 200  # characters of an object's name; torch looks for one in a time that grows with the square of it
_Instructions = Iterator[tuple[pickletools.OpcodeInfo, Any]]
_SOURCE = "get the file from a source you trust"
_SHOWN = 60  # characters of a name in messages


def check_torch_file(path: Path) -> None:
    """Checks what a file, be it from before torch 1.6, would take in memory; what else is wrong, reading it will say.

    Raises:
        ValueError: if its parts, unpacked, are larger than the file, two of them have one name, or its pickle allocates
            memory by a number or makes far more items than it has instructions.
    """
    with path.open("rb") as file:
        is_archive = file.read(len(_ARCHIVE_START)) == _ARCHIVE_START
        file.seek(0)
        instructions = _iterate_archive(path) if is_archive else _iterate_pickles(path, file)
        if excess := find_excess(_check_names(path, instructions)):
            raise ValueError(f"{path} is refused: it {excess}, and no file of parameters needs that; {_SOURCE}.")


def _check_names(path: Path, instructions: _Instructions) -> _Instructions:
    """Hands on instructions whose objects have names that may be shown, and none of which takes memory by a number."""
    for opcode, argument in instructions:
        name = str(argument) if opcode.name == "GLOBAL" else ""
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise ValueError(
                f"{path} is refused: reading it would use a Python object with the name {name[:_SHOWN]!r}, of "
                f"{len(name):,} characters, which is no name; nothing was run: {_SOURCE}."
            )
        if name.rpartition(" ")[2] == _TAKES_MEMORY:
            raise ValueError(
                f"{path} is refused: reading it would use the Python object {_TAKES_MEMORY}, which takes as much "
                f"memory as the file says and which no file of parameters needs; nothing was run: {_SOURCE}."
            )
        yield opcode, argument


def _iterate_archive(path: Path) -> _Instructions:
    """The instructions in an archive, after a look at the sizes in its directory."""
    try:
        with zipfile.ZipFile(path) as archive:
            size, unpacked = path.stat().st_size, sum(entry.file_size for entry in archive.infolist())
            if unpacked > size:
                raise ValueError(
                    f"{path} is refused: it has {size:,} bytes, but its parts would take {unpacked:,} in memory, and "
                    f"torch.save packs nothing; {_SOURCE}."
                )
            # torch ignores case, and takes the first of two parts of one name, but zipfile the last.
            names = Counter(name.lower() for name in archive.namelist())
            if doubled := [name for name, count in names.items() if count > 1]:
                raise ValueError(
                    f"{path} is refused: it has more than one part named {doubled[0][:100]}, so that what is checked "
                    f"may not be what is read; {_SOURCE}."
                )
            for name in archive.namelist():
                if name.lower().rpartition("/")[2] == _PICKLE_NAME:
                    with archive.open(name) as stream:
                        yield from _iterate_instructions(path, stream)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is refused: the name of a part is no text ({error}); {_SOURCE}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError):
        return  # damaged, locked by a password or packed in a way that torch does not know either


def _iterate_pickles(path: Path, file: BinaryIO) -> _Instructions:
    """The instructions at the start of a file from before torch 1.6."""
    return itertools.chain.from_iterable(_iterate_instructions(path, file) for _ in range(_PICKLES_BEFORE_1_6))


def _iterate_instructions(path: Path, stream: BinaryIO | IO[bytes]) -> _Instructions:
    instructions = pickletools.genops(cast(IO[bytes], _Stream(stream, path.stat().st_size)))
    while True:
        try:
            opcode, argument, _ = next(instructions)
        except (StopIteration, ValueError):  # at its end, or damaged
            return
        yield opcode, argument


class _Stream:
    """A stream of a file, which makes no room for more bytes than the file has."""

    def __init__(self, stream: BinaryIO | IO[bytes], size: int) -> None:
        self._size, self._read, self.readline = size, stream.read, stream.readline

    def read(self, count: int) -> bytes:
        return self._read(min(count, self._size))


def check_stored_whole(path: Path, content: Any) -> None:
    """Checks that tensors are no larger than what was stored of them, as a repeated number or an empty one is.

    Args:
        path: the file that they come from, for messages.
        content: of the file: tensors in dicts, lists and tuples, also within each other.

    Raises:
        ValueError: if one is; it is named.
    """
    left = [("", content)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), item) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            left += [(name, item) for item in value]
        elif isinstance(value, Tensor) and not _is_stored_whole(value):
            raise ValueError(
                f"{path} is refused: {name[:100]} has the shape {tuple(value.shape)}, but not all of its numbers are "
                f"in the file; {_SOURCE}."
            )


def _is_stored_whole(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
