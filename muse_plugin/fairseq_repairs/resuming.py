"""Continues a training that was interrupted as if it had never stopped.

* From the newest whole checkpoint when ``checkpoint_last.pt`` is damaged. ``atomic_checkpoints`` keeps this from
  happening to files that it writes; others come from a training without it, from a copy that was interrupted, or from a
  disk. A checkpoint that was asked for by name is never replaced by another.
* With a schedule of the learning rate that knows every validation. fairseq stores a checkpoint at the end of an epoch
  before the schedule hears of that epoch's validation, and a training that resumes does not tell it any more.
  ``reduce_lr_on_plateau``, which counts them, does not store its count either. The other schedules depend on the number
  of updates or epochs alone.
* Not beyond its end: what --max-update, --patience or --stop-time-hours ended stays as it is. The count of validations
  without improvement, which --patience limits, is stored in checkpoints (as ``extra_state["early_stopping"]``).
* Not short of it: --stop-min-lr looks at the rate between epochs, not where one is continued.
"""

import logging
import math
from pathlib import Path
from types import ModuleType
from typing import Any

from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

from muse_plugin.checkpoints.whole_checkpoints import Newest, find_damage, find_newest_whole
from muse_plugin.fairseq_repairs.repair import Repair, loaded_command, replace

logger = logging.getLogger(__name__)

DEFAULT_NAME = "checkpoint_last.pt"  # of --restore-file
KEY = "early_stopping"  # in the checkpoint's extra_state
COUNTS = ("num_bad_epochs", "cooldown_counter")  # of torch's schedule; next to best and last_epoch in the checkpoint


# ---- the checkpoint --------------------------------------------------------------------------------------------------


def _choose(path: Path, restore_file: str, save_dir: Path, suffix: str) -> Path:
    """The file to load instead of ``path``: itself if it is whole.

    Args:
        path: what fairseq is about to load.
        restore_file: the flag; only its default leaves the choice to us.
        save_dir: folder of the checkpoints.
        suffix: of the names, where every process saves a file of its own; such files belong together.

    Raises:
        ValueError: if it is a folder, or damaged and nothing may take its place.
    """
    is_default = restore_file == DEFAULT_NAME and path == save_dir / f"checkpoint_last{suffix}.pt"
    if path.is_dir():
        raise ValueError(f"training starts from a checkpoint, a file, but {path} is a folder; name a file in it.")
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
            "--save-dir; to continue from another checkpoint, name it by --restore-file."
        )
    logger.warning(
        "%s is damaged: %s. Training continues from %s, the newest whole checkpoint, after %d updates%s; what came "
        "after is trained again. The damaged file stays until the next checkpoint takes its name.",
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
    """Says where fairseq starts from the beginning without a word although there is something to continue from."""
    if restore_file != DEFAULT_NAME:
        logger.warning("--restore-file: there is no file %s; training starts from the beginning.", path)
    elif is_default and path.parent.is_dir():
        newest = find_newest_whole(path.parent)
        if newest.path is not None:
            logger.warning(
                "there is no %s, so training starts from the beginning, and will replace %s (%d updates) when it gets "
                "there; to continue from that instead, start again with --restore-file %s.",
                path,
                newest.path.name,
                newest.num_updates,
                newest.path,
            )


def _warn_of_missing_state(trainer: Trainer, chosen: str) -> None:
    """Says what fairseq begins again without a word, as from the average of checkpoints."""
    updates = trainer._optim_history[-1].get("num_updates", 0) if trainer._optim_history else 0
    if updates:
        logger.warning(
            "%s has no state of the optimizer: epochs are counted on, but updates, the optimizer and the learning rate "
            "begin again, although %d updates were made; --finetune-from-model begins all of it again.",
            chosen,
            updates,
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


# ---- the end ---------------------------------------------------------------------------------------------------------


def _early_stopping() -> list[dict[str, Any]]:
    """What fairseq-train remembers for --patience, ``best`` and ``num_runs``, in each module that it is loaded as."""
    return [vars(module.should_stop_early) for module in loaded_command("train")]


def _why_ended(cfg: Any, trainer: Trainer) -> str | None:
    """The rule by which the training ended before it was started again, or None."""
    updates, limit = trainer.get_num_updates(), cfg.optimization.max_update
    if limit and updates >= limit:
        return f"--max-update is {limit}, and {updates} updates are done"
    runs = max((state.get("num_runs", 0) for state in _early_stopping()), default=0)
    patience = cfg.checkpoint.patience
    if patience > 0 and runs >= patience:
        return f"--patience is {patience}, and the last {runs} validations brought no improvement"
    hours, trained = cfg.optimization.stop_time_hours, trainer._previous_training_time / 3600
    if 0 < hours < trained:
        return f"--stop-time-hours is {hours:g}, and {trained:.3g} hours are over"
    return None


def _hide_rate(trainer: Trainer) -> None:
    """For the one time that fairseq-train asks for the rate itself, before its first epoch."""

    def get_lr() -> float:
        del trainer.get_lr
        return math.inf

    trainer.get_lr = get_lr


# ---- the remedies ----------------------------------------------------------------------------------------------------


def _resume() -> None:
    @replace(Trainer, "load_checkpoint")
    def load_checkpoint(
        original: Any,
        self: Trainer,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        chosen = _choose_together(self, filename)
        extra_state = original(
            self, chosen, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters=reset_meters
        )
        if extra_state is not None and not reset_optimizer and self.get_num_updates() == 0:
            _warn_of_missing_state(self, chosen)
        if extra_state is not None and not reset_optimizer and not reset_lr_scheduler:
            position, val_loss = extra_state["train_iterator"], extra_state.get("val_loss")
            if position["iterations_in_epoch"] == 0 and val_loss is not None:  # stored at the end of an epoch
                self.lr_step(position["epoch"] - 1, val_loss)
            if position["iterations_in_epoch"] > 0:
                _hide_rate(self)
        is_new = extra_state is None or reset_optimizer or reset_meters  # then fairseq forgets the best score, too
        for state in _early_stopping():
            state.clear()
            state.update({} if is_new else extra_state.get(KEY, {}))
        return extra_state

    @replace(Trainer, "save_checkpoint")
    def save_checkpoint(original: Any, self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        states = [dict(state) for state in _early_stopping() if state]  # empty before the first validation
        return original(self, filename, {**extra_state, KEY: states[0]} if states else extra_state)

    @replace(ReduceLROnPlateauLRSchedule, "state_dict")
    def state_dict(original: Any, self: ReduceLROnPlateauLRSchedule) -> dict[str, Any]:
        return {**original(self), **{name: getattr(self.lr_scheduler, name) for name in COUNTS}}

    @replace(ReduceLROnPlateauLRSchedule, "load_state_dict")
    def load_state_dict(original: Any, self: ReduceLROnPlateauLRSchedule, state_dict: dict[str, Any]) -> None:
        original(self, state_dict)
        for name in COUNTS:
            setattr(self.lr_scheduler, name, state_dict.get(name, 0))  # 0: of a checkpoint made without this repair


def _stop_where_it_ended(module: ModuleType) -> None:
    @replace(module, "train")
    def train(original: Any, cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
        if reason := _why_ended(cfg, trainer):
            logger.info("this training has ended before: %s; nothing more is trained.", reason)
            return [None], True
        return original(cfg, trainer, task, epoch_itr)


RESUMING = Repair(
    why="a checkpoint_last.pt that was cut short ends training with 'PytorchStreamReader failed', although earlier "
    "checkpoints are next to it, and one in which bytes have changed is read as if it were whole; a training that "
    "resumes forgets the validation after the last epoch, and how many in a row brought no improvement, which "
    "--patience and --lr-scheduler reduce_lr_on_plateau count, and ends in the middle of an epoch by --stop-min-lr, "
    "which is for its end",
    remedy=_resume,
)
END = Repair(
    why="a training that has ended and is started again makes one more update, beyond --max-update, --patience or "
    "--stop-time-hours",
    remedy=_stop_where_it_ended,
    command="train",
)
