"""Lays out what ``muse-plugin evaluate`` prints."""

from collections.abc import Sequence
from pathlib import Path

from muse_plugin.evaluation.bleu import format_bleu
from muse_plugin.evaluation.evaluation_result import Evaluation
from muse_plugin.evaluation.scores import ON_WORDS, TITLES, mean_and_deviation
from muse_plugin.evaluation.significance import Estimate


def shorten_names(paths: Sequence[Path]) -> list[str]:
    """Returns the shortest ends of paths, in whole parts, that tell them apart; equal paths are numbered."""
    parts = [path.absolute().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(words[-length:]) for words in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{i}: {path.name}" for i, path in enumerate(paths, start=1)]


def format_evaluation(result: Evaluation, lowercase: bool) -> str:
    """Returns the whole report but for the verdict.

    Args:
        result: what was found.
        lowercase: whether case was ignored.
    """
    size = f"{len(result.texts.references):,} sentences"
    case = "ignored" if lowercase else "counts"
    blocks = [[f"{size}; subword marks removed: {result.texts.subword_kind}; case {case}"]]
    has_seeds = result.num_own > 1
    for files in result.systems if has_seeds else [range(len(result.files))]:  # one table if no means are in it
        blocks += [_format_scores(result, files, has_seeds), _format_bleu_lines(result, files)]
    blocks.append([f"{_title(name)}: {signature}" for name, signature in result.signatures.items()])
    blocks += [_format_lengths(result), _format_comparisons(result)]
    blocks.append([f"NOTE: {note}." for note in result.texts.notes])
    return "\n\n".join("\n".join(lines).strip("\n") for lines in blocks if lines)


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns: the first at its left, all others at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("   ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def _format_scores(result: Evaluation, files: Sequence[int], has_seeds: bool) -> list[str]:
    """A row for each score, a column for each file, and mean and sample standard deviation over seeds."""
    rows = [["", *(result.files[i] for i in files), *(["mean ± sd"] if has_seeds else [])]]
    for name in result.signatures:
        values = [result.numbers(i)[name] for i in files]
        mean, deviation = mean_and_deviation(values)
        last = [f"{mean:.2f} ± {deviation:.2f}"] if has_seeds else []
        rows.append([_title(name), *(f"{value:.2f}" for value in values), *last])
    return _format_table(rows)


def _format_bleu_lines(result: Evaluation, files: Sequence[int]) -> list[str]:
    """Tokenised BLEU as multi-bleu.perl prints it; where there are several lines, each with what it is of."""
    lines = []
    for kind in ON_WORDS:
        for i in files:
            if kind not in result.scores[i]:
                continue
            label = "" if kind == ON_WORDS[0] else "compounds split: "
            label = label if len(files) == 1 else f"{result.files[i]}: {label}"
            lines.append(label + format_bleu(result.scores[i][kind]))
    return lines


def _format_lengths(result: Evaluation) -> list[str]:
    """A row for each range of source lengths: its sentences, and the score of each file."""
    lengths = result.lengths
    if lengths is None:
        return []
    rows = [[f"source {lengths.unit}", "sentences", *result.files]]
    for i, bucket in enumerate(lengths.buckets):
        cells = ["-" if (score := file[i]) is None else f"{score:.2f}" for file in lengths.scores]
        rows.append([bucket.label, f"{len(bucket.members):,}", *cells])
    return [f"{TITLES[lengths.measure]} by source length", *_format_table(rows)]


def _format_comparisons(result: Evaluation) -> list[str]:
    """A row for each score: both systems with mean and 95% interval over resamples, their difference, the p-value."""
    if result.test is None:
        return []
    method, num_resamples, seed = result.test
    lines = [
        f"Paired test ({method.replace('_', ' ')}, {num_resamples:,} resamples, seed {seed}): p is the probability of",
        "such a difference by chance; in brackets, mean and 95% interval over bootstrap resamples",
    ]
    for (i, j), comparisons in zip(result.pairs, result.comparisons, strict=True):
        rows = [["", result.files[i], result.files[j], "difference", "p"]]
        for name, tested in comparisons.items():
            difference = f"{tested.system.score - tested.versus.score:+.2f}"
            cells = [_format_estimate(tested.system), _format_estimate(tested.versus)]
            rows.append([TITLES[name], *cells, difference, f"{tested.p_value:.4f}"])
        lines += _format_table(rows)
    return lines


def _format_estimate(estimate: Estimate) -> str:
    return f"{estimate.score:.2f} ({estimate.mean:.2f} ± {estimate.half_width:.2f})"
