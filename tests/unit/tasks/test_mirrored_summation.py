"""Mirrored summation: the target by hand, the numbers that the paper's setting implies, and reproducible data."""

import re
from itertools import chain

import numpy as np
import pytest
import torch
from fairseq.tasks import TASK_REGISTRY
from support.helpers import assert_close

from muse_plugin.tasks.mirrored_summation import MirroredSummationConfig, MuseMirroredSummationTask


def make(**flags):
    settings = {"train_sentences": 50, "valid_sentences": 20, "test_sentences": 30, "length": 9, "vector_size": 3}
    return MuseMirroredSummationTask(MirroredSummationConfig(**{**settings, "terms": 4, **flags}))


def test_the_defaults_are_published():
    config = MirroredSummationConfig()
    assert (config.length, config.vector_size) == (100, 50)
    assert (config.train_sentences, config.test_sentences) == (200_000, 200_000)
    assert TASK_REGISTRY["muse_mirrored_summation"] is MuseMirroredSummationTask
    task = MuseMirroredSummationTask(config)
    assert (task.predicts, task.pairs, task.vector_size, task.outputs, task.labels) == ("number", False, 50, 50, [])
    assert task.max_positions() is task.source_dictionary is task.target_dictionary is None


@pytest.mark.parametrize(("length", "terms"), [(8, 1), (8, 3), (8, 4), (9, 4), (9, 5), (8, 6), (8, 8), (9, 9), (1, 1)])
def test_the_target_is_the_sum_over_mirrored_pairs(length, terms):
    """Beyond the middle, pairs come a second time."""
    dataset = make(length=length, terms=terms).load_dataset("train")
    for index in (0, 7):
        item = dataset[index]
        a = [None, *item["vectors"].tolist()]  # a_1 .. a_N
        expected = [sum(a[i][c] * a[length - i + 1][c] for i in range(1, terms + 1)) for c in range(3)]
        assert_close(item["target"], expected, atol=1e-5)
        assert item["vectors"].shape == (length, 3)


@pytest.mark.parametrize("terms", [10, 50])
def test_the_best_constant_has_the_error_of_the_formula(terms):
    dataset = make(length=100, terms=terms, vector_size=50, train_sentences=400).load_dataset("train")
    targets = torch.stack([dataset[i]["target"] for i in range(400)])
    # 20,000 independent sums: the mean is known to sd / 141, the variance to 1 % of itself.
    variance = 7 * terms / 144
    assert float(targets.mean()) == pytest.approx(terms / 4, abs=4 * (variance / 20_000) ** 0.5)
    assert float((targets - terms / 4).square().mean()) == pytest.approx(variance, rel=0.04)


def test_vectors_are_uniform():
    vectors = torch.cat([make(length=100).load_dataset("train")[i]["vectors"] for i in range(50)])
    assert 0 <= vectors.min() < 0.01
    assert 0.99 < vectors.max() < 1
    assert float(vectors.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(vectors.var()) == pytest.approx(1 / 12, abs=0.003)


def test_data_are_a_function_of_the_seed_whatever_the_order_of_reading():
    one, same, other = (make(data_seed=seed).load_dataset("train") for seed in (3, 3, 4))
    backwards = {i: same[i] for i in reversed(range(50))}
    np.random.seed(99)
    torch.manual_seed(99)
    for i in range(50):
        assert_close(one[i]["vectors"], backwards[i]["vectors"], atol=0, rtol=0)
        assert_close(one[i]["target"], backwards[i]["target"], atol=0, rtol=0)
        assert not torch.equal(one[i]["vectors"], other[i]["vectors"])
    assert len({tuple(backwards[i]["vectors"].flatten().tolist()) for i in range(50)}) == 50


def test_splits_differ_and_have_the_sizes_asked_for():
    task = make()
    splits = [task.load_dataset(split) for split in ("train", "valid", "test")]
    assert [len(split) for split in splits] == [50, 20, 30]
    assert len({tuple(split[0]["target"].tolist()) for split in splits}) == 3


def test_data_do_not_depend_on_the_number_of_sentences_or_of_terms():
    few, many = (make(train_sentences=n, terms=k).load_dataset("train") for n, k in ((5, 1), (50, 4)))
    assert_close(few[4]["vectors"], many[4]["vectors"], atol=0, rtol=0)


def test_reading_draws_nothing_from_the_generators_of_the_training():
    dataset = make().load_dataset("train")
    np.random.seed(1)
    torch.manual_seed(1)
    states = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    dataset[3]
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states


def test_a_batch_holds_vectors_lengths_and_sums():
    dataset = make().load_dataset("valid")
    batch = dataset.collater([dataset[i] for i in (4, 2)])
    assert batch["id"].tolist() == [4, 2]
    assert (batch["nsentences"], batch["ntokens"]) == (2, 18)
    assert_close(batch["net_input"]["src_tokens"], torch.stack([dataset[4]["vectors"], dataset[2]["vectors"]]))
    assert batch["net_input"]["src_lengths"].tolist() == [9, 9]
    assert_close(batch["target"], torch.stack([dataset[4]["target"], dataset[2]["target"]]))
    assert dataset.collater([]) == {}
    assert (dataset.num_tokens(0), dataset.size(0), dataset.sizes.tolist()) == (9, 9, [9] * 20)


def test_only_training_is_shuffled_anew_in_each_epoch():
    task = make()
    found = {}
    for split in ("train", "valid"):
        dataset = task.load_dataset(split)
        for epoch in (1, 2):
            iterator = task.get_batch_iterator(dataset, max_sentences=8, seed=1, epoch=epoch)
            found[split, epoch] = [batch["id"].tolist() for batch in iterator.next_epoch_itr(shuffle=False)]
        assert sorted(chain.from_iterable(found[split, 1])) == list(range(len(dataset)))
    assert found["train", 1] != found["train", 2]
    assert found["valid", 1] == found["valid", 2]


def raises(sentence):
    return pytest.raises(ValueError, match=f"^{re.escape(sentence)}$")


@pytest.mark.parametrize("name", ["length", "vector_size", "train_sentences", "valid_sentences", "test_sentences"])
def test_raises_error_when_a_size_is_below_one(name):
    with raises(f"--{name.replace('_', '-')} must be at least 1, but got 0."):
        make(**{name: 0})


def test_sizes_below_one_are_reported_together():
    with raises("--length must be at least 1, but got 0.\n--vector-size must be at least 1, but got -2."):
        make(length=0, vector_size=-2)


@pytest.mark.parametrize("terms", [0, -1, 10])
def test_raises_error_when_there_are_not_as_many_pairs(terms):
    with raises(
        f"--terms must lie between 1 and --length, which is 9, but got {terms}; there are only that many pairs of "
        "mirrored vectors."
    ):
        make(terms=terms)


def test_raises_error_for_an_unknown_split():
    with raises("mirrored summation has the splits train, valid, test, but got 'dev'."):
        make().load_dataset("dev")
