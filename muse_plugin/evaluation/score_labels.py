"""``muse-plugin score-labels``: scores what ``muse-plugin predict --split`` wrote.

The JSON has the form of ``muse-plugin evaluate``: scores, the settings given with ``--record``, versions, hardware.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from muse_plugin.evaluation.label_scores import (
    RANKING_SIGNATURE,
    compare_decisions,
    score_entities,
    score_labels,
    score_numbers,
    score_ranking,
)
from muse_plugin.evaluation.length_buckets import make_buckets, parse_bounds
from muse_plugin.evaluation.recorded_settings import collect_settings
from muse_plugin.files.json_objects import write_json
from muse_plugin.files.lines import read_lines
from muse_plugin.results.run_record import describe_run
from muse_plugin.text.bio_tags import is_bio_tag
from muse_plugin_command.flag_checks import check_apart, check_target

# Of each kind of prediction, the signature of its scores, and the score that buckets have.
_SIGNATURES = {"label": "labels", "tags": "tags", "numbers": "numbers"}
_MAIN = {"label": "accuracy", "tags": "accuracy", "numbers": "mse"}


class Predictions(NamedTuple):
    """A file of ``muse-plugin predict --split ... --format jsonl``.

    Attributes:
        kind: "label", "tags" or "numbers".
        predicted: one per sentence.
        gold: the right ones, in the same form.
        lengths: words of each sentence.
        probabilities: of each label, for each sentence; None where the file has none.
    """

    kind: str
    predicted: list[Any]
    gold: list[Any]
    lengths: list[int]
    probabilities: list[Any]

    def take(self, members: Sequence[int]) -> "Predictions":
        """Those of some sentences."""
        return Predictions(self.kind, *([column[i] for i in members] for column in self[1:]))

    def flatten(self) -> tuple[list[str], list[str]]:
        """All predicted and all right decisions in a row: one label for each sentence, or the tags of its words."""
        if self.kind == "label":
            return self.predicted, self.gold
        return [tag for row in self.predicted for tag in row], [tag for row in self.gold for tag in row]


def run(args: argparse.Namespace) -> int:
    """Prints the scores; the body of ``muse-plugin score-labels``.

    Raises:
        ValueError: if a file is not what ``muse-plugin predict --split`` writes, or two do not fit each other.
    """
    settings = collect_settings(args.record, None)
    if settings and args.output is None:
        raise ValueError("--record works only together with --output; add that or leave it out.")
    check_target(args.output, "--output")
    check_apart(args.output, args.predictions, args.versus, args.group)
    bounds = None if args.length_buckets is None else parse_bounds(args.length_buckets)
    predictions = read_predictions(args.predictions)
    for flag, kind, of in (("entities", "tags", "tags"), ("positive", "label", "labels")):
        if getattr(args, flag) not in (None, False) and predictions.kind != kind:
            raise ValueError(f"--{flag} is for {of}, but {args.predictions} holds {predictions.kind}; drop the flag.")
    if args.entities:
        _check_entity_tags(predictions, args.predictions)
    if args.group is not None and args.positive is None:
        raise ValueError(
            f"--group ranks by the probability of one label, but got --group {args.group} alone; add --positive LABEL."
        )
    result = score(predictions, args.entities, args.positive)
    if args.group is not None:
        ranking = rank(predictions, args.positive, args.group, args.predictions)
        result = {**result, **ranking, "scores": {**result["scores"], **ranking["scores"]}}
    if bounds is not None:
        result["length_buckets"] = score_buckets(predictions, bounds)
    if args.versus is not None:
        result["significance"] = compare(predictions, read_predictions(args.versus), args.versus)
    print(render(result, predictions))
    if args.output is not None:
        signature = _SIGNATURES[predictions.kind]
        scores = {
            name: {"mean": round(value, 6), "signature": RANKING_SIGNATURE if name in ("map", "mrr") else signature}
            for name, value in result["scores"].items()
        }
        record = {**result, "scores": scores, "num_sentences": len(predictions.predicted), "settings": settings}
        write_json(args.output, {**record, **describe_run()}, indent=2, ensure_ascii=False, allow_nan=False)
    return 0


def read_predictions(path: Path) -> Predictions:
    """Reads predictions with their right answers.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not of that form; the sentence has the number of the line.
    """
    found: Optional[str] = None
    rows = []
    for number, line in enumerate(read_lines(path, "the file of predictions"), start=1):
        try:
            entry = json.loads(line)
            kind = next(kind for kind in _MAIN if kind in entry)
            row = entry[kind], entry["target"], int(entry["length"]), entry.get("probabilities")
            found = found or kind
            fits = kind == found and _fits(kind, row[0], row[1]) and row[2] >= 0
            fits &= kind != "numbers" or not rows or len(row[0]) == len(rows[0][0])
        except (ValueError, KeyError, TypeError, OverflowError, StopIteration, RecursionError):
            fits = False
        if not fits:
            raise ValueError(
                f"every line must hold a prediction and its target, as muse-plugin predict --split NAME --format jsonl "
                f"writes them, but line {number} of {path} is {line[:80]!r}."
            )
        rows.append(row)
    return Predictions(found, *map(list, zip(*rows, strict=True)))


def _check_entity_tags(predictions: Predictions, path: Path) -> None:
    for number, rows in enumerate(zip(predictions.predicted, predictions.gold, strict=True), start=1):
        for tag in (tag for row in rows for tag in row):
            if not is_bio_tag(tag):
                raise ValueError(
                    f"--entities needs tags O, B-X and I-X, but line {number} of {path} has {tag!r}; drop the flag to "
                    "score tags alone."
                )


def _fits(kind: str, predicted: Any, gold: Any) -> bool:
    if kind == "label":
        return isinstance(predicted, str) and isinstance(gold, str)
    if not (isinstance(predicted, list) and isinstance(gold, list) and len(predicted) == len(gold) > 0):
        return False
    entries = (*predicted, *gold)
    if kind == "tags":
        return all(isinstance(entry, str) for entry in entries)
    return all(
        isinstance(entry, (int, float)) and not isinstance(entry, bool) and math.isfinite(entry) for entry in entries
    )


def score(predictions: Predictions, entities: bool = False, positive: Optional[str] = None) -> dict[str, Any]:
    """All measures of the predictions; see ``label_scores``."""
    if predictions.kind == "numbers":
        return score_numbers(predictions.predicted, predictions.gold)
    result = score_labels(*predictions.flatten(), positive)
    if entities:
        found = score_entities(predictions.predicted, predictions.gold)
        result = {**result, **found, "scores": {**found["scores"], **result["scores"]}}
    return result


def rank(predictions: Predictions, positive: str, groups: Path, path: Path) -> dict[str, Any]:
    """Measures of the order that the probability of one label gives; see ``score_ranking``.

    Args:
        predictions: of labels.
        positive: the label.
        groups: a file with a line for each prediction; equal lines are a group.
        path: the file of the predictions, for messages.

    Raises:
        ValueError: if the file has another number of lines, or a prediction has no probability of the label.
    """
    names = read_lines(groups, "--group")
    if len(names) != len(predictions.predicted):
        raise ValueError(
            f"--group must have a line for each prediction, but {groups} has {len(names)} lines and {path} "
            f"{len(predictions.predicted)}; make it from the same examples, in their order."
        )
    probabilities = []
    for number, row in enumerate(predictions.probabilities, start=1):
        value = row.get(positive) if isinstance(row, dict) else None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
            raise ValueError(
                f"--group needs the probability of {positive!r} for every prediction, but line {number} of {path} has "
                f"{row!r:.80}; write it with muse-plugin predict --format jsonl, or choose another --positive."
            )
        probabilities.append(float(value))
    return score_ranking(probabilities, [label == positive for label in predictions.gold], names)


def score_buckets(predictions: Predictions, bounds: Sequence[int]) -> dict[str, Any]:
    """The main score by length."""
    main = _MAIN[predictions.kind]
    buckets = [
        {
            "low": bucket.low,
            "high": bucket.high,
            "label": bucket.label,
            "num_sentences": len(bucket.members),
            "score": score(predictions.take(bucket.members))["scores"][main] if bucket.members else None,
        }
        for bucket in make_buckets(predictions.lengths, bounds)
    ]
    return {"unit": "words", "score": main, "buckets": buckets}


def compare(predictions: Predictions, other: Predictions, path: Path) -> dict[str, Any]:
    """Tests whether two systems differ in how many labels or tags they have right.

    Raises:
        ValueError: if their right answers differ, or they are numbers.
    """
    if predictions.kind == "numbers":
        raise ValueError("--versus compares labels or tags, but the predictions are numbers; drop the flag.")
    if predictions.gold != other.gold:
        raise ValueError(
            f"--versus needs predictions for the same sentences, but the right answers in {path} are others; predict "
            "the same split of the same data with both systems."
        )
    right = [[a == b for a, b in zip(*system.flatten(), strict=True)] for system in (predictions, other)]
    return {"method": "McNemar, exact", "versus": path.name, **compare_decisions(*right)}


def render(result: dict[str, Any], predictions: Predictions) -> str:
    """The scores as text."""
    lines = [f"{len(predictions.predicted):,} sentences"]
    lines += [
        f"{name} = {value:.4f}" if abs(value) <= 1 else f"{name} = {value:.2f}"
        for name, value in result["scores"].items()
    ]
    if "ranking" in result:
        count = result["ranking"]
        lines.append(
            f"map and mrr over {count['groups']:,} groups with {count['answers']:,} answers; {count['left_out']:,} "
            "groups without a right answer left out"
        )
    for title in ("per_class", "per_entity"):
        for label, row in result.get(title, {}).items():
            lines.append(
                f"  {label}: precision {row['precision']:.2f}, recall {row['recall']:.2f}, F1 {row['f1']:.2f}, "
                f"{row['count']} times"
            )
    for bucket in result.get("length_buckets", {}).get("buckets", []):
        value = "none" if bucket["score"] is None else f"{bucket['score']:.2f}"
        lines.append(f"  {bucket['label']} words: {value} ({bucket['num_sentences']} sentences)")
    if "significance" in result:
        test = result["significance"]
        lines.append(
            f"versus {test['versus']}: right alone {test['only_this']} against {test['only_other']} times, "
            f"p = {test['p_value']:.4f} (McNemar, exact)"
        )
    return "\n".join(lines)
