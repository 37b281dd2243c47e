"""Gives a resumed training the batches of one that never stopped."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset
from fairseq.tasks.fairseq_task import FairseqTask

from muse_plugin.fairseq_repairs.repair import Repair, replace


class _Shuffled(FairseqDataset):  # type: ignore[misc]
    """Eight sentences of one word, in random order."""

    def __len__(self) -> int:
        return 8

    def ordered_indices(self) -> Any:
        return np.random.permutation(len(self))

    def num_tokens(self, index: int) -> int:
        return 1

    def num_tokens_vec(self, indices: Any) -> Any:
        return np.ones(len(indices), dtype=np.int64)

    def collater(self, samples: Any) -> Any:
        return samples


def _is_present() -> bool:
    # The batches of a training that began with the first epoch, and of one that resumes in the ninth.
    logger = logging.getLogger(FairseqTask.__module__)  # tells of each
    silent, logger.disabled = logger.disabled, True
    try:
        made = [
            FairseqTask.get_batch_iterator(FairseqTask(None), _Shuffled(), max_sentences=1, epoch=epoch)
            for epoch in (1, 9)
        ]
    except ImportError:  # built without its compiled parts: fairseq says so when it needs them
        return False
    finally:
        logger.disabled = silent
    first, ninth = ([int(i) for batch in iterator.frozen_batches for i in batch] for iterator in made)
    return first != ninth


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
    name="batches-after-resuming",
    why="batches are made once, when training starts, from --seed plus the epoch of that moment: after the first "
    "epoch, a training that resumes makes other batches than one that never stopped, and ends with other weights",
    remedy=_apply,
    probe=_is_present,
)
