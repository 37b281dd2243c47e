"""Locks of files, which the system releases when their process ends, however it ends."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO


def try_lock(file: BinaryIO | int) -> bool:
    """Locks an open file, or an open folder by its descriptor, for this process alone; false if another has done so.

    Raises:
        OSError: if the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_without_links(path: Path) -> BinaryIO:
    """Opens a file for appending; never one elsewhere that a link leads to.

    Raises:
        OSError: if ``path`` is a link.
    """
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))


def take_lock(path: Path, what: object, way_out: str) -> BinaryIO:
    """Makes and locks a file; whoever closes it gives the lock back, and may remove it before.

    Args:
        path: the lock.
        what: that only one program at a time may write, for the message.
        way_out: what else the user can do, for the message.

    Raises:
        ValueError: if another program holds the lock, or it is a link.
    """
    while True:
        if path.is_symlink():
            raise ValueError(f"the lock {path} must be a file, but it is a link to another place; remove it.")
        file = open_without_links(path)
        if not try_lock(file):
            file.close()
            raise ValueError(
                f"one program at a time may write to {what}, but another is doing so; wait for it or {way_out}."
            )
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # its owner was just finishing and removed it: make another
