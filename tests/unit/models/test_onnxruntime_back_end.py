"""``--inference-backend onnxruntime``: fairseq's search finds the same, and what it cannot do is refused by name."""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.models import build_model
from support import muse_models
from support.helpers import assert_close
from support.muse_models import SMALL, VARIANTS, build, built, lengths_of, make_pair, make_task

from muse_plugin.models.onnx import graph_search
from muse_plugin.models.onnx.back_end import run_in_onnxruntime_

LENGTHS = {1: (7,), 8: (7, 5, 3, 6, 4, 2, 7, 1)}


@pytest.fixture(autouse=True)
def packages():
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra 'export'")


def build_named(name):
    if name != "transformer":
        return copy.deepcopy(built(name))
    torch.manual_seed(3)
    return build_model(Namespace(_name=name, arch=name, **{**SMALL, "dropout": 0.0}), make_task()).eval()


@torch.no_grad()
def search(nets, lengths, **options):
    _, _, source, _ = make_pair(lengths, (2,) * len(lengths))
    return muse_models.search(nets, source, **options)


def assert_same(actual, expected):
    for own, other in zip(actual, expected, strict=True):
        assert [h["tokens"].tolist() for h in own] == [h["tokens"].tolist() for h in other]
        assert_close(torch.stack([h["score"] for h in own]), torch.stack([h["score"] for h in other]), atol=1e-4)
        for one, same in zip(own, other, strict=True):
            assert set(one) == set(same)
            assert_close(one["positional_scores"], same["positional_scores"], atol=1e-4)


@pytest.mark.parametrize("name", ["muse", "muse_simple", "plain_transformer", "transformer"])
def test_the_search_finds_the_same_translations(name):
    net = build_named(name)
    quick = copy.deepcopy(net)
    run_in_onnxruntime_(quick)
    for sentences, lengths in LENGTHS.items():
        prefix = torch.full((sentences, 2), 5)
        for options in ({}, {"temperature": 1.7}, {"prefix": prefix}, {"min_len": 4, "len_penalty": 0.5}):
            assert_same(search([quick], lengths, **options), search([net], lengths, **options))
    assert_same(search([quick, quick], LENGTHS[8]), search([net, net], LENGTHS[8]))


ELSEWHERE = {
    "temperature": {"temperature": 1.7},
    "unknown words": {"unk_penalty": 1.0},
    "scores without length": {"normalize_scores": False},
    "length of the source": {"match_source_len": True},
    "n-grams": {"no_repeat_ngram_size": 2},
    "words": {"tokens_to_suppress": ("w5",)},
    "two models": {},
    "prefix": {"prefix": torch.full((1, 2), 5)},
}


@pytest.mark.parametrize("case", ["usual", "lengths", *ELSEWHERE])
def test_an_ordinary_search_takes_the_short_way_and_no_other(case, monkeypatch):
    net = copy.deepcopy(build_named("muse_simple"))
    run_in_onnxruntime_(net)
    options = ELSEWHERE.get(case, {"max_len_a": 1.2, "min_len": 3} if case == "lengths" else {})
    monkeypatch.setattr(graph_search, "_FOUND_BY_FAIRSEQ", lambda *arguments, **options: "found by fairseq")
    found = search([net] * (2 if case == "two models" else 1), (5,), **options)
    assert (found == "found by fairseq") == (case in ELSEWHERE)


def test_a_minimum_above_the_maximum_stays_fairseqs_own_error():
    net = copy.deepcopy(build_named("muse_simple"))
    run_in_onnxruntime_(net)
    with pytest.raises(AssertionError, match="min_len cannot be larger than max_len"):
        search([net], (5,), min_len=13)


def test_eight_bit_weights_are_near():
    net = build(**VARIANTS["muse"], int8_inference=True, inference_backend="onnxruntime").eval()
    exact = search([net], LENGTHS[8])
    net.make_generation_fast_()
    rounded = search([net], LENGTHS[8])
    scores = [torch.stack([own[0]["score"] for own in found]) for found in (rounded, exact)]
    assert not torch.equal(*scores)
    assert_close(*scores, atol=0.2)  # of 8 channels, each of which is rounded


@pytest.mark.parametrize(
    ("flags", "options", "words"),
    [
        ({}, {"need_attn": "hard"}, r"only searches, but was asked for attention \(--print-alignment"),
        ({}, {"retain_dropout": True}, r"only searches, but was asked for dropout \(--retain-dropout\)"),
        ({"adaptive_softmax_cutoff": "8,12"}, {}, "but this one has an adaptive softmax; take the back end torch"),
        ({"dtype": torch.float16}, {}, r"computes in float32 on the CPU, but got torch.float16 on cpu; add --cpu"),
    ],
)
def test_what_it_cannot_do_is_refused(flags, options, words):
    dtype = flags.pop("dtype", torch.float32)
    net = build(inference_backend="onnxruntime", **flags).eval().to(dtype)

    def generate():
        net.make_generation_fast_(**options)
        search([net], (3,))

    with pytest.raises(NotImplementedError, match=words):
        generate()


def test_scores_of_given_sentences_and_a_missing_package_are_refused(monkeypatch):
    net = build(inference_backend="onnxruntime").eval()
    net.make_generation_fast_()
    _, _, source, previous = make_pair()
    with pytest.raises(NotImplementedError, match=r"asked for the scores of given sentences \(--score-reference\)"):
        net(source, lengths_of(source), previous)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"onnxruntime needs onnx and onnxruntime, but .* the extra 'export'"):
        build(inference_backend="onnxruntime").eval().make_generation_fast_()
