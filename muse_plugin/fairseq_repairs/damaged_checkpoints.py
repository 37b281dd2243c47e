"""Resumes training from the newest whole checkpoint when ``checkpoint_last.pt`` is damaged.

``atomic_checkpoints`` keeps this from happening to files that it writes. Others come from a training without it, from a
copy that was interrupted, or from a disk. A checkpoint that was asked for by name is never replaced by another.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from muse_plugin.checkpoints.locate import Newest, find_damage, find_newest_whole
from muse_plugin.fairseq_repairs.repair import Repair

logger = logging.getLogger(__name__)

DEFAULT_NAME = "checkpoint_last.pt"  # of --restore-file

_MARK = "_checks_for_damage"


def _choose(path: Path, restore_file: str, save_dir: Path, suffix: str) -> Path:
    """The file to load instead of ``path``: itself if it is whole.

    Args:
        path: what fairseq is about to load.
        restore_file: the flag; only its default leaves the choice to us.
        save_dir: folder of the checkpoints.
        suffix: of the names, where every process saves a file of its own; such files belong together.

    Raises:
        ValueError: if it is damaged and nothing may take its place.
    """
    is_default = restore_file == DEFAULT_NAME and path == save_dir / f"checkpoint_last{suffix}.pt"
    if not path.is_file():
        _warn_of_start(path, restore_file, is_default)
        return path
    damage = find_damage(path)
    if damage is None:
        return path
    if not is_default:
        raise ValueError(
            f"training cannot start from {path}, which is damaged: {damage}. It was asked for by name, so no other is "
            "taken; name a whole checkpoint, or copy this one again."
        )
    if suffix:
        raise ValueError(
            f"training cannot resume from {path}, which is damaged: {damage}. Each process has a file of its own, and "
            "all must be of the same update; name those of an earlier one by --restore-file."
        )
    newest = find_newest_whole(save_dir)
    if newest.path is None:
        raise ValueError(
            f"training cannot resume from {path}, which is damaged: {damage}; and there is no whole checkpoint in "
            f"{save_dir}{_list(newest)}. To train from the beginning, remove the damaged files or name another "
            "--save-dir; to go on from another checkpoint, name it by --restore-file."
        )
    logger.warning(
        "%s is damaged: %s. Training goes on from %s, the newest whole checkpoint, after %d updates%s; what came after "
        "is trained again. The damaged file stays until the next checkpoint takes its name.",
        path,
        damage,
        newest.path,
        newest.num_updates,
        _list(newest),
    )
    return newest.path


def _list(newest: Newest) -> str:
    also = ", ".join(f"{path.name}: {damage}" for path, damage in newest.damaged.items())
    return f" (also damaged: {also})" if also else ""


def _warn_of_start(path: Path, restore_file: str, is_default: bool) -> None:
    """Says where fairseq starts from the beginning without a word although there is something to go on from."""
    if restore_file != DEFAULT_NAME:
        logger.warning("--restore-file: there is no file %s; training starts from the beginning.", path)
    elif is_default and path.parent.is_dir():
        newest = find_newest_whole(path.parent)
        if newest.path is not None:
            logger.warning(
                "there is no %s, so training starts from the beginning, and will replace %s (%d updates) when it gets "
                "there; to go on from that instead, start again with --restore-file %s.",
                path,
                newest.path.name,
                newest.num_updates,
                newest.path,
            )


def _choose_together(trainer: Trainer, filename: str) -> str:
    """``_choose``, once for all processes: the first one decides, and an error reaches them all."""
    if PathManager.path_requires_pathmanager(filename):  # not on a disk
        return filename
    settings, suffix = trainer.cfg.checkpoint, trainer.checkpoint_suffix
    together = trainer.data_parallel_world_size > 1 and not suffix and not trainer.tpu
    choice: tuple[str, str] = ("", "")  # the file; what is wrong
    if not together or trainer.data_parallel_rank == 0:
        try:
            chosen = _choose(Path(filename), settings.restore_file, Path(settings.save_dir), suffix)
            choice = (filename if chosen == Path(filename) else str(chosen), "")
        except (ValueError, OSError) as error:
            if not together:
                raise
            choice = ("", str(error))
    if together:
        choice = distributed_utils.broadcast_object(
            choice, src_rank=0, group=trainer.data_parallel_process_group, dist_device=trainer.device
        )
    chosen_name, fault = choice
    if fault:
        raise ValueError(fault)
    return chosen_name


def _is_needed() -> bool:
    # A trainer needs a model, a task and a file; whether it looks at the file's checksums cannot be tried out here.
    return not hasattr(Trainer.load_checkpoint, _MARK)


def _apply() -> None:
    original = Trainer.load_checkpoint

    @functools.wraps(original)
    def load_checkpoint(self: Trainer, filename: str, *rest: Any, **named: Any) -> Any:
        return original(self, _choose_together(self, filename), *rest, **named)

    setattr(load_checkpoint, _MARK, True)
    Trainer.load_checkpoint = load_checkpoint


REPAIR = Repair(
    name="damaged-checkpoints",
    why="a checkpoint_last.pt that was cut short ends training with 'PytorchStreamReader failed', although earlier "
    "checkpoints lie beside it; one in which bytes have changed is read as if it were whole",
    is_needed=_is_needed,
    apply=_apply,
)
