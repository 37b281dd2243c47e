"""Lets --store-ema begin from the weights of a checkpoint that has no average of its own."""

from typing import Any
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
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


REPAIR = Repair(
    why="--store-ema from a checkpoint without an average, as by --finetune-from-model, ends with KeyError: 'model': "
    "fairseq has dropped the weights by the time it would begin the average from them",
    remedy=_apply,
)
