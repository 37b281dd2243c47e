"""Finds the checkpoints of a folder that are whole, and says what is wrong with the others."""

import errno
import pickle
import re
import zipfile
from pathlib import Path
from typing import NamedTuple, Optional

import torch

from muse_plugin.checkpoints import safe_loading
from muse_plugin.pretrained.torch_files import check_torch_file

# What training saves next to checkpoint_last.pt, all of it enough to resume from.
_TRAINING_NAME = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|\.best_.+)\.pt")


class Newest(NamedTuple):
    """The newest whole checkpoint of a folder.

    Attributes:
        path: the file, or None if none is whole.
        num_updates: updates that it was trained for; 0 if there is none.
        damaged: what was passed over on the way: the damage by file.
    """

    path: Optional[Path]
    num_updates: int
    damaged: dict[Path, str]


def find_newest_whole(folder: Path) -> Newest:
    """Finds what training can resume from in a folder whose ``checkpoint_last.pt`` cannot be read.

    Candidates are the files that fairseq-train saves: ``checkpoint3.pt``, ``checkpoint_3_1200.pt``,
    ``checkpoint_best.pt``, ``checkpoint.best_loss_2.10.pt``. The one with the most updates that is whole is chosen;
    the number of updates is in the file.
    """
    damaged: dict[Path, str] = {}
    candidates = []
    for path in sorted(folder.iterdir()):
        if _TRAINING_NAME.fullmatch(path.name) and path.is_file():
            num_updates = _read_num_updates(path)
            if num_updates is None:
                damaged[path] = find_damage(path) or "it is no checkpoint of fairseq-train"
            else:
                candidates.append((num_updates, path))
    # Among equals, those with a number in their name: checkpoint_best.pt is a copy.
    for num_updates, path in sorted(candidates, key=lambda pair: (-pair[0], "best" in pair[1].name, pair[1])):
        damage = find_damage(path)
        if damage is None:
            return Newest(path, num_updates, damaged)
        damaged[path] = damage
    return Newest(None, 0, damaged)


def _read_num_updates(path: Path) -> Optional[int]:
    """The number of updates in a checkpoint, without reading its parameters; None if that cannot be read."""
    safe_loading.register()
    try:
        check_torch_file(path)
        is_archive = zipfile.is_zipfile(path)  # others, of torch before 1.6, have to be read as a whole
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
        return int(state["optimizer_history"][-1]["num_updates"])
    except Exception:  # a damaged file may raise anything
        return None


def find_damage(path: Path) -> Optional[str]:
    """Says what is wrong with the bytes of a checkpoint file, or None if they are as they were written.

    torch.load notices a file that was cut short, but not one in which bytes have changed, as after a power cut. Here
    the file is read to its end and compared with the checksums in it; memory stays small. Files of torch before 1.6
    have none: they are loaded instead.

    Raises:
        OSError: if it cannot be read at all.
    """
    with path.open("rb") as file:
        start = file.read(2)
    if not start:
        return "it is empty"
    if start != b"PK":
        try:
            safe_loading.load_checkpoint(path)
        except ValueError:
            return "it is no checkpoint, or the beginning of one"
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(name.rpartition("/")[2] == "data.pkl" for name in archive.namelist()):
                return "it is an archive of something else"
            part = archive.testzip()
        if part is not None:
            return f"its part {part} does not have the bytes that were written"
        safe_loading.register()
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)  # the list of parts; no parameters
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return "its list of parts is damaged"  # it places one before the beginning of the file
    except pickle.UnpicklingError:
        return None  # its bytes are right, but name an object that is refused: whoever loads the file says so
    except Exception:  # as above
        return "it is cut short"
    return None
