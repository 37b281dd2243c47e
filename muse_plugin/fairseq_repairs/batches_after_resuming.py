"""Gives a resumed training the batches of one that never stopped."""

import inspect
from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    signature = inspect.signature(FairseqTask.get_batch_iterator)

    @replace(FairseqTask, "get_batch_iterator")
    def get_batch_iterator(original: Any, self: FairseqTask, dataset: Any, *rest: Any, **named: Any) -> Any:
        call = signature.bind(self, dataset, *rest, **named)
        call.apply_defaults()
        settings = call.arguments
        made_once = (
            self.can_reuse_epoch_itr(dataset)
            and not settings["disable_iterator_cache"]
            and not settings["update_epoch_batch_itr"]
            and not getattr(self.cfg, "rebuild_batches", False)
        )
        if not made_once or dataset in self.dataset_to_epoch_iter:
            return original(self, dataset, *rest, **named)
        # Sentences are drawn with seed + epoch, where a training that never stopped was in epoch 1. The iterator itself
        # shuffles the batches with its seed + epoch, which is right.
        seed = settings["seed"]
        settings["seed"] = seed + 1 - settings["epoch"]
        iterator = original(*call.args, **call.kwargs)
        iterator.seed = seed
        return iterator


REPAIR = Repair(
    why="batches are made once, when training starts, from --seed plus the epoch of that moment: after the first "
    "epoch, a training that resumes makes other batches than one that never stopped, and ends with other weights",
    remedy=_apply,
)
