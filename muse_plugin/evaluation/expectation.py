"""Says whether a score is the expected one, and where to look if it is not."""

import math
from typing import Any

from muse_plugin.evaluation.scores import LOWER_IS_BETTER, TITLES


def check_interval(low: float, high: float) -> None:
    """Refuses an interval that no score can be in.

    Raises:
        ValueError: if ``low`` is above ``high``, or one of them is no number.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(
            f"--expect must have the lower bound first, but got {low:g} and {high:g}; write it as --expect 35.7 36.5."
        )


def judge(metric: str, score: float, low: float, high: float) -> dict[str, Any]:
    """Compares a score with its interval.

    Args:
        metric: a key of ``TITLES``.
        score: the score, 0-100.
        low: lower bound.
        high: upper bound.

    Returns:
        "metric", "low" and "high" as given; "passed": whether the score is between them, bounds included;
        "sentence": the same in words, with advice if not.
    """
    interval = f"{low:g} to {high:g}"
    passed = low <= score <= high
    if passed:
        sentence = f"PASS: {TITLES[metric]} {score:.1f} lies in the expected interval, {interval}."
    else:
        advice = (
            "that is better than expected: are tokenisation and case of the references those of the expected score, "
            "and is no test sentence in the training data?"
        )
        if (score < low) != (metric in LOWER_IS_BETTER):
            advice = (
                "did training reach its last update, were the right checkpoints averaged, and are beam, length "
                "penalty, tokenisation and case those of the expected score?"
            )
        sentence = f"OUTSIDE: {TITLES[metric]} {score:.2f} lies outside the expected interval, {interval}; {advice}"
    return {"metric": metric, "low": low, "high": high, "passed": passed, "sentence": sentence}
