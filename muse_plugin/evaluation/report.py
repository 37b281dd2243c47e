"""Lays out what ``muse-plugin evaluate`` prints."""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from muse_plugin.evaluation.length_buckets import Bucket
from muse_plugin.evaluation.scores import ON_WORDS, TITLES
from muse_plugin.evaluation.sentence_bleu import LENGTH_TITLES, MEAN_SENTENCE_BLEU


def shorten_names(paths: Sequence[Path]) -> list[str]:
    """Returns the shortest ends of paths, in whole parts, that tell them apart; equal paths are numbered."""
    parts = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(words[-length:]) for words in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{i}: {path.name}" for i, path in enumerate(paths, start=1)]


def format_evaluation(result: dict[str, Any], lowercase: bool) -> str:
    """Returns the whole report but for the verdict.

    Args:
        result: what was found, in the form of the JSON.
        lowercase: whether case was ignored.
    """
    systems = [result, result["versus"]] if result["versus"] else [result]
    case = "ignored" if lowercase else "kept"
    blocks = [
        [f"{result['num_sentences']:,} sentences; subword marks removed: {result['subwords_removed']}; case {case}"]
    ]
    has_seeds = len(result["files"]) > 1
    for group in [[system] for system in systems] if has_seeds else [systems]:  # one table if no means are in it
        blocks += [_format_scores(group, has_seeds), _format_bleu_lines(group)]
    blocks.append([f"{_title(name)}: {score['signature']}" for name, score in result["scores"].items()])
    names = [file["file"] for system in systems for file in system["files"]]
    blocks += [_format_lengths(result["length_buckets"], names), _format_comparisons(result["significance"])]
    blocks.append([f"NOTE: {note}." for note in result["notes"]])
    return "\n\n".join("\n".join(lines).strip("\n") for lines in blocks if lines)


def _title(name: str) -> str:
    return TITLES.get(name, name.upper())


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns: the first at its left, all others at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("   ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def _format_scores(systems: Sequence[dict[str, Any]], has_seeds: bool) -> list[str]:
    """A row for each score, a column for each file, and mean and sample standard deviation over seeds."""
    files = [file["file"] for system in systems for file in system["files"]]
    rows = [["", *files, *(["mean ± sd"] if has_seeds else [])]]
    for name, score in systems[0]["scores"].items():
        values = [value for system in systems for value in system["scores"][name]["values"]]
        last = [f"{score['mean']:.2f} ± {score['sd']:.2f}"] if has_seeds else []
        rows.append([_title(name), *(f"{value:.2f}" for value in values), *last])
    return _format_table(rows)


def _format_bleu_lines(systems: Sequence[dict[str, Any]]) -> list[str]:
    """Tokenised BLEU as multi-bleu.perl prints it; where there are several lines, each with what it is of."""
    files = [file for system in systems for file in system["files"]]
    lines = []
    for kind in ON_WORDS:
        label = "" if kind == ON_WORDS[0] else "compounds split: "
        for file in files:
            if kind in file:
                lines.append((label if len(files) == 1 else f"{file['file']}: {label}") + file[kind]["line"])
    return lines


def _format_lengths(lengths: dict[str, Any] | None, names: Sequence[str]) -> list[str]:
    """A row for each range of source lengths that has sentences: how many, and the score of each file."""
    if lengths is None:
        return []
    rows = [[f"source {lengths['unit']}", "sentences", *names]]
    for bucket in filter(itemgetter("num_sentences"), lengths["buckets"]):
        scores = [f"{score:.2f}" for score in (*bucket["scores"], *bucket["versus_scores"])]
        if "intervals_95" in bucket:
            intervals = (*bucket["intervals_95"], *bucket["versus_intervals_95"])
            scores = [
                f"{score} ({low:.2f} to {high:.2f})" for score, (low, high) in zip(scores, intervals, strict=True)
            ]
        rows.append([Bucket(bucket["low"], bucket["high"], []).label, f"{bucket['num_sentences']:,}", *scores])
    kind = "as in the MUSE paper, Figure 7" if lengths["score"] == MEAN_SENTENCE_BLEU else "of all sentences together"
    return [f"{LENGTH_TITLES[lengths['score']]} by source length, {kind}", *_format_table(rows)]


def _format_comparisons(tested: dict[str, Any] | None) -> list[str]:
    """A row for each score: both systems with mean and 95% interval over resamples, their difference, the p-value."""
    if tested is None:
        return []
    method, num_resamples = tested["method"].replace("_", " "), f"{tested['num_resamples']:,} resamples"
    lines = [
        f"Paired test ({method}, {num_resamples}, seed {tested['seed']}): p is the probability of",
        "such a difference by chance; in brackets, mean and 95% interval over bootstrap resamples",
    ]
    for pair in tested["pairs"]:
        rows = [["", pair["file"], pair["versus"], "difference", "p"]]
        for name in filter(pair.__contains__, TITLES):
            test = pair[name]
            estimates = [test["system"], test["versus"]]
            difference = f"{estimates[0]['score'] - estimates[1]['score']:+.2f}"
            rows.append([TITLES[name], *map(_format_estimate, estimates), difference, f"{test['p_value']:.4f}"])
        lines += _format_table(rows)
    return lines


def _format_estimate(estimate: dict[str, Any]) -> str:
    low, high = estimate["interval_95"]
    return f"{estimate['score']:.2f} ({estimate['mean']:.2f} ± {(high - low) / 2:.2f})"
