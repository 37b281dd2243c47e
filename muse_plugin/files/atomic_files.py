"""Writes files so that nobody ever sees half of one; every file that this package writes goes through here."""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Optional, Union

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_LONGEST_NAME = 255 - len("." + ".00000000.tmp")  # bytes of it that a temporary file repeats


@contextlib.contextmanager
def open_atomically(path: Union[str, "os.PathLike[str]"]) -> Iterator[BinaryIO]:
    """Opens a file next to ``path`` for writing, which takes its place when the block ends without an exception.

    The bytes go to that file, reach the disk, and the file is then renamed. When anything fails, it is removed and
    ``path`` is untouched. Mode bits are those of any new file (0666 without the umask). What is no ordinary file, such
    as ``/dev/null``, a named pipe or ``/dev/stdout``, cannot be replaced and is written directly. A link is
    replaced itself: the file that it names stays as it is.

    Raises:
        FileNotFoundError: if the folder of ``path`` does not exist.
        IsADirectoryError: if ``path`` is a folder.
    """
    path = Path(path)
    if not can_be_replaced(path):
        stream = _find_stream(path)
        with path.open("wb") if stream is None else os.fdopen(os.dup(stream), "wb") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; create it first.")
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)  # a name that is too long is refused now, not when the work is done
    start = os.fsdecode(os.fsencode(path.name)[:_LONGEST_NAME])
    temporary = path.with_name(f".{start}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # of the reason, not of the cleaning
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # a name that the user gave
        raise
    sync_folder(path.parent)


def can_be_replaced(path: Path) -> bool:
    """Whether there is an ordinary file, or none yet.

    An open stream, such as ``/dev/stdout``, is none, even if it leads to an ordinary file, into which a shell has
    redirected it.
    """
    return _find_stream(path) is None and (path.is_file() or not path.exists())


def _find_stream(path: Path) -> Optional[int]:
    """The number of the open stream that a path such as ``/dev/stdout`` or ``/dev/fd/3`` stands for, or None."""
    match = re.fullmatch(r"(?:/dev|/proc/self)/fd/([0-9]+)", str(path))
    return int(match[1]) if match and path.exists() else _STREAMS.get(str(path))


def sync_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
