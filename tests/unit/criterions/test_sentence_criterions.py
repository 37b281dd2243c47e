"""Losses and measures of sentence tasks: by hand, and against scikit-learn, scipy and seqeval."""

import itertools
import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.helpers import assert_close
from support.sentence_models import build, make_input, make_sentences, make_task
from torch import nn

from muse_plugin.criterions import class_counts
from muse_plugin.criterions.class_counts import f1, percent
from muse_plugin.criterions.sentence_regression import pearson
from muse_plugin.criterions.sequence_tagging import count_entities
from muse_plugin.models.sentence_model import Prediction

CLASSIFICATION, REGRESSION, TAGGING = (
    "muse_sentence_classification",
    "muse_sentence_regression",
    "muse_sequence_tagging",
)
LABELS = ["neg", "pos", "so so", "never"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
PREDICTS = {CLASSIFICATION: "label", REGRESSION: "number", TAGGING: "tags"}


class Fixed(nn.Module):
    """A model that says what it is told to, once per batch; its best tags are those of the highest score."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, src_tokens, src_lengths, target=None):
        logits = self.logits[src_tokens[:, 0]]
        return Prediction(logits[:, : src_tokens.shape[1]] if logits.dim() == 3 else logits)

    def best_tags(self, logits, lengths):
        return [row[:n].argmax(-1).tolist() for row, n in zip(logits, lengths.tolist(), strict=True)]


def make(name, labels=(), entities=False, predicts=None):
    cfg = SimpleNamespace(entities=entities)
    task = make_task(
        predicts or PREDICTS[name], outputs=len(labels), labels=list(labels), cfg=cfg, target_dictionary=None
    )
    return CRITERION_REGISTRY[name](task)


def make_samples(targets, lengths, *sizes):
    """Batches of those sizes; the first id of a sentence is its number, for ``Fixed``."""
    samples, start = [], 0
    for size in sizes:
        rows = range(start, start + size)
        width = max(lengths[i] for i in rows)
        tokens = torch.ones(size, width, dtype=torch.int64)
        tokens[:, 0] = torch.tensor([*rows])
        own = torch.tensor([lengths[i] for i in rows])
        samples.append(
            {
                "id": torch.tensor([*rows]),
                "net_input": {"src_tokens": tokens, "src_lengths": own},
                "target": targets[start : start + size, :width]
                if targets.dim() == 2
                else targets[start : start + size],
                "ntokens": int(own.sum()),
                "nsentences": size,
            }
        )
        start += size
    return samples


def measure(criterion, model, samples, together=False):
    """What fairseq would show after these batches; ``together`` adds the logs up first, as several processes do."""
    logs = [criterion(model, sample)[2] for sample in samples]
    if together:
        logs = [{key: sum(log[key] for log in logs) for key in logs[0]}]
    with metrics.aggregate(new_root=True) as shown:
        for log in logs:
            type(criterion).reduce_metrics([log])
    return shown.get_smoothed_values()


@pytest.mark.parametrize("name", PREDICTS)
def test_the_registered_criterion_is_ours_and_logs_sums(name):
    assert CRITERION_REGISTRY[name].__module__.startswith("muse_plugin.criterions.")
    assert make(name).logging_outputs_can_be_summed()


# ---- labels -------------------------------------------------------------------------------------------------------


def test_loss_of_three_sentences_is_that_worked_out_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(2.0), 0.0], [1.0, 1.0]])
    target = torch.tensor([1, 1, 0])  # probabilities 3/4, 1/3, 1/2
    nats = [math.log(4 / 3), math.log(3), math.log(2)]
    criterion, model = make(CLASSIFICATION, ["a", "b"]), Fixed(logits)
    (sample,) = make_samples(target, [2, 1, 3], 3)
    loss, size, log = criterion(model, sample)
    assert loss.item() == pytest.approx(sum(nats))
    assert (size, log["ntokens"], log["nsentences"], log["sample_size"]) == (3, 6, 3, 3)
    assert_close(criterion(model, sample, reduce=False)[0], nats)
    shown = measure(criterion, model, [sample])
    assert shown["loss"] == pytest.approx(sum(nats) / 3 / math.log(2), abs=1e-4)
    assert shown["accuracy"] == pytest.approx(200 / 3, abs=1e-3)  # 1 of 2 where scores are equal: the first
    loss.backward()
    assert_close(model.logits.grad[0], [0.25, -0.25])


def make_labelled(count=90):
    """Logits and labels of four classes, of which the last is neither predicted nor right."""
    logits = torch.randn(count, 4)
    logits[:, 3] = -99
    target = torch.randint(3, (count,))
    logits[torch.arange(count), target] += 0.7
    return logits, target


def test_each_class_has_a_column_unless_they_are_very_many():
    for count, is_listed in ((class_counts.MOST_LISTED, True), (class_counts.MOST_LISTED + 1, False)):
        target = torch.arange(count)
        logits = torch.eye(count)
        labels = [f"c{i}" for i in range(count)]
        shown = measure(make(CLASSIFICATION, labels), Fixed(logits).eval(), make_samples(target, [1] * count, count))
        assert shown["macro_f1"] == 100
        assert [name for name in shown if name.startswith("f1_")] == [f"f1_{name}" for name in labels] * is_listed


@pytest.mark.parametrize("together", [False, True])
def test_measures_over_several_batches_equal_those_of_scikit_learn(together):
    sklearn = pytest.importorskip("sklearn.metrics")
    logits, target = make_labelled()
    predicted = logits.argmax(1)
    model = Fixed(logits).eval()
    shown = measure(make(CLASSIFICATION, LABELS), model, make_samples(target, [1] * 90, 40, 1, 32, 17), together)
    settings = {"labels": range(4), "zero_division": 0}
    for label, expected in zip(LABELS, sklearn.f1_score(target, predicted, average=None, **settings), strict=True):
        assert shown[f"f1_{label}"] == pytest.approx(100 * expected, abs=1e-3)
    assert shown["f1_never"] == 0
    # Over the labels that occur, as scikit-learn does by itself.
    assert shown["macro_f1"] == pytest.approx(100 * sklearn.f1_score(target, predicted, average="macro"), abs=1e-3)
    assert shown["accuracy"] == pytest.approx(100 * sklearn.accuracy_score(target, predicted), abs=1e-3)
    nats = sklearn.log_loss(target, logits.softmax(1).double().numpy(), labels=range(4))
    assert shown["loss"] == pytest.approx(nats / math.log(2), abs=1e-3)
    assert not any(name.startswith("_") for name in shown)


def test_training_measures_accuracy_and_no_f1():
    logits, target = make_labelled()
    shown = measure(make(CLASSIFICATION, LABELS), Fixed(logits).train(), make_samples(target, [1] * 90, 50, 40))
    assert sorted(shown) == ["accuracy", "loss"]
    assert shown["accuracy"] == pytest.approx(100 * float((logits.argmax(1) == target).float().mean()), abs=1e-3)


# ---- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("together", [False, True])
def test_error_and_correlation_over_several_batches_equal_those_of_numpy_and_scipy(width, together):
    stats = pytest.importorskip("scipy.stats")
    target = torch.randn(60, width) + 5
    predicted = target * 0.6 + torch.randn(60, width)
    criterion, model = make(REGRESSION), Fixed(predicted)
    samples = make_samples(target, [2] * 60, 25, 1, 34)
    for sample, (start, end) in zip(samples, ((0, 25), (25, 26), (26, 60)), strict=True):
        sample["target"] = target[start:end]
    shown = measure(criterion, model, samples, together)
    error = float(np.mean((predicted.numpy() - target.numpy()) ** 2))
    assert shown["mse"] == pytest.approx(error, abs=1e-4)
    assert shown["loss"] == shown["mse"]
    expected = stats.pearsonr(predicted.numpy().ravel(), target.numpy().ravel())[0]
    assert shown["pearson"] == pytest.approx(expected, abs=1e-4)
    assert not any(name.startswith("_") for name in shown)


def test_loss_of_numbers_is_a_sum_over_sentences_of_means():
    predicted, target = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 1.0]])
    (sample,) = make_samples(torch.zeros(2), [1, 4], 2)
    sample["target"] = target
    criterion, model = make(REGRESSION), Fixed(predicted)
    loss, size, log = criterion(model, sample)
    assert (loss.item(), size, log["ntokens"]) == (2.5 + 5.0, 2, 5)
    assert_close(criterion(model, sample, reduce=False)[0], [2.5, 5.0])
    loss.backward()
    assert_close(model.logits.grad, [[1.0, -2.0], [-3.0, -1.0]])


def test_a_correlation_of_what_does_not_vary_is_zero():
    assert pearson(0, 0, 0, 0, 0, 0) == 0
    assert pearson(3, 6, 6, 12, 14, 12) == 0
    assert pearson(2, 3, 3, 5, 5, 5) == pytest.approx(1)
    assert pearson(2, 3, 3, 5, 5, 4) == pytest.approx(-1)


# ---- tags ---------------------------------------------------------------------------------------------------------


def make_tagged(count=50, longest=9):
    """Logits with large numbers at padding, tags with -1 there, lengths."""
    lengths = torch.randint(1, longest + 1, (count,)).tolist()
    lengths[0] = longest
    logits, target = torch.randn(count, longest, 5), torch.randint(5, (count, longest))
    logits.scatter_add_(2, target[..., None], torch.full((count, longest, 1), 1.2))
    outside = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    logits[outside] = torch.tensor([0.0, 0.0, 0.0, 0.0, 500.0])
    return logits, target.masked_fill(outside, -1), lengths


@pytest.mark.parametrize("together", [False, True])
def test_measures_of_tags_equal_those_of_scikit_learn_and_seqeval_without_padding(together):
    sklearn = pytest.importorskip("sklearn.metrics")
    seqeval = pytest.importorskip("seqeval.metrics")
    logits, target, lengths = make_tagged()
    samples = make_samples(target, lengths, 20, 1, 29)
    shown = measure(make(TAGGING, TAGS, entities=True), Fixed(logits).eval(), samples, together)
    gold = [target[i, :n].tolist() for i, n in enumerate(lengths)]
    predicted = [logits[i, :n].argmax(-1).tolist() for i, n in enumerate(lengths)]
    flat = [*itertools.chain(*gold)], [*itertools.chain(*predicted)]
    assert shown["accuracy"] == pytest.approx(100 * sklearn.accuracy_score(*flat), abs=1e-3)
    for tag, expected in zip(TAGS, sklearn.f1_score(*flat, average=None), strict=True):
        assert shown[f"f1_{tag}"] == pytest.approx(100 * expected, abs=1e-3)
    assert shown["macro_f1"] == pytest.approx(100 * sklearn.f1_score(*flat, average="macro"), abs=1e-3)
    names = [[[TAGS[tag] for tag in row] for row in rows] for rows in (gold, predicted)]
    for measured in ("f1", "precision", "recall"):
        expected = getattr(seqeval, f"{measured}_score")(*names)
        assert shown[f"entity_{measured}"] == pytest.approx(100 * expected, abs=1e-3)
        assert 5 < 100 * expected < 95
    rows = zip(logits, target, lengths, strict=True)
    nats = sum(-row[:n].log_softmax(-1).gather(1, tags[:n, None]).sum() for row, tags, n in rows)
    assert shown["loss"] == pytest.approx(float(nats) / sum(lengths) / math.log(2), abs=1e-3)


def test_loss_of_tags_is_a_sum_over_words():
    logits, target, lengths = make_tagged(3, 4)
    (sample,) = make_samples(target, lengths, 3)
    criterion, model = make(TAGGING, TAGS), Fixed(logits)
    loss, size, log = criterion(model, sample)
    each = criterion(model, sample, reduce=False)[0]
    assert each.shape == (3,)
    assert_close(each.sum(), loss)
    assert size == log["sample_size"] == sum(lengths)
    for i, n in enumerate(lengths):
        words = [-math.log(logits[i, t].softmax(-1)[target[i, t]]) for t in range(n)]
        assert each[i].item() == pytest.approx(sum(words), rel=1e-5)
    loss.backward()
    assert not model.logits.grad[target == -1].any()


def test_training_measures_tags_word_by_word_and_no_f1():
    logits, target, lengths = make_tagged()
    samples = make_samples(target, lengths, 25, 25)
    shown = measure(make(TAGGING, TAGS, entities=True), Fixed(logits).train(), samples)
    real = target != -1
    assert sorted(shown) == ["accuracy", "loss"]
    expected = 100 * float((logits.argmax(-1) == target)[real].float().mean())
    assert shown["accuracy"] == pytest.approx(expected, abs=1e-3)


def test_entities_are_measured_only_if_asked_for():
    logits, target, lengths = make_tagged()
    shown = measure(make(TAGGING, TAGS), Fixed(logits).eval(), make_samples(target, lengths, 50))
    assert not any(name.startswith("entity") for name in shown)
    assert "macro_f1" in shown


@pytest.mark.parametrize("training", [False, True])
def test_a_field_brings_its_own_loss_and_its_best_tags(training):
    pytest.importorskip("torchcrf", reason="needs pytorch-crf")
    net = build(task=make_task("tags", 5), crf=True).train(training)
    for parameter in net.tag_scores.crf.parameters():
        nn.init.normal_(parameter, std=2)
    sentences = make_sentences(6, 2, 4)
    sample = {"net_input": make_input(sentences), "ntokens": 12, "nsentences": 3}
    tags = torch.randint(5, (3, 6))
    lengths = sample["net_input"]["src_lengths"]
    sample["target"] = tags.masked_fill(torch.arange(6) >= lengths[:, None], -1)
    criterion = make(TAGGING, TAGS, entities=True)
    loss, size, _ = criterion(net, sample)
    logits, losses, _ = net(**sample["net_input"], target=sample["target"])
    assert_close(loss, losses.sum())
    assert size == 12
    shown = measure(criterion, net, [sample])
    assert shown["loss"] == pytest.approx(float(losses.sum()) / 12 / math.log(2), abs=1e-3)
    best = net.best_tags(logits, lengths) if not training else [row.argmax(-1).tolist() for row in logits]
    right = sum(best[i][t] == tags[i, t] for i, n in enumerate(lengths) for t in range(n))
    assert shown["accuracy"] == pytest.approx(100 * int(right) / 12, abs=1e-3)
    assert ("entity_f1" in shown) == (not training)


@pytest.mark.parametrize(
    ("predicted", "gold", "counts"),
    [
        ("O O", "O O", (0, 0, 0)),
        ("B-X I-X O", "B-X I-X O", (1, 1, 1)),
        ("B-X O O", "B-X I-X O", (0, 1, 1)),  # half an entity is none
        ("B-Y I-Y O", "B-X I-X O", (0, 1, 1)),  # nor is another type
        ("I-X I-X O", "B-X I-X O", (1, 1, 1)),  # what continues nothing opens one
        ("B-X I-X I-X", "B-X I-X B-X", (0, 1, 2)),
        ("B-X I-Y", "B-X B-Y", (2, 2, 2)),
    ],
)
def test_entities_are_counted_by_the_rules_of_conlleval(predicted, gold, counts):
    pytest.importorskip("seqeval")
    assert count_entities([predicted.split()], [gold.split()]) == counts


def test_entities_do_not_reach_into_the_next_sentence():
    pytest.importorskip("seqeval")
    assert count_entities([["O", "B-X"], ["I-X"]], [["O", "B-X"], ["I-X"]]) == (2, 2, 2)


def test_raises_error_when_the_package_for_entities_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval.metrics.sequence_labeling", None)
    with pytest.raises(ImportError, match="--entities needs the package seqeval, which is not installed; run 'pip "):
        count_entities([["O"]], [["O"]])


# ---- shares, and tasks that do not fit ----------------------------------------------------------------------------


def test_nothing_of_nothing_is_zero_percent():
    assert percent(0, 0) == f1(0, 0, 0) == 0
    assert percent(1, 8) == 12.5
    assert f1(1, 2, 6) == 25  # precision 1/2, recall 1/6


SUBJECTS = {CLASSIFICATION: "a label", REGRESSION: "a number", TAGGING: "a tag"}


@pytest.mark.parametrize(
    ("name", "wanted"), [(name, wanted) for name in PREDICTS for wanted in PREDICTS if name != wanted]
)
def test_raises_error_when_the_task_predicts_something_else(name, wanted):
    sentence = (
        f"--criterion {name} is for tasks that predict {SUBJECTS[name]}, but this one predicts {PREDICTS[wanted]}; use "
        f"--criterion {wanted}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(name, LABELS, predicts=PREDICTS[wanted])


@pytest.mark.parametrize("name", PREDICTS)
def test_raises_error_when_the_task_is_not_one_of_sentences(name):
    sentence = (
        f"--criterion {name} is for tasks that predict {SUBJECTS[name]}, but this one predicts none; use it with "
        "--task muse_sentence_classification or a related one."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CRITERION_REGISTRY[name](SimpleNamespace(target_dictionary=None))
