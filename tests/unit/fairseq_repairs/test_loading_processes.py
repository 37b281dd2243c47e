import gc
import multiprocessing
import time

import numpy as np
import pytest
from fairseq.data import FairseqDataset
from fairseq.tasks.fairseq_task import FairseqTask

PATIENCE = 60  # seconds; without the repair they wait for ever


class Words(FairseqDataset):
    """Twelve sentences of one word."""

    can_reuse_epoch_itr_across_epochs = False

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index

    def ordered_indices(self):
        return np.arange(12)

    def num_tokens_vec(self, indices):
        return np.ones(len(indices), dtype=np.int64)

    def collater(self, samples):
        return [int(sample) for sample in samples]


class LastingWords(Words):
    can_reuse_epoch_itr_across_epochs = True


@pytest.fixture
def no_collection():
    """The garbage collector, too, ends processes, in the wrong order."""
    gc.disable()
    yield
    gc.enable()


def run_epoch(task, dataset, epoch, buffer):
    iterator = task.get_batch_iterator(dataset, max_sentences=5, epoch=epoch, num_workers=2, data_buffer_size=buffer)
    assert list(iterator.next_epoch_itr(shuffle=False)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    return iterator


@pytest.mark.parametrize("buffer", [0, 10])
def test_loading_processes_end_with_the_epoch(buffer, no_collection):
    task, dataset = FairseqTask(None), Words()
    for epoch in (1, 2):
        iterator = run_epoch(task, dataset, epoch, buffer)  # fairseq, too, keeps the last one
        deadline = time.monotonic() + PATIENCE
        while multiprocessing.active_children() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert multiprocessing.active_children() == []
        assert iterator.end_of_epoch()


def test_processes_of_an_iterator_that_lasts_are_kept_for_the_next_epoch():
    task, dataset = FairseqTask(None), LastingWords()
    first = run_epoch(task, dataset, 1, 0)
    processes = multiprocessing.active_children()
    assert len(processes) == 2
    assert run_epoch(task, dataset, 2, 0) is first
    assert multiprocessing.active_children() == processes
    first.dataloader._iterator._shutdown_workers()
