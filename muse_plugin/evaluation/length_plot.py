"""Draws BLEU by source length as a figure: a line for each system, and below it how many sentences there are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from muse_plugin.evaluation.scores import mean_and_deviation
from muse_plugin.results.figures import COLORS, GRID, MARKERS, open_figure

_BAR_COLOR = "#b8bec4"


class Curve(NamedTuple):
    """A line of the figure.

    Attributes:
        name: for the legend.
        scores: for each file of the system, the score of each bucket on 0-100, None where it is empty.
        intervals: for each file, the 95% interval of each bucket's score, None where it is empty; empty for none.
    """

    name: str
    scores: Sequence[Sequence[Optional[float]]]
    intervals: Sequence[Sequence[Optional[tuple[float, float]]]] = ()

    @property
    def label(self) -> str:
        """The name, and what error bars mean."""
        if len(self.scores) > 1:
            return f"{self.name} (mean ± sd of {len(self.scores)})"
        return f"{self.name} (95% interval)" if self.intervals else self.name

    def find_errors(self, x: int, mean: float, deviation: Optional[float]) -> tuple[float, float]:
        """How far the error bar of a bucket reaches below and above its point."""
        if len(self.scores) == 1 and self.intervals:
            low, high = self.intervals[0][x] or (mean, mean)
            return max(0.0, mean - low), max(0.0, high - mean)
        return deviation or 0.0, deviation or 0.0


def draw_length_plot(
    path: Path, labels: Sequence[str], counts: Sequence[int], curves: Sequence[Curve], unit: str, score_title: str
) -> None:
    """Draws the figure and writes it to a file.

    Several files of one system make one line, that of their mean, with error bars of one sample standard deviation. The
    error bars of a single file are the intervals, where there are any.

    Args:
        path: where to; the ending (png, pdf, svg) is the format.
        labels: of the buckets.
        counts: sentences in each bucket.
        curves: one or two systems.
        unit: what source lengths count, such as ``words``.
        score_title: name of the score.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the ending is unknown.
    """
    with open_figure(path, max(4.5, 1.2 + 0.65 * len(labels)), 3.8) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_curves(upper, curves, score_title)
        _draw_counts(lower, labels, counts, unit)
        figure.align_ylabels()


def _draw_curves(axes: Any, curves: Sequence[Curve], score_title: str) -> None:
    for i, curve in enumerate(curves):
        buckets = [(x, [file[x] for file in curve.scores]) for x in range(len(curve.scores[0]))]
        points = [(x, *mean_and_deviation(values)) for x, values in buckets if None not in values]
        has_bars = len(curve.scores) > 1 or len(curve.intervals) > 0
        shift = 0.06 * (2 * i - 1) if len(curves) > 1 and has_bars else 0.0  # keeps error bars apart
        errors = [curve.find_errors(*point) for point in points]
        axes.errorbar(
            [x + shift for x, _, _ in points],
            [mean for _, mean, _ in points],
            yerr=list(zip(*errors, strict=True)) if has_bars else None,
            label=curve.label,
            color=COLORS[i % len(COLORS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4.5,
            linewidth=1.6,
            capsize=3,
        )
    axes.set_ylabel(score_title)
    axes.grid(axis="y", **GRID)
    axes.set_axisbelow(True)
    axes.margins(y=0.15)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.tick_params(axis="x", length=0)
    axes.legend(frameon=False, loc="best")


def _draw_counts(axes: Any, labels: Sequence[str], counts: Sequence[int], unit: str) -> None:
    bars = axes.bar(range(len(counts)), counts, color=_BAR_COLOR, width=0.7)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=1, fontsize=8)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel(f"source length in {unit}")
    axes.set_ylabel("sentences")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.3)
