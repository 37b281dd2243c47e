"""How well probabilities rank the answers to each question: mean average precision and mean reciprocal rank."""

from collections.abc import Hashable, Sequence
from typing import Any

SIGNATURE = "ranking|groups:with a right answer|ties:wrong first"


def score_ranking(probabilities: Sequence[float], right: Sequence[bool], groups: Sequence[Hashable]) -> dict[str, Any]:
    """Ranks the answers of each group by probability, the highest first.

    Groups without a right answer are left out, as is customary for WikiQA and TREC-QA: no order of theirs is better
    than another. Among answers of equal probability the wrong ones come first, so that a model gains nothing by not
    telling them apart, and the order of the file does not matter.

    Args:
        probabilities: of being right, one per answer.
        right: whether the answer is.
        groups: what the answers to one question have in common; they need not stand together.

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
