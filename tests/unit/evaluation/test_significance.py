import os
import random

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from muse_plugin.evaluation.scores import make_measures
from muse_plugin.evaluation.significance import compare_systems
from muse_plugin.evaluation.text_forms import TextForms

WORDS = "the cat sat on a mat and then it went home to sleep".split()


def make_system(seed, errors):
    generator = random.Random(seed)
    return [
        " ".join(w if generator.random() > errors else generator.choice(WORDS) for w in line.split()) for line in LINES
    ]


LINES = [" ".join(random.Random(i).choices(WORDS, k=5 + i % 9)) for i in range(60)]
GOOD, SIMILAR, BAD = make_system(1, 0.2), make_system(2, 0.2), make_system(3, 0.5)


def compare(system, versus, method="bootstrap", num_resamples=200, seed=7):
    measures = make_measures(TextForms(LINES, LINES))
    return {
        measure.name: compare_systems(
            measure,
            *(measure.collect(TextForms(lines, lines)) for lines in (system, versus)),
            method,
            num_resamples,
            seed,
        )
        for measure in measures
    }


@pytest.mark.parametrize(("method", "short"), [("bootstrap", "bs"), ("approximate_randomization", "ar")])
def test_results_are_those_of_sacrebleu(monkeypatch, method, short):
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    metrics = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}
    test = PairedTest([("b", BAD), ("a", GOOD)], metrics, [LINES], short, 200, 0 if short == "ar" else -1)
    signatures, expected = test()
    found = compare(GOOD, BAD, method)
    assert set(found) == {"tokenized_bleu", *metrics}
    for name, key in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        versus, system = expected[key]
        assert found[name]["p_value"] == system.p_value
        for estimate, wanted in ((found[name]["system"], system), (found[name]["versus"], versus)):
            assert (estimate["score"], estimate["mean"]) == (wanted.score, wanted.mean)
            assert estimate["interval_95"] == [wanted.mean - wanted.ci, wanted.mean + wanted.ci]
        assert found[name]["signature"] == str(signatures[key])
        assert "seed:7" in found[name]["signature"]


@pytest.mark.parametrize("method", ["bootstrap", "approximate_randomization"])
def test_p_value_tells_a_difference_from_chance(method):
    for comparison in compare(GOOD, BAD, method).values():
        assert comparison["p_value"] < 0.01
    for comparison in compare(GOOD, SIMILAR, method).values():
        assert comparison["p_value"] > 0.05
    for comparison in compare(GOOD, GOOD, method).values():
        assert comparison["system"]["score"] == comparison["versus"]["score"]
        assert comparison["p_value"] == 1.0


def test_interval_holds_the_score():
    for comparison in compare(GOOD, BAD).values():
        for estimate in (comparison["system"], comparison["versus"]):
            low, high = estimate["interval_95"]
            assert low < estimate["score"] < high
            assert 2 < high - low < 30


@pytest.mark.parametrize("method", ["bootstrap", "approximate_randomization"])
def test_seed_decides_and_repeats(method):
    assert compare(GOOD, SIMILAR, method, seed=3) == compare(GOOD, SIMILAR, method, seed=3)
    assert compare(GOOD, SIMILAR, method, seed=3) != compare(GOOD, SIMILAR, method, seed=4)


@pytest.mark.parametrize("before", [None, "99"])
def test_environment_is_left_as_it_was(monkeypatch, before):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    compare(GOOD, BAD, num_resamples=5)
    assert os.environ.get("SACREBLEU_SEED") == before
