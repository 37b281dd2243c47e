"""How matches and scored pairs are written: tab-separated columns, or JSON lines."""

import json
from collections.abc import Sequence

from muse_plugin.matching.pair_model import PairModel


def format_pair(model: PairModel, first: str, second: str, scores: Sequence[float], form: str) -> bytes:
    """A line for a pair.

    Args:
        model: the model, which knows the names of its outputs.
        first: id of the first sentence.
        second: id of the second one.
        scores: the probability of each label, or the numbers.
        form: "tsv" or "jsonl".

    Returns:
        In tsv the ids, the label and its and the others' probabilities in the order of the labels, or the ids and the
        numbers.
    """
    label = None if model.predicts_numbers else model.outputs[max(range(len(scores)), key=scores.__getitem__)]
    scores = [float(f"{score:.6g}") for score in scores]
    if form == "jsonl":
        said: dict[str, object] = {"numbers": scores}
        if label is not None:
            said = {"label": label, "probabilities": dict(zip(model.outputs, scores, strict=True))}
        return _to_line(json.dumps({"first": first, "second": second, **said}, ensure_ascii=False))
    columns = [first, second, *([] if label is None else [label]), *(f"{score:.6g}" for score in scores)]
    return _to_line("\t".join(columns))


def format_matches(model: PairModel, query: str, names: Sequence[str], scores: Sequence[float], form: str) -> bytes:
    """The lines of a query: in tsv one per match (query, rank from 1, id, probability or number), in jsonl one.

    Args:
        model: the model.
        query: id of the query.
        names: ids of the matches, best first.
        scores: probability of the chosen label, or number, of each.
        form: "tsv" or "jsonl".
    """
    kind = "number" if model.predicts_numbers else "probability"
    if form == "jsonl":
        matches = [{"id": name, kind: float(f"{score:.6g}")} for name, score in zip(names, scores, strict=True)]
        return _to_line(json.dumps({"query": query, "matches": matches}, ensure_ascii=False))
    rows = zip(names, scores, strict=True)
    return b"".join(
        _to_line(f"{query}\t{rank}\t{name}\t{score:.6g}") for rank, (name, score) in enumerate(rows, start=1)
    )


def _to_line(text: str) -> bytes:
    return text.encode("utf-8") + b"\n"
