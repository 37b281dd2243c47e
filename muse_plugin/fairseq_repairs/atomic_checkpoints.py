"""Writes and copies checkpoints so that a name always holds a whole file, whatever happens to the process or the disk.

fairseq writes one file and copies it to ``checkpoint_best.pt`` and ``checkpoint_last.pt``, over what they held. A
process that is killed in the copy leaves half a file under the very name from which training resumes. Here both go
through a temporary file in the same folder, which reaches the disk before it takes the name. What a killed process
leaves behind of it is removed when training starts again. Read ``resuming`` next: what happens to files that
are damaged already.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from muse_plugin.fairseq_repairs.repair import Repair, find_cause, replace
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.locks import try_lock

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20  # read at once

# Names that training writes, also those of one process of several (checkpoint_last-shard0.pt). Not checkpoint_avg.pt:
# another command may be writing it.
_NAME = r"(checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.+)[^/]*|crash)\.pt"
_LEFTOVER = re.compile(rf"\.{_NAME}\.[0-9a-f]{{8}}\.tmp|{_NAME}\.tmp")  # ours; fairseq's


@contextlib.contextmanager
def _open_for_checkpoint(path: str) -> Iterator[BinaryIO]:
    """Opens a file that becomes ``path`` at the end of the block, and turns a failure to write into one sentence.

    The file is locked while it is written: a lock ends with its process, so what is not locked is left over.

    Raises:
        OSError: if the file could not be written, for example because the disk is full; ``path`` is as it was.
    """
    try:
        with open_atomically(path) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                try_lock(file)
            yield file
    except Exception as error:
        cause = find_cause(error, OSError)  # torch.save reports a failed write as an error of its own archive
        if cause is None or cause.errno is None:
            raise
        raise OSError(cause.errno, _sentence(path, cause)) from error


def _sentence(path: str, cause: OSError) -> str:
    folder = Path(path).absolute().parent
    free = ""
    with contextlib.suppress(OSError):
        free = f", where {shutil.disk_usage(folder).free / 2**20:,.0f} MiB are free"
    return (
        f"the checkpoint {path} could not be written: {cause.strerror}. Earlier checkpoints are as they were; make "
        f"room in {folder}{free}, then start the same command again: training continues from the last checkpoint."
    )


def _is_local(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and not PathManager.path_requires_pathmanager(os.fspath(path))


def remove_leftovers(folder: Path) -> list[str]:
    """Removes the temporary checkpoints of killed processes from a folder, if there is one; returns their names."""
    removed = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if _LEFTOVER.fullmatch(path.name) and path.is_file() and _is_abandoned(path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                removed.append(path.name)
    return removed


def _is_abandoned(path: Path) -> bool:
    try:
        with path.open("r+b") as file:
            return try_lock(file)  # false: it is being written
    except OSError:  # gone, or not ours to touch
        return False


def _apply() -> None:
    @replace(checkpoint_utils, "torch_persistent_save")
    def torch_persistent_save(original: Any, obj: Any, filename: str, async_write: bool = False) -> None:
        if async_write or not _is_local(filename):
            original(obj, filename, async_write)
            return
        with _open_for_checkpoint(filename) as file:
            torch.save(obj, file)

    @replace(PathManager, "copy")
    def copy(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if not (_is_local(src_path) and _is_local(dst_path)):
            return bool(original(src_path, dst_path, overwrite))
        with open(src_path, "rb") as source, _open_for_checkpoint(dst_path) as file:
            shutil.copyfileobj(source, file, COPY_BYTES)
        return True

    @replace(checkpoint_utils, "verify_checkpoint_directory")
    def verify_checkpoint_directory(original: Any, save_dir: str) -> None:
        original(save_dir)
        if removed := remove_leftovers(Path(save_dir)):
            logger.info("removed what a killed process had left of checkpoints: %s.", ", ".join(removed))


REPAIR = Repair(
    why="checkpoint_last.pt and checkpoint_best.pt are written in place: a process killed in that moment, or a full "
    "disk, leaves half a file from which training cannot resume; and a write that fails because the disk is full "
    "is tried three times, each on top of what the last one left, and reported as 'unexpected pos'",
    remedy=_apply,
)
