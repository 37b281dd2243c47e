"""How right labels, tags, numbers and orders are: measures of scikit-learn, SciPy and seqeval, and of ranking."""

import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Optional

import numpy as np
from scipy import stats
from sklearn import metrics

from muse_plugin.contracts.seqeval_package import import_seqeval

RANKING_SIGNATURE = "ranking|groups:with a right answer|ties:wrong first"


def score_labels(predicted: Sequence[str], gold: Sequence[str], positive: Optional[str] = None) -> dict[str, Any]:
    """Measures of one label per sentence, or of the tags of all words in a row.

    Args:
        predicted: by the model.
        gold: what is right.
        positive: the label whose own measures count, as those of duplicates do among pairs of questions.

    Returns:
        "scores": ``accuracy`` and ``macro_f1`` (the mean over all labels that occur on either side), 0-100; with
        ``positive`` also ``f1``, ``precision`` and ``recall`` of that label.
        "per_class": ``precision``, ``recall``, ``f1`` (0-100) and ``count`` of each label.
        "confusion": rows are the right labels, columns those that were predicted, both in the order of "labels".

    Raises:
        ValueError: if ``positive`` is never right.
    """
    labels = sorted(set(predicted) | set(gold))
    if positive is not None and positive not in gold:
        raise ValueError(
            f"--positive must be a label that is right at least once, but got {positive!r}; choose one of "
            f"{', '.join(sorted(set(gold)))}."
        )
    parts = metrics.precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    precision, recall, f1, count = (part.tolist() for part in parts)
    scores = {"accuracy": 100 * float(metrics.accuracy_score(gold, predicted)), "macro_f1": 100 * float(np.mean(f1))}
    if positive is not None:
        i = labels.index(positive)
        scores.update(f1=100 * f1[i], precision=100 * precision[i], recall=100 * recall[i])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a single label, although ``labels`` says so
        confusion = metrics.confusion_matrix(gold, predicted, labels=labels).tolist()
    return {
        "scores": scores,
        "labels": labels,
        "per_class": {label: _describe(*row) for label, *row in zip(labels, precision, recall, f1, count, strict=True)},
        "confusion": confusion,
    }


def score_entities(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Measures of entities in BIO tags, as conlleval counts them.

    Args:
        predicted: tags of each sentence.
        gold: the right ones, in the same form.

    Returns:
        "scores": ``entity_f1``, ``entity_precision``, ``entity_recall``, 0-100; "per_entity": the same by type.

    Raises:
        ImportError: if seqeval is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the means over types where there is no entity at all
        report = import_seqeval().classification_report(
            [list(row) for row in gold], [list(row) for row in predicted], output_dict=True, zero_division=0
        )
    total = report["micro avg"]
    return {
        "scores": {
            "entity_f1": 100 * float(total["f1-score"]),
            "entity_precision": 100 * float(total["precision"]),
            "entity_recall": 100 * float(total["recall"]),
        },
        "per_entity": {
            name: _describe(row["precision"], row["recall"], row["f1-score"], row["support"])
            for name, row in report.items()
            if not name.endswith(" avg")
        },
    }


def _describe(precision: float, recall: float, f1: float, count: float) -> dict[str, Any]:
    shares = {"precision": precision, "recall": recall, "f1": f1}
    return {**{name: 100 * float(value) for name, value in shares.items()}, "count": int(count)}


def score_numbers(predicted: Sequence[Sequence[float]], gold: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Measures of numbers, over all numbers of all sentences.

    Returns:
        "scores": ``mse``; ``pearson`` and ``spearman``, in [-1, 1], 0 where one side does not vary.
    """
    x, y = np.asarray(predicted, dtype=float).ravel(), np.asarray(gold, dtype=float).ravel()
    varies = len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    return {
        "scores": {
            "mse": float(np.mean((x - y) ** 2)),
            "pearson": float(stats.pearsonr(x, y).statistic) if varies else 0.0,
            "spearman": float(stats.spearmanr(x, y).statistic) if varies else 0.0,
        }
    }


def compare_decisions(right: Sequence[bool], others_right: Sequence[bool]) -> dict[str, Any]:
    """McNemar's exact test: is one of two systems right more often than the other, on the same decisions?

    Args:
        right: whether the system was right.
        others_right: whether the other one was.

    Returns:
        "only_this" and "only_other": how often one alone was right; "p_value": of as large a difference if both were
        equally good, two-sided, 1 if they never differ.
    """
    this = sum(a and not b for a, b in zip(right, others_right, strict=True))
    other = sum(b and not a for a, b in zip(right, others_right, strict=True))
    p = stats.binomtest(this, this + other).pvalue if this + other else 1.0
    return {"only_this": this, "only_other": other, "p_value": float(p)}


def score_ranking(probabilities: Sequence[float], right: Sequence[bool], groups: Sequence[Hashable]) -> dict[str, Any]:
    """Ranks the answers of each group by probability, the highest first.

    Groups without a right answer are left out, as is customary for WikiQA and TREC-QA: no order of theirs is better
    than another. Among answers of equal probability the wrong ones come first, so that a model gains nothing by not
    telling them apart, and the order of the file does not matter.

    Args:
        probabilities: of being right, one per answer.
        right: whether the answer is.
        groups: what the answers to one question have in common; they need not be together.

    Returns:
        "scores": ``map`` (the mean over groups of average precision) and ``mrr`` (of 1 / rank of the first right
        answer), 0-100. "ranking": how many ``groups`` these are, with how many ``answers``, and how many were
        ``left_out``.

    Raises:
        ValueError: if there is no right answer in any group.
    """
    rows: dict[Hashable, list[tuple[float, bool]]] = {}
    for probability, is_right, group in zip(probabilities, right, groups, strict=True):
        rows.setdefault(group, []).append((-probability, is_right))
    kept = [sorted(answers) for answers in rows.values() if any(is_right for _, is_right in answers)]
    if not kept:
        raise ValueError(
            f"ranking needs a group with a right answer, but none of {len(rows)} groups has one; check --group and "
            "--positive."
        )
    precisions, reciprocals = [], []
    for answers in kept:
        ranks = [rank for rank, (_, is_right) in enumerate(answers, start=1) if is_right]
        precisions.append(sum(found / rank for found, rank in enumerate(ranks, start=1)) / len(ranks))
        reciprocals.append(1 / ranks[0])
    return {
        "scores": {"map": 100 * sum(precisions) / len(kept), "mrr": 100 * sum(reciprocals) / len(kept)},
        "ranking": {"groups": len(kept), "answers": sum(map(len, kept)), "left_out": len(rows) - len(kept)},
    }
