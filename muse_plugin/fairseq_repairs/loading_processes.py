"""Ends the processes that load data with the epoch that they load."""

from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(FairseqTask, "get_batch_iterator")
    def get_batch_iterator(original: Any, self: FairseqTask, dataset: Any, *rest: Any, **named: Any) -> Any:
        iterator = original(self, dataset, *rest, **named)
        if iterator.num_workers > 0 and iterator is not self.dataset_to_epoch_iter.get(dataset):
            iterator.persistent_workers = False
            iterator.buffer_size = max(1, iterator.buffer_size)  # the buffer drops them after the last batch
        return iterator


REPAIR = Repair(
    why="where each epoch has an iterator of its own (sentence tasks, BPE-dropout, data in several folders), its "
    "loading processes wait for another epoch, until the garbage collector ends them in the wrong order, for which "
    "torch waits five seconds each",
    remedy=_apply,
)
