"""Whether the difference between two systems could be chance: paired tests on the same sentences.

The tests are sacreBLEU's. They get the statistics of the single sentences that the scores were computed from, so that
nothing is counted twice.
"""

import copy
import math
import os
from typing import Any
from unittest import mock

from sacrebleu.significance import PairedTest, _bootstrap_resample

from muse_plugin.evaluation.scores import Measure, Statistics

METHODS = {"bootstrap": "bs", "approximate_randomization": "ar"}
_SEED_VARIABLE = "SACREBLEU_SEED"  # read when a test is made and when it resamples
_OUTSIDE = 0.025  # share of the scores on either side of an interval


def compare_systems(
    measure: Measure, system: Statistics, versus: Statistics, method: str, num_resamples: int, seed: int
) -> dict[str, Any]:
    """Tests the difference of two systems in one measure.

    Args:
        measure: what is compared.
        system: statistics of the system, a row for each sentence.
        versus: those of the other system, in the same order.
        method: a key of ``METHODS``. With approximate randomisation, mean and interval come from 1000 bootstrap
            resamples next to it.
        num_resamples: resampled test sets, or random exchanges of translations between the systems; at least 1.
        seed: of the random numbers, at least 1.

    Returns:
        "p_value": probability, in [0, 1], of a difference at least as large if both systems were equally good; 1 for
        equal scores, where sacreBLEU would report the smallest value that it can. "system" and "versus", each with
        "score" of the whole test set, "mean" over the resampled test sets and "interval_95" around it, all 0-100.
        "signature": sacreBLEU's, with method, number of resamples and seed.
    """
    assert num_resamples >= 1  # sacreBLEU takes 0 for its default
    assert seed >= 1  # and a seed of 0 for none
    metric = copy.copy(measure.metric)
    metric._extract_corpus_statistics = lambda statistics, _: statistics  # hypotheses are counted already
    with mock.patch.dict(os.environ, {_SEED_VARIABLE: str(seed)}):
        test = PairedTest(
            [("versus", versus), ("system", system)],
            {measure.name: metric},
            references=None,
            test_type=METHODS[method],
            n_samples=num_resamples,
            n_ar_confidence=0 if method == "approximate_randomization" else -1,
        )
        signatures, results = test()
    (name, signature) = next(iter(signatures.items()))
    other, result = results[name]
    return {
        "p_value": 1.0 if result.score == other.score else float(result.p_value),
        "system": _describe_estimate(result),
        "versus": _describe_estimate(other),
        "signature": str(signature),
    }


def _describe_estimate(result: Any) -> dict[str, Any]:
    mean, half_width = float(result.mean), float(result.ci)
    return {"score": result.score, "mean": mean, "interval_95": [mean - half_width, mean + half_width]}


def estimate_interval(measure: Measure, statistics: Statistics, num_resamples: int, seed: int) -> tuple[float, float]:
    """Resamples sentences with replacement, to say how far a score might move by chance.

    Args:
        measure: the score.
        statistics: of at least one sentence, a row for each.
        num_resamples: resampled sets of as many sentences, at least 1.
        seed: of the random numbers, at least 1.

    Returns:
        The 2.5th and the 97.5th percentile of the scores of the resampled sets, 0-100.
    """
    assert statistics
    assert num_resamples >= 1
    with mock.patch.dict(os.environ, {_SEED_VARIABLE: str(seed)}):
        _, resampled = _bootstrap_resample(statistics, measure.metric, num_resamples)
    scores = sorted(float(score.score) for score in resampled)
    outside = math.floor(num_resamples * _OUTSIDE)
    return scores[outside], scores[-1 - outside]
