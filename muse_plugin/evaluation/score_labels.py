"""``muse-plugin score-labels``: scores what ``muse-plugin predict --split`` wrote.

The JSON has the form of ``muse-plugin evaluate``: scores, the settings given with ``--record``, versions, hardware.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from muse_plugin.atomic_files import open_atomically
from muse_plugin.evaluation.label_scores import compare_decisions, score_entities, score_labels, score_numbers
from muse_plugin.evaluation.length_buckets import make_buckets, parse_bounds
from muse_plugin.evaluation.recorded_settings import collect_settings
from muse_plugin.evaluation.text_files import read_lines
from muse_plugin.run_record import describe_run

# Of each kind of prediction, the score that buckets have.
_MAIN = {"label": "accuracy", "tags": "accuracy", "numbers": "mse"}


class Predictions(NamedTuple):
    """A file of ``muse-plugin predict --split ... --format jsonl``.

    Attributes:
        kind: "label", "tags" or "numbers".
        said: one per sentence.
        true: likewise.
        lengths: words of each sentence.
    """

    kind: str
    said: list[Any]
    true: list[Any]
    lengths: list[int]

    def take(self, members: Sequence[int]) -> "Predictions":
        """Those of some sentences."""
        said, true, lengths = ([column[i] for i in members] for column in (self.said, self.true, self.lengths))
        return Predictions(self.kind, said, true, lengths)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin score-labels`` on ``parser``."""
    parser.description = "Score labels, tags or numbers that muse-plugin predict --split NAME --format jsonl wrote."
    parser.add_argument("predictions", type=Path, help="the file with predictions and right answers")
    parser.add_argument("--entities", action="store_true", help="tags are BIO: score entities as well (needs seqeval)")
    parser.add_argument(
        "--versus",
        type=Path,
        metavar="FILE",
        help="predictions of another system to compare with (exact McNemar test)",
    )
    parser.add_argument(
        "--length-buckets", metavar="BOUNDS", help="score by length in words: upper bounds, such as 10,20,30"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write everything to FILE as JSON")
    parser.add_argument(
        "--record", action="append", default=[], metavar="KEY=VALUE", help="a setting to store in --output; repeatable"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the scores; the body of ``muse-plugin score-labels``.

    Args:
        args: the flags declared by ``add_arguments``.

    Returns:
        0.

    Raises:
        ValueError: if a file is not what ``muse-plugin predict --split`` writes, or two do not fit each other.
    """
    settings = collect_settings(args.record, None)
    bounds = None if args.length_buckets is None else parse_bounds(args.length_buckets)
    predictions = read_predictions(args.predictions)
    if args.entities and predictions.kind != "tags":
        raise ValueError(f"--entities is for tags, but {args.predictions} holds {predictions.kind}; drop the flag.")
    result = score(predictions, args.entities)
    if bounds is not None:
        result["length_buckets"] = score_buckets(predictions, bounds)
    if args.versus is not None:
        result["significance"] = compare(predictions, read_predictions(args.versus), args.versus)
    print(render(result, predictions))
    if args.output is not None:
        signature = {"label": "labels", "tags": "tags", "numbers": "numbers"}[predictions.kind]
        scores = {name: {"mean": round(value, 6), "signature": signature} for name, value in result["scores"].items()}
        record = {**result, "scores": scores, "num_sentences": len(predictions.said), "settings": settings}
        with open_atomically(args.output) as file:
            text = json.dumps({**record, **describe_run()}, indent=2, ensure_ascii=False)
            file.write((text + "\n").encode("utf-8"))
    return 0


def read_predictions(path: Path) -> Predictions:
    """Reads predictions with their right answers.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not of that form; the sentence has the number of the line.
    """
    kinds = ("label", "tags", "numbers")
    found: Optional[str] = None
    said, true, lengths = [], [], []
    for number, line in enumerate(read_lines(path, "the file of predictions"), start=1):
        try:
            entry = json.loads(line)
            kind = next(kind for kind in kinds if kind in entry)
            row = entry[kind], entry["target"], int(entry["length"])
        except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
            row, kind = None, None
        if row is None or kind != (found or kind) or not _fits(kind, row[0], row[1]):
            raise ValueError(
                f"every line must hold a prediction and its target, as muse-plugin predict --split NAME --format jsonl "
                f"writes them, but line {number} of {path} is {line[:80]!r}."
            )
        found = kind
        said.append(row[0])
        true.append(row[1])
        lengths.append(row[2])
    assert found is not None  # read_lines refuses an empty file
    return Predictions(found, said, true, lengths)


def _fits(kind: Optional[str], said: Any, true: Any) -> bool:
    if kind == "label":
        return isinstance(said, str) and isinstance(true, str)
    if not (isinstance(said, list) and isinstance(true, list) and len(said) == len(true)):
        return False
    wanted = str if kind == "tags" else (int, float)
    return all(isinstance(entry, wanted) and not isinstance(entry, bool) for entry in (*said, *true))


def score(predictions: Predictions, entities: bool = False) -> dict[str, Any]:
    """All measures of the predictions; see ``label_scores``."""
    if predictions.kind == "numbers":
        return score_numbers(predictions.said, predictions.true)
    if predictions.kind == "label":
        return score_labels(predictions.said, predictions.true)
    result = score_labels(_flatten(predictions.said), _flatten(predictions.true))
    if entities:
        found = score_entities(predictions.said, predictions.true)
        result = {**result, **found, "scores": {**found["scores"], **result["scores"]}}
    return result


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
    if predictions.true != other.true:
        raise ValueError(
            f"--versus needs predictions for the same sentences, but the right answers in {path} are others; predict "
            "the same split of the same data with both systems."
        )
    pairs = []
    for system in (predictions, other):
        said = system.said if system.kind == "label" else _flatten(system.said)
        true = system.true if system.kind == "label" else _flatten(system.true)
        pairs.append([a == b for a, b in zip(said, true, strict=True)])
    return {"method": "McNemar, exact", "versus": path.name, **compare_decisions(*pairs)}


def _flatten(rows: Sequence[Sequence[str]]) -> list[str]:
    return [entry for row in rows for entry in row]


def render(result: dict[str, Any], predictions: Predictions) -> str:
    """The scores as text."""
    lines = [f"{len(predictions.said):,} sentences"]
    lines += [
        f"{name} = {value:.4f}" if abs(value) <= 1 else f"{name} = {value:.2f}"
        for name, value in result["scores"].items()
    ]
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
