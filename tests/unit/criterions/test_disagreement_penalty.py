"""Penalties for heads that are alike, as the criterion adds them to the loss."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.helpers import assert_close
from support.sentence_models import build, make_input, make_sentences, make_task

from muse_plugin.modules.disagreement import attention_overlap, vector_similarity

NAME = "muse_sentence_classification"
LAMA = {"encoder_hidden_size": 7, "pooling_heads": 3}


def make(has_heads=None, **settings):
    task = make_task(labels=["a", "b", "c"], cfg=None, target_dictionary=None, has_heads=has_heads)
    return CRITERION_REGISTRY[NAME](task, **settings)


def make_sample(**more):
    return {
        "net_input": {**make_input(make_sentences(6, 1, 4)), **more},
        "target": torch.tensor([2, 0, 1]),
        "ntokens": 11,
        "nsentences": 3,
    }


def penalties_of(net, kind, *values, **batch):
    heads = net.attend(*values, **batch)
    return attention_overlap(heads.weights) if kind == "penal" else vector_similarity(heads.vectors)


@pytest.mark.parametrize("kind", ["penal", "emb"])
@pytest.mark.parametrize("weight", [0.2, 3.0])
def test_training_adds_the_weighted_penalty_of_each_sentence(kind, weight):
    net, sample = build("lama", **LAMA).train(), make_sample()  # no dropout: the model is the same when called again
    criterion = make(disagreement=kind, disagreement_weight=weight)
    penalties = penalties_of(net, kind, **sample["net_input"])
    assert (penalties > 0.01).all()
    entropy = F.cross_entropy(net(**sample["net_input"]).logits, sample["target"], reduction="none")
    losses, size, log = criterion(net, sample, reduce=False)
    assert_close(losses, entropy + weight * penalties)
    total, _, _ = criterion(net, sample)
    assert_close(total, losses.sum())
    assert (size, log["sample_size"]) == (3, 3)
    with metrics.aggregate(new_root=True) as shown:
        type(criterion).reduce_metrics([log])
    values = shown.get_smoothed_values()
    assert values["penalty"] == pytest.approx(float(penalties.mean()), abs=1e-3)
    assert values["loss"] == pytest.approx(float(losses.mean()) / math.log(2), abs=1e-3)
    assert not any(name.startswith("_") for name in values)


def test_a_step_against_the_gradient_makes_heads_disagree():
    for kind in ("penal", "emb"):
        net, sample = build("lama", **LAMA).train(), make_sample()
        before = penalties_of(net, kind, **sample["net_input"]).sum()
        criterion = make(disagreement=kind, disagreement_weight=1000.0)
        criterion(net, sample)[0].backward()
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-3 * parameter.grad / parameter.grad.norm().clamp(min=1e-9)
        assert penalties_of(net, kind, **sample["net_input"]).sum() < before


def test_validation_and_a_criterion_without_penalty_measure_cross_entropy_alone():
    net, sample = build("lama", **LAMA), make_sample()
    expected = F.cross_entropy(net(**sample["net_input"]).logits, sample["target"], reduction="sum")
    for criterion, mode in ((make(disagreement="penal"), False), (make(), True), (make(), False)):
        loss, _, log = criterion(net.train(mode), sample)
        assert_close(loss, expected)
        assert "_penalty" not in log


def test_a_pair_has_the_penalties_of_both_sentences():
    net = build("lama", make_task(pairs=True), **LAMA).train()
    first, second = make_input(make_sentences(5, 2)), make_input(make_sentences(3, 4, seed=1), prefix="pair")
    expected = penalties_of(net, "penal", **first) + penalties_of(net, "penal", *second.values())
    assert_close(net(**first, **second, disagreement="penal").penalty, expected)
    assert net(**first, **second).penalty is None


def test_models_without_heads_are_refused():
    sentence = (
        "--disagreement needs --pooling low_rank_attention or structured_attention, but this model has --pooling max; "
        "train one with such a pooling."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(disagreement="penal")(build("sentence_bigru").train(), make_sample())


def test_models_without_heads_are_refused_before_training():
    sentence = (
        "--disagreement emb is for heads that attend to words, but this model has none; give --pooling "
        "low_rank_attention or structured_attention, or drop the flag."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(has_heads=False, disagreement="emb")
    make(has_heads=False)
    make(has_heads=True, disagreement="emb")


@pytest.mark.parametrize("weight", [-0.2, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(weight):
    sentence = f"--disagreement-weight must be a finite number of at least 0, but got {weight}."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(disagreement="emb", disagreement_weight=weight)


def test_a_weight_of_no_penalty_is_refused():
    sentence = (
        "--disagreement-weight 0.5 is the weight of a penalty, but there is none; give --disagreement penal or emb, or "
        "drop the flag."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(disagreement_weight=0.5)


def test_flags_are_the_published_ones_by_default():
    config = CRITERION_REGISTRY[NAME].__dataclass()
    assert (str(config.disagreement), config.disagreement_weight) == ("none", 0.2)
