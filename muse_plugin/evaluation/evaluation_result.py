"""What an evaluation found, and the same as numbers and text for JSON."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from sacrebleu.metrics.base import Score

from muse_plugin.evaluation.expectation import Verdict
from muse_plugin.evaluation.length_buckets import Bucket
from muse_plugin.evaluation.scores import Measure, Statistics, describe_score, mean_and_deviation, round_score
from muse_plugin.evaluation.significance import Comparison, Estimate, Interval, PairedTestSettings
from muse_plugin.evaluation.systems import Texts

COMET = "COMET"


class LengthScores(NamedTuple):
    """Scores by source length.

    Attributes:
        unit: what lengths count, ``words`` or ``subwords``.
        measure: name of the score.
        buckets: ranges with their sentences.
        scores: for each file, the score of each bucket on 0-100, None where it is empty.
        intervals: for each file, the 95% interval of each bucket's score, None where it is empty; empty if not asked
            for.
    """

    unit: str
    measure: str
    buckets: list[Bucket]
    scores: list[list[Optional[float]]]
    intervals: list[list[Optional[Interval]]]


@dataclass
class Evaluation:
    """Everything that was computed; lists by file have the system's files first, then those of the other system.

    Attributes:
        files: names for the reader.
        num_own: how many of the files are the system's.
        titles: names of the one or two systems.
        texts: what was loaded.
        measures: kinds of scores.
        statistics: for each file, the statistics per sentence by measure.
        scores: for each file, scores by measure.
        signatures: for each score, the settings that it depends on.
        comet: for each file, COMET times 100; empty if not asked for.
        lengths: scores by source length, if there are sources.
        test: how the two systems were compared, if there are two.
        comparisons: for each pair of files, the paired tests by measure.
        verdict: what ``--expect`` says.
    """

    files: list[str]
    num_own: int
    titles: list[str]
    texts: Texts
    measures: list[Measure]
    statistics: list[dict[str, Statistics]]
    scores: list[dict[str, Score]]
    signatures: dict[str, str]
    comet: list[float] = field(default_factory=list)
    lengths: Optional[LengthScores] = None
    test: Optional[PairedTestSettings] = None
    comparisons: list[dict[str, Comparison]] = field(default_factory=list)
    verdict: Optional[Verdict] = None

    @property
    def systems(self) -> list[range]:
        """For each system, the positions of its files."""
        everything = range(len(self.files))
        return [part for part in (everything[: self.num_own], everything[self.num_own :]) if part]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The files that are compared one to one; empty with one system."""
        return list(zip(*self.systems, strict=True)) if len(self.systems) > 1 else []

    def numbers(self, file: int) -> dict[str, float]:
        """All scores of a file, 0-100, by name."""
        numbers = {name: score.score for name, score in self.scores[file].items()}
        return numbers | ({COMET: self.comet[file]} if self.comet else {})


def describe_evaluation(result: Evaluation) -> dict[str, Any]:
    """Returns the results as JSON can hold them; scores are rounded to four digits."""
    systems = [_describe_system(result, i) for i in range(len(result.systems))]
    return {
        **systems[0],
        "versus": systems[1] if len(systems) > 1 else None,
        "significance": _describe_comparisons(result),
        "length_buckets": _describe_lengths(result),
        "expectation": None if result.verdict is None else result.verdict._asdict(),
        "num_sentences": len(result.texts.references),
        "subwords_removed": result.texts.subword_kind,
        "notes": result.texts.notes,
    }


def _describe_system(result: Evaluation, system: int) -> dict[str, Any]:
    files = result.systems[system]
    scores = {}
    for name, signature in result.signatures.items():
        values = [result.numbers(i)[name] for i in files]
        mean, deviation = mean_and_deviation(values)
        scores[name.lower()] = {
            "mean": round_score(mean),
            "sd": None if deviation is None else round_score(deviation),
            "values": [round_score(value) for value in values],
            "signature": signature,
        }
    details = [
        {"file": result.files[i], **{name: describe_score(name, score) for name, score in result.scores[i].items()}}
        for i in files
    ]
    return {"name": result.titles[system], "scores": scores, "files": details}


def _describe_comparisons(result: Evaluation) -> Optional[dict[str, Any]]:
    if result.test is None:
        return None
    pairs = []
    for (i, j), comparisons in zip(result.pairs, result.comparisons, strict=True):
        tests = {name: _describe_test(comparison) for name, comparison in comparisons.items()}
        pairs.append({"file": result.files[i], "versus": result.files[j], **tests})
    return {**result.test._asdict(), "pairs": pairs}


def _describe_test(comparison: Comparison) -> dict[str, Any]:
    return {
        "p_value": round(comparison.p_value, 6),
        "system": _describe_estimate(comparison.system),
        "versus": _describe_estimate(comparison.versus),
        "signature": comparison.signature,
    }


def _describe_estimate(estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.mean - estimate.half_width, estimate.mean + estimate.half_width
    return {
        "score": round_score(estimate.score),
        "mean": round_score(estimate.mean),
        "interval_95": [round_score(low), round_score(high)],
    }


def _describe_lengths(result: Evaluation) -> Optional[dict[str, Any]]:
    lengths = result.lengths
    if lengths is None:
        return None
    rounded = [[None if score is None else round_score(score) for score in file] for file in lengths.scores]
    bounds = [[None if part is None else [*map(round_score, part)] for part in file] for file in lengths.intervals]
    own = result.num_own
    buckets = []
    for i, bucket in enumerate(lengths.buckets):
        described: dict[str, Any] = {
            "low": bucket.low,
            "high": bucket.high,
            "num_sentences": len(bucket.members),
            "scores": [file[i] for file in rounded[:own]],
            "versus_scores": [file[i] for file in rounded[own:]],
        }
        if bounds:
            described["intervals_95"] = [file[i] for file in bounds[:own]]
            described["versus_intervals_95"] = [file[i] for file in bounds[own:]]
        buckets.append(described)
    return {"unit": lengths.unit, "score": lengths.measure, "buckets": buckets}
