"""Keeps --max-update and --patience as they are when a training is interrupted and started again.

A training that has reached its end stays as it is. The count of validations without improvement, which --patience
limits, is stored in checkpoints (as ``extra_state["early_stopping"]``) and goes on from there.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, loaded_command

logger = logging.getLogger(__name__)

KEY = "early_stopping"  # in the checkpoint's extra_state

_MARK = "_keeps_early_stopping"
_repaired: list[ModuleType] = []  # fairseq-train, under the names that it was loaded by


def _early_stopping() -> dict[str, Any]:
    """What fairseq-train remembers for --patience, ``best`` and ``num_runs``; empty before the first validation."""
    for module in _repaired:
        if state := dict(vars(module.should_stop_early)):
            return state
    return {}


def _why_ended(cfg: Any, trainer: Trainer) -> str | None:
    """The rule by which the training ended before it was started again, or None."""
    updates, limit = trainer.get_num_updates(), cfg.optimization.max_update
    if limit and updates >= limit:
        return f"--max-update is {limit}, and {updates} updates are done"
    runs, patience = _early_stopping().get("num_runs", 0), cfg.checkpoint.patience
    if patience > 0 and runs >= patience:
        return f"--patience is {patience}, and the last {runs} validations brought no improvement"
    return None


def _commands_without() -> list[ModuleType]:
    return [module for module in loaded_command("train") if not hasattr(module.train, _MARK)]


def _is_needed() -> bool:
    # Whether a training goes on beyond its end cannot be tried out without one.
    return not hasattr(Trainer.load_checkpoint, _MARK) or bool(_commands_without())


def _apply() -> None:
    if not hasattr(Trainer.load_checkpoint, _MARK):
        _store_early_stopping()
    for module in _commands_without():
        _stop_where_it_ended(module)


def _store_early_stopping() -> None:
    original_save, original_load = Trainer.save_checkpoint, Trainer.load_checkpoint

    @functools.wraps(original_save)
    def save_checkpoint(self: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        state = _early_stopping()
        return original_save(self, filename, {**extra_state, KEY: state} if state else extra_state)

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
        is_new = extra_state is None or reset_optimizer or reset_meters  # then fairseq forgets the best score, too
        for module in _repaired:
            remembered = vars(module.should_stop_early)
            remembered.clear()
            remembered.update({} if is_new else extra_state.get(KEY, {}))
        return extra_state

    setattr(load_checkpoint, _MARK, True)
    Trainer.save_checkpoint = save_checkpoint
    Trainer.load_checkpoint = load_checkpoint


def _stop_where_it_ended(module: ModuleType) -> None:
    original = module.train

    @functools.wraps(original)
    def train(cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any) -> Any:
        if reason := _why_ended(cfg, trainer):
            logger.info("this training has ended before: %s; nothing more is trained.", reason)
            return [None], True
        return original(cfg, trainer, task, epoch_itr)

    setattr(train, _MARK, True)
    module.train = train  # type: ignore[attr-defined]
    _repaired.append(module)


REPAIR = Repair(
    name="end-of-training",
    why="a training that has ended and is started again makes one more update, beyond --max-update; and a training "
    "that resumes has forgotten how many validations in a row brought no improvement, which --patience counts",
    is_needed=_is_needed,
    apply=_apply,
)
