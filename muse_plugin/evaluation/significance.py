"""Whether the difference between two systems could be chance: paired tests on the same sentences.

The tests are sacreBLEU's. They get the statistics of the single sentences that the scores were computed from, so that
nothing is counted twice.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Score
from sacrebleu.significance import PairedTest, _bootstrap_resample

from muse_plugin.evaluation.scores import Measure, Statistics

METHODS = {"bootstrap": "bs", "approximate_randomization": "ar"}
_SEED_VARIABLE = "SACREBLEU_SEED"
_OUTSIDE = 0.025  # share of the scores on either side of an interval


class PairedTestSettings(NamedTuple):
    """How two systems are compared.

    Attributes:
        method: a key of ``METHODS``. With approximate randomisation, mean and interval come from 1000 bootstrap
            resamples beside it.
        num_resamples: resampled test sets, or random exchanges of translations between the systems; at least 1.
        seed: of the random numbers, at least 1.
    """

    method: str
    num_resamples: int
    seed: int


class Interval(NamedTuple):
    """Where 95% of the scores of resampled sets of sentences lie, 0-100."""

    low: float
    high: float


class Estimate(NamedTuple):
    """What bootstrap resampling says about one score.

    Attributes:
        score: that of the whole test set, 0-100.
        mean: over the resampled test sets.
        half_width: 95% of them lie between ``mean - half_width`` and ``mean + half_width``.
    """

    score: float
    mean: float
    half_width: float


class Comparison(NamedTuple):
    """One measure of two systems.

    Attributes:
        system: the estimate for the system.
        versus: the estimate for the other system.
        p_value: probability, in [0, 1], of a difference at least as large if both systems were equally good; 1 for
            equal scores, where sacreBLEU would report the smallest value that it can.
        signature: sacreBLEU's, with method, number of resamples and seed.
    """

    system: Estimate
    versus: Estimate
    p_value: float
    signature: str


def compare_systems(
    measure: Measure, system: Statistics, versus: Statistics, settings: PairedTestSettings
) -> Comparison:
    """Tests the difference of two systems in one measure.

    Args:
        measure: what is compared.
        system: statistics of the system, a row for each sentence.
        versus: those of the other system, in the same order.
        settings: method, number of resamples and seed.
    """
    assert settings.num_resamples >= 1  # sacreBLEU takes 0 for its default
    assert settings.seed >= 1  # and a seed of 0 for none
    with _seed(settings.seed):
        test = PairedTest(
            [("versus", versus), ("system", system)],
            {measure.name: _CountedMetric(measure)},
            references=None,
            test_type=METHODS[settings.method],
            n_samples=settings.num_resamples,
            n_ar_confidence=0 if settings.method == "approximate_randomization" else -1,
        )
        signatures, results = test()
    (name, signature) = next(iter(signatures.items()))
    other, result = results[name]
    return Comparison(
        system=Estimate(result.score, float(result.mean), float(result.ci)),
        versus=Estimate(other.score, float(other.mean), float(other.ci)),
        p_value=1.0 if result.score == other.score else float(result.p_value),
        signature=str(signature),
    )


def estimate_interval(measure: Measure, statistics: Statistics, num_resamples: int, seed: int) -> Interval:
    """Resamples sentences with replacement, to say how far a score might lie elsewhere by chance.

    Args:
        measure: the score.
        statistics: of at least one sentence, a row for each.
        num_resamples: resampled sets of as many sentences, at least 1.
        seed: of the random numbers, at least 1.

    Returns:
        The interval between the 2.5th and the 97.5th percentile of the scores of the resampled sets.
    """
    assert statistics
    assert num_resamples >= 1
    with _seed(seed):
        _, resampled = _bootstrap_resample(statistics, measure.metric, num_resamples)
    scores = sorted(float(score.score) for score in resampled)
    outside = math.floor(num_resamples * _OUTSIDE)
    return Interval(scores[outside], scores[-1 - outside])


class _CountedMetric:
    """A metric for ``PairedTest`` that takes statistics for hypotheses."""

    def __init__(self, measure: Measure) -> None:
        self._metric = measure.metric

    def _extract_corpus_statistics(self, hypotheses: Statistics, references: None) -> Statistics:
        return hypotheses

    def _aggregate_and_compute(self, statistics: Statistics) -> Score:
        return self._metric._aggregate_and_compute(statistics)

    def _compute_score_from_stats(self, statistics: Any) -> Score:
        return self._metric._compute_score_from_stats(statistics)

    def get_signature(self) -> Any:
        return self._metric.get_signature()


@contextlib.contextmanager
def _seed(seed: int) -> Iterator[None]:
    """Sets the environment variable that sacreBLEU reads when a test is made and when it resamples."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED_VARIABLE]
        else:
            os.environ[_SEED_VARIABLE] = before
