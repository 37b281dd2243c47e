"""Writes files so that nobody ever sees half of one; every file that this package writes goes through here."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Union

_LONGEST_NAME = 255 - len("." + ".00000000.tmp")  # bytes of it that a temporary file repeats


@contextlib.contextmanager
def open_atomically(path: Union[str, "os.PathLike[str]"]) -> Iterator[BinaryIO]:
    """Opens a file next to ``path`` for writing, which takes its place when the block ends without an exception.

    The bytes go to that file, reach the disk, and the file is then renamed. When anything fails, it is removed and
    ``path`` is untouched. Mode bits are those of any new file (0666 without the umask). What is no ordinary file, such
    as ``/dev/null`` or a named pipe, cannot be replaced and is written directly.

    Args:
        path: where to; its folder must exist.

    Yields:
        The open file.

    Raises:
        FileNotFoundError: if the folder of ``path`` does not exist.
        IsADirectoryError: if ``path`` is a folder.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; create it first.")
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


def sync_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
