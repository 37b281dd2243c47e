"""A folder that appears all at once: built next to its place, moved there when complete, and removed if it fails."""

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from muse_plugin.files.locks import try_lock


@contextlib.contextmanager
def build_folder(output: Path) -> Iterator[Path]:
    """Gives a new folder next to ``output`` to fill, which takes its place when the block ends without an exception.

    A folder that is there is replaced. When anything fails, the new one is removed, ``output`` is what it was, and
    folders made above it are gone. What killed programs left of the same output is removed; an output that one of them
    had put aside comes back.
    """
    output = output.resolve()
    made = [folder for folder in output.parents if not folder.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.with_name(f".{output.name}.{uuid.uuid4().hex[:8]}.tmp")
    _remove_leftovers(output)
    lock = None
    try:
        folder.mkdir()
        lock = _lock_folder(folder)
        yield folder
        _take_place(folder, output)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):  # somebody else has put something there
                parent.rmdir()
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _lock_folder(folder: Path) -> Optional[int]:
    """Locks a folder as long as this process lives and the result is open; None if another has done so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # of a file system without locks
        if try_lock(descriptor):
            return descriptor
    os.close(descriptor)
    return None


def _remove_leftovers(output: Path) -> None:
    for aside in output.parent.glob(f".{glob.escape(output.name)}.????????.old"):
        with contextlib.suppress(OSError):
            folder = aside.with_suffix(".tmp")
            is_there = folder.exists()
            lock = _lock_folder(folder) if is_there else None
            if output.exists():
                shutil.rmtree(aside, ignore_errors=True)
            elif lock is not None or not is_there:  # nobody is about to put that folder in its place
                aside.rename(output)
            if lock is not None:
                os.close(lock)
    for folder in output.parent.glob(f".{glob.escape(output.name)}.????????.tmp"):
        with contextlib.suppress(OSError):
            # An empty one may not be locked yet.
            lock = _lock_folder(folder) if any(folder.iterdir()) else None
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _take_place(folder: Path, output: Path) -> None:
    if not output.exists():
        folder.rename(output)
        return
    aside = folder.with_suffix(".old")
    output.rename(aside)
    try:
        folder.rename(output)
    except BaseException:
        aside.rename(output)
        raise
    shutil.rmtree(aside, ignore_errors=True)
