"""Has the learning rate's schedule know every validation, also when training was interrupted after one.

fairseq stores a checkpoint at the end of an epoch before the schedule hears of that epoch's validation, and a training
that resumes does not tell it any more. ``reduce_lr_on_plateau``, which counts them, does not store its count either.
The other schedules depend on the number of updates or epochs alone.
"""

from __future__ import annotations

import functools
from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair

COUNTS = ("num_bad_epochs", "cooldown_counter")  # of torch's schedule; beside best and last_epoch in the checkpoint

_MARK = "_tells_of_validation"


def _is_needed() -> bool:
    # Whether a schedule hears of a validation cannot be tried out without a training.
    return not hasattr(Trainer.load_checkpoint, _MARK)


def _apply() -> None:
    original_load = Trainer.load_checkpoint
    original_state = ReduceLROnPlateauLRSchedule.state_dict
    original_load_state = ReduceLROnPlateauLRSchedule.load_state_dict

    @functools.wraps(original_load)
    def load_checkpoint(
        self: Trainer,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        extra_state = original_load(
            self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters=reset_meters
        )
        if extra_state is not None and not reset_optimizer and not reset_lr_scheduler:
            position = extra_state["train_iterator"]
            val_loss = extra_state.get("val_loss")
            if position["iterations_in_epoch"] == 0 and val_loss is not None:  # stored at the end of an epoch
                self.lr_step(position["epoch"] - 1, val_loss)
        return extra_state

    @functools.wraps(original_state)
    def state_dict(self: ReduceLROnPlateauLRSchedule) -> dict[str, Any]:
        return {**original_state(self), **{name: getattr(self.lr_scheduler, name) for name in COUNTS}}

    @functools.wraps(original_load_state)
    def load_state_dict(self: ReduceLROnPlateauLRSchedule, state_dict: dict[str, Any]) -> None:
        original_load_state(self, state_dict)
        for name in COUNTS:
            setattr(self.lr_scheduler, name, state_dict.get(name, 0))  # 0: of a checkpoint made without this repair

    setattr(load_checkpoint, _MARK, True)
    Trainer.load_checkpoint = load_checkpoint
    ReduceLROnPlateauLRSchedule.state_dict = state_dict
    ReduceLROnPlateauLRSchedule.load_state_dict = load_state_dict


REPAIR = Repair(
    name="rate-after-resuming",
    why="a training that resumes after the end of an epoch forgets that epoch's validation, and --lr-scheduler "
    "reduce_lr_on_plateau how many in a row brought no improvement: the learning rate falls later",
    is_needed=_is_needed,
    apply=_apply,
)
