"""Writes cached vectors so that a program that was killed at any moment continues where it was.

In this order: the numbers and the ids reach the disk, then ``meta.json`` says how many sentences are done. What the
files hold beyond that is cut off when the work continues. See ``vector_cache.py`` for reading.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from muse_plugin.files.locks import take_lock
from muse_plugin.matching.vector_cache import (
    IDS_NAME,
    INDEX_PREFIX,
    LOCK_NAME,
    META_NAME,
    VECTORS_NAME,
    CacheMeta,
    check_sizes,
    read_meta,
    write_meta,
)
from muse_plugin_command.flag_checks import check_target_folder

_OURS = re.compile(rf"{META_NAME}|{VECTORS_NAME}|{IDS_NAME}|{LOCK_NAME}|{INDEX_PREFIX}.*|\..*\.[0-9a-f]{{8}}\.tmp")
_WANTED = {
    "fingerprint": "another model, dictionary or treatment of text",
    "text_sha256": "another text",
    "with_ids": "--ids given or left out",
    "sentences": "another number of sentences",
    "width": "vectors of another width",
    "dtype": "another --dtype",
    "max_words": "another --max-words",
}


class CacheWriter(contextlib.AbstractContextManager["CacheWriter"]):
    """Adds vectors to a cache, a new one or one that was left unfinished; a context manager.

    Args:
        folder: where the cache is, or is to be made; the folder above it must exist.
        wanted: what the cache is to be of; its state does not count.

    Attributes:
        meta: the state; ``meta.done`` sentences need not be encoded any more.

    Raises:
        FileNotFoundError: if the folder above does not exist.
        NotADirectoryError: if ``folder`` is a file.
        FileExistsError: if ``folder`` holds something else, or a cache of something else.
        ValueError: if somebody else is writing to it, or its files are damaged (``FileNotFoundError``: or gone).
    """

    def __init__(self, folder: Path, wanted: CacheMeta) -> None:
        self.folder = folder
        self._files: list[BinaryIO] = []  # of vectors and of ids; none if the cache is whole
        check_folder(folder)
        folder.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(take_lock(folder / LOCK_NAME, folder, "name another folder"))
            found = read_meta(folder)
            if found is None:
                # Files of vectors without a description are not ours to overwrite.
                for name in (VECTORS_NAME, IDS_NAME):
                    if (folder / name).exists():
                        raise FileExistsError(
                            f"{folder} holds {name} but no {META_NAME} that says what it is; name another folder, or "
                            "remove this one."
                        )
                self.meta = replace(wanted, done=0, id_bytes=0, truncated=0, whole=False)
                write_meta(self.meta, folder)
            else:
                _check_same(folder, found, wanted)
                self.meta = found
            if self.meta.whole:
                check_sizes(self.meta, folder)
            else:
                for name, size in self.meta.file_sizes.items():
                    self._files.append(stack.enter_context(_open_at(folder / name, size)))
            self._open = stack.pop_all()

    def append(self, vectors: Tensor, ids: Sequence[str], truncated: int = 0) -> None:
        """Adds the vectors of the next sentences; when this returns they are safe.

        Args:
            vectors: shape (N, ``width``).
            ids: their N names; without line breaks.
            truncated: how many of them were cut.

        Raises:
            ValueError: if the vectors do not fit, are too many, or one is not finite; nothing is added then.
        """
        assert self._files, "the cache is whole"
        if vectors.shape != (len(ids), self.meta.width):
            raise ValueError(
                f"a vector of width {self.meta.width} is needed for each of {len(ids)} ids, but got vectors of shape "
                f"{tuple(vectors.shape)}."
            )
        if self.meta.done + len(ids) > self.meta.sentences:
            raise ValueError(
                f"{self.folder} is of {self.meta.sentences} sentences, but got {self.meta.done + len(ids)}; the text "
                "must not change while it is encoded."
            )
        stored = vectors.detach().cpu().to(getattr(torch, self.meta.dtype))
        bad = (~torch.isfinite(stored).all(dim=1)).nonzero()
        if len(bad):
            row = int(bad[0])
            way_out = "use --dtype float32" if bool(torch.isfinite(vectors[row]).all()) else "check the model"
            raise ValueError(
                f"vectors must be finite, but that of sentence {ids[row]} is not in {self.meta.dtype}; {way_out}."
            )
        names = "".join(f"{name}\n" for name in ids).encode("utf-8")
        numbers = stored.numpy().astype(self.meta.numpy_dtype, copy=False).tobytes()
        for file, content in zip(self._files, (numbers, names), strict=True):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        meta = replace(
            self.meta,
            done=self.meta.done + len(ids),
            id_bytes=self.meta.id_bytes + len(names),
            truncated=self.meta.truncated + truncated,
        )
        write_meta(meta, self.folder)
        self.meta = meta

    def finish(self) -> None:
        """Says that nothing is missing.

        Raises:
            ValueError: if something is.
        """
        if self.meta.done != self.meta.sentences:
            raise ValueError(
                f"a whole cache has {self.meta.sentences} sentences, but {self.folder} has {self.meta.done}; the text "
                "must not change while it is encoded."
            )
        if not self.meta.whole:
            self.meta = replace(self.meta, whole=True)
            write_meta(self.meta, self.folder)

    def __exit__(self, *error: object) -> None:
        """Closes the files, and the lock last, which lets others write."""
        self._open.close()


def check_folder(folder: Path) -> None:
    """Checks that a cache may be made or continued here, without touching anything.

    Raises:
        FileNotFoundError: if the folder above does not exist.
        NotADirectoryError: if ``folder`` is a file.
        FileExistsError: if ``folder`` holds something else.
    """
    check_target_folder(folder, "--output")
    if not folder.exists():
        return
    foreign = sorted(path.name for path in folder.iterdir() if not _OURS.fullmatch(path.name))
    if foreign:
        raise FileExistsError(
            f"--output must name a new folder or one of cached vectors alone, but {folder} also holds "
            f"{', '.join(foreign[:3])}; name another folder or move that elsewhere."
        )
    linked = sorted(path.name for path in folder.iterdir() if path.is_symlink())
    if linked:
        raise FileExistsError(
            f"--output must name a folder of ordinary files, which are cut and written to, but {', '.join(linked[:3])} "
            f"in {folder} leads elsewhere; remove it, or make a link of the whole folder."
        )


def _check_same(folder: Path, found: CacheMeta, wanted: CacheMeta) -> None:
    differences = [
        f"{what} ({name} {getattr(found, name)}, now {getattr(wanted, name)})"
        for name, what in _WANTED.items()
        if getattr(found, name) != getattr(wanted, name)
        # which depends on --max-words, too
        and not (name == "fingerprint" and found.max_words != wanted.max_words)
    ]
    if differences:
        raise FileExistsError(
            f"--output must name a new folder or a cache of the same, but {folder} was made with "
            f"{' and '.join(differences)}; name another folder, or remove this one."
        )


def _open_at(path: Path, size: int) -> BinaryIO:
    """Opens a file for adding to its first ``size`` bytes; what follows them is cut off."""
    path.touch()
    found = path.stat().st_size
    if found < size:
        raise ValueError(
            f"{path} must have at least the {size:,} bytes that were recorded, but it has {found:,}; remove the folder "
            "and encode again."
        )
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file
