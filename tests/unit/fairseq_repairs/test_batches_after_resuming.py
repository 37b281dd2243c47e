import numpy as np
import pytest
from fairseq.data import FairseqDataset
from fairseq.tasks.fairseq_task import FairseqTask


class Sentences(FairseqDataset):
    """Twenty sentences of one word in random order."""

    can_reuse_epoch_itr_across_epochs = True

    def __len__(self):
        return 20

    def ordered_indices(self):
        return np.random.permutation(20)

    def num_tokens_vec(self, indices):
        return np.ones(len(indices), dtype=np.int64)

    def collater(self, samples):
        return samples


class ChangingSentences(Sentences):
    can_reuse_epoch_itr_across_epochs = False


class Settings:
    rebuild_batches = True


def batches(iterator, epoch):
    return [list(map(int, batch)) for batch in iterator.ordered_batches(epoch, False, True)]


def make(epoch, task=None, dataset=None, **settings):
    task, dataset = task or FairseqTask(None), dataset or Sentences()
    return task.get_batch_iterator(dataset, max_sentences=3, seed=5, epoch=epoch, **settings)


def test_resumed_training_has_the_batches_of_one_that_never_stopped():
    task, dataset = FairseqTask(None), Sentences()
    first = make(1, task, dataset)
    for epoch in (1, 2, 7):
        resumed = make(epoch)
        assert resumed.next_epoch_idx == epoch
        assert make(epoch, task, dataset) is first  # as fairseq does in a training that continues
        assert batches(resumed, epoch) == batches(first, epoch)
    assert batches(first, 1) != batches(first, 2)


def test_batches_of_the_first_epoch_are_those_of_fairseq_alone():
    alone = FairseqTask.get_batch_iterator.__wrapped__(FairseqTask(None), Sentences(), max_sentences=3, seed=5, epoch=1)
    assert batches(make(1), 1) == batches(alone, 1)


@pytest.mark.parametrize(
    ("task", "dataset", "settings"),
    [
        (FairseqTask(Settings()), None, {}),
        (None, ChangingSentences(), {}),
        (None, None, {"disable_iterator_cache": True}),
        (None, None, {"update_epoch_batch_itr": True}),
    ],
    ids=["rebuild", "dataset", "no_cache", "update"],
)
def test_batches_that_are_made_anew_in_each_epoch_are_left_alone(task, dataset, settings):
    ours = make(7, task, dataset, **settings)
    alone = FairseqTask.get_batch_iterator.__wrapped__(
        FairseqTask(Settings() if task else None), dataset or Sentences(), max_sentences=3, seed=5, epoch=7, **settings
    )
    assert batches(ours, 7) == batches(alone, 7)
