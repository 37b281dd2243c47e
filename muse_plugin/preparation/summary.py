"""The report of ``prepare-text``: what is in the data, in a few lines."""

from collections.abc import Mapping, Sequence

from muse_plugin.preparation.split_files import Counts
from muse_plugin.preparation.vocabulary import Share

_MOST_LABELS = 20


def describe_splits(counts: Mapping[str, Counts], unknown: Mapping[str, Share], pair: bool) -> list[str]:
    """Says how large each split is.

    Args:
        counts: of each split.
        unknown: for each split the share of words outside the vocabulary.
        pair: whether a sentence is a pair of texts; lengths are those of single texts.
    """
    kind = "pairs" if pair else "sentences"
    return [
        f"{name}: {count.sentences:,} {kind}, {count.running:,} words ({count.running / count.texts:.1f} in a text on "
        f"average, {count.longest:,} at most), {unknown[name].running:.2%} unknown"
        for name, count in counts.items()
    ]


def describe_labels(counts: Mapping[str, int], tags: bool) -> str:
    """Lists labels, in the order of their classes, with how often the training split has them."""
    listed = [f"{label} {count:,}" for label, count in list(counts.items())[:_MOST_LABELS]]
    if len(counts) > len(listed):
        listed.append(f"and {len(counts) - len(listed)} more")
    return f"{len(counts)} {'tags' if tags else 'labels'} in train: {', '.join(listed)}"


def describe_numbers(values: Sequence[float]) -> str:
    """Says which numbers the training split has; there is at least one."""
    mean = sum(values) / len(values)
    return f"numbers in train: from {min(values):g} to {max(values):g}, {mean:.4g} on average"


def describe_coverage(
    seen: Mapping[str, Share], there: Mapping[str, Share], kept: int, vocabulary: int, width: int
) -> list[str]:
    """Says how many words reach a model with a pretrained vector, and how many others have one in vain.

    Args:
        seen: for each split the share of its words that are in the vocabulary and have one.
        there: for each split the share of its words that have one, in the vocabulary or not.
        kept: vectors of words in the vocabulary.
        vocabulary: words in the vocabulary.
        width: numbers in a vector.
    """
    lines = [f"word vectors of width {width} for {kept:,} of the {vocabulary:,} words of the vocabulary"]
    for name, share in seen.items():
        line = f"  {name}: {share.distinct:.2%} of the different words, {share.running:.2%} of all words have a vector"
        lost = there[name].running - share.running
        if lost > 0:
            line += f"; {lost:.2%} have one but are unknown: not in the vocabulary"
        lines.append(line)
    if any(there[name] != share for name, share in seen.items()):
        lines.append("  --vocabulary-from all makes the words of other splits known too; freeze the vectors then")
    return lines
