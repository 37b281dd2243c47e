"""What --store-ema has after a checkpoint: an average of its weights where it has none, and the rhythm of before."""

from typing import Any
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA
from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _begin_from_weights() -> None:
    @replace(Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Trainer, *rest: Any, **named: Any) -> Any:
        if not self.cfg.ema.store_ema:
            return original(self, *rest, **named)
        read = checkpoint_utils.load_checkpoint_to_cpu

        def read_with_ema(*rest: Any, **named: Any) -> Any:
            state = read(*rest, **named)
            state["extra_state"].setdefault("ema", dict(state["model"]))
            return state

        with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", read_with_ema):
            return original(self, *rest, **named)


def _count_on() -> None:
    @replace(EMA, "step")
    def step(original: Any, self: EMA, new_model: Any, updates: Any = None) -> None:
        if updates is not None and self.config.ema_update_freq > 1:
            self.update_freq_counter = (updates - 1) % self.config.ema_update_freq
        original(self, new_model, updates)


BEGIN = Repair(
    why="--store-ema from a checkpoint without an average, as by --finetune-from-model, ends with KeyError: 'model': "
    "fairseq has dropped the weights by the time it would begin the average from them",
    remedy=_begin_from_weights,
)
RHYTHM = Repair(
    why="a training that resumes with --ema-update-freq averages after other updates than one that never stopped",
    remedy=_count_on,
)
