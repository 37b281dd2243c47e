"""Counts of right and wrong decisions that add up over batches and processes, and the measures made of them.

fairseq sums what a criterion logs, key by key; measures such as F1 are derived from the sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairseq.logging import metrics
from torch import Tensor

_COUNTS = ("right", "predicted", "gold")
# Classes that have columns of their own in the log, behind all others.
MOST_LISTED = 100
_LAST_COLUMNS = 1_000_000


def count_classes(predicted: Tensor, gold: Tensor, labels: Sequence[str]) -> dict[str, float]:
    """How often each class was predicted, is right, and both.

    Args:
        predicted: numbers of classes, shape (N,).
        gold: the right ones, in the same form.
        labels: names of the classes.

    Returns:
        A number for "_right/LABEL", "_predicted/LABEL" and "_gold/LABEL" of each class.
    """
    chosen = {"right": predicted[predicted == gold], "predicted": predicted, "gold": gold}
    counts = {kind: numbers.bincount(minlength=len(labels)).tolist() for kind, numbers in chosen.items()}
    return {f"_{kind}/{label}": float(counts[kind][i]) for i, label in enumerate(labels) for kind in _COUNTS}


def log_sums(logging_outputs: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> None:
    """Adds up what batches logged under the keys."""
    for key in keys:
        total = sum(float(log.get(key, 0)) for log in logging_outputs)
        metrics.log_scalar_sum(key, total, priority=10)


def log_share(name: str, part: str, whole: str) -> None:
    """Logs 100 * part / whole of two sums, 0 where there is nothing."""
    metrics.log_derived(name, lambda meters: round(percent(meters[part].sum, meters[whole].sum), 4))


def log_f1(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
    """Logs F1 in percent of the classes that were counted, and its mean over those that occurred (macro F1).

    The classes themselves are logged if they are at most ``MOST_LISTED``;
    ``muse-plugin score-labels`` lists all of them.
    """
    first = next((log for log in logging_outputs if log), {})
    labels = [key.split("/", 1)[1] for key in first if key.startswith("_right/")]
    if not labels:
        return
    log_sums(logging_outputs, (f"_{kind}/{label}" for label in labels for kind in _COUNTS))

    def f1_of(meters: Any, label: str) -> float:
        right, predicted, gold = (meters[f"_{kind}/{label}"].sum for kind in _COUNTS)
        return f1(right, predicted, gold)

    def macro_f1(meters: Any) -> float:
        found = [one for one in labels if meters[f"_predicted/{one}"].sum + meters[f"_gold/{one}"].sum > 0]
        return sum(f1_of(meters, one) for one in found) / max(len(found), 1)

    if len(labels) <= MOST_LISTED:
        for label in labels:
            metrics.log_derived(
                f"f1_{label}", lambda meters, label=label: round(f1_of(meters, label), 4), priority=_LAST_COLUMNS
            )
    metrics.log_derived("macro_f1", lambda meters: round(macro_f1(meters), 4))


def percent(part: float, whole: float) -> float:
    """100 * part / whole, 0 for nothing of nothing."""
    return 100.0 * float(part) / float(whole) if whole else 0.0


def f1(right: float, predicted: float, gold: float) -> float:
    """Harmonic mean of precision and recall in percent, 0 where nothing was predicted and nothing is right."""
    return percent(2 * right, predicted + gold)
