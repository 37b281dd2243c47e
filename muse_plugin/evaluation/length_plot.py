"""Draws BLEU by source length as a figure: a line for each system, and below it how many sentences there are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muse_plugin.evaluation.length_buckets import Bucket
from muse_plugin.evaluation.sentence_bleu import LENGTH_TITLES
from muse_plugin.results.deviation import mean_and_deviation
from muse_plugin.results.figures import COLORS, MARKERS, as_written, open_figure

_BAR_COLOR = "#b8bec4"


def draw_length_plot(path: Path, lengths: dict[str, Any], names: Sequence[str]) -> None:
    """Draws the figure and writes it to a file.

    Several files of one system make one line, that of their mean, with error bars of one sample standard deviation. The
    error bars of a single file are the intervals, where there are any.

    Args:
        path: where to; the ending (png, pdf, svg) is the format.
        lengths: ``length_buckets`` of the JSON of ``muse-plugin evaluate``; scores are 0-100.
        names: of the systems, one or two.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the ending is unknown.
    """
    buckets = lengths["buckets"]
    with open_figure(path, max(4.5, 1.2 + 0.65 * len(buckets)), 3.8) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_curves(upper, buckets, names, LENGTH_TITLES[lengths["score"]])
        _draw_counts(lower, buckets, lengths["unit"])
        figure.align_ylabels()


def _draw_curves(axes: Any, buckets: Sequence[dict[str, Any]], names: Sequence[str], score_title: str) -> None:
    for i, (name, prefix) in enumerate(zip(names, ("", "versus_"), strict=False)):
        num_files = len(buckets[0][f"{prefix}scores"])
        meaning = ""  # of error bars
        if num_files > 1:
            meaning = f" (mean ± sd of {num_files})"
        elif f"{prefix}intervals_95" in buckets[0]:
            meaning = " (95% interval)"
        points = []  # place, mean, and how far the error bar reaches below and above
        for x, bucket in enumerate(buckets):
            if None not in bucket[f"{prefix}scores"]:
                mean, deviation = mean_and_deviation(bucket[f"{prefix}scores"])
                below = above = deviation or 0.0
                if meaning and deviation is None:
                    ((low, high),) = bucket[f"{prefix}intervals_95"]
                    below, above = max(0.0, mean - low), max(0.0, high - mean)
                points.append((x, mean, below, above))
        shift = 0.06 * (2 * i - 1) if len(names) > 1 and meaning else 0.0  # keeps error bars apart
        axes.errorbar(
            [x + shift for x, *_ in points],
            [mean for _, mean, *_ in points],
            yerr=list(zip(*(errors for _, _, *errors in points), strict=True)) if meaning else None,
            label=as_written(name) + meaning,
            color=COLORS[i % len(COLORS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4.5,
            linewidth=1.6,
            capsize=3,
        )
    axes.set_ylabel(score_title)
    axes.grid(axis="y")
    axes.margins(y=0.15)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.tick_params(axis="x", length=0)
    axes.legend(frameon=False, loc="best")


def _draw_counts(axes: Any, buckets: Sequence[dict[str, Any]], unit: str) -> None:
    counts = [bucket["num_sentences"] for bucket in buckets]
    bars = axes.bar(range(len(counts)), counts, color=_BAR_COLOR, width=0.7)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=1, fontsize=8)
    axes.set_xticks(range(len(buckets)), [Bucket(bucket["low"], bucket["high"], []).label for bucket in buckets])
    axes.set_xlabel(f"source length in {unit}")
    axes.set_ylabel("sentences")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.3)
