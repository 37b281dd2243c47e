"""How much chosen words are looked at, class by class: distributions over documents (arXiv:1912.00835, Figure 4)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from muse_plugin.analysis.attended_words import AXIS_LABELS, DEFINITION, RATIO, WEIGHT, ClassRow, title_class
from muse_plugin.analysis.drawing import label_words, name_by_model
from muse_plugin.analysis.pooled_attention import Uses
from muse_plugin.analysis.result import Result, unique
from muse_plugin.results.figures import COLORS, GRID, open_figure

_COLUMNS = 3
_PANEL_WIDTH = 3.1  # inches
_CLASS_HEIGHT = 0.27
_SPREAD = 0.26  # of the points of a class, to either side
_FEWEST = 5  # documents that a box is drawn for
_BOX_HEIGHT = 0.62
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class WordWeightRow(NamedTuple):
    """What a word is given in one document: its weight and ratio there, see ``Uses``.

    ``document`` is its number in the split, from 1; ``text`` is 2 for the second text of a pair, otherwise 1.
    """

    model: str
    word: str
    label: str
    document: int
    text: int
    occurrences: int
    weight: float
    ratio: float


def read_word_weights(
    name: str, classes: Sequence[str], uses: Uses, dictionary: Any, words: Sequence[int]
) -> list[WordWeightRow]:
    """Uses to rows.

    Args:
        name: of the model.
        classes: their names.
        uses: of words in documents.
        dictionary: of the words.
        words: ids of those that are wanted.

    Returns:
        Rows in the order of words, classes and documents.
    """
    rows = []
    for word in words:
        found = (uses.words == word).nonzero().flatten()
        table = [part[found].tolist() for part in uses[1:]]
        for label, document, text, count, weight, ratio in sorted(zip(*table, strict=True)):
            rows.append(WordWeightRow(name, dictionary[word], classes[label], document + 1, text, count, weight, ratio))
    return rows


def make_results(rows: Sequence[WordWeightRow], sizes: Sequence[ClassRow], measure: str = WEIGHT) -> list[Result]:
    """Rows to results, one for each model.

    Args:
        rows: of ``read_word_weights``.
        sizes: of all classes.
        measure: "weight" or "ratio", what is drawn.
    """
    models, results = unique([row.model for row in rows]), []
    for model in models:
        own = [row for row in rows if row.model == model]
        classes = [row.label for row in sizes if row.model == model]
        results.append(
            Result(
                *name_by_model("word_weights", "Attention to chosen words, by class", model, models),
                f"The {measure} of chosen words in each document that has them, by its true label: a point for a "
                f"document; boxes, of classes with at least {_FEWEST}, have the quartiles, with the median as a line, "
                f"and whiskers from the 5th to the 95th percentile. {DEFINITION}",
                own,
                lambda path, own=own, classes=classes: draw(own, classes, path, measure),  # type: ignore[misc]
            )
        )
    return results


def draw(rows: Sequence[WordWeightRow], classes: Sequence[str], path: Path, measure: str = WEIGHT) -> None:
    """Draws a panel for each word, a line of points and a box for each class."""
    words = unique([row.word for row in rows])
    columns = min(_COLUMNS, len(words))
    lines = math.ceil(len(words) / columns)
    size = 1.2 + _PANEL_WIDTH * columns, 0.3 + lines * (0.75 + _CLASS_HEIGHT * len(classes))
    with open_figure(path, *size, "--output") as figure:
        panels = list(figure.subplots(lines, columns, squeeze=False, sharey=True).flat)
        for number, (axes, word) in enumerate(zip(panels, words, strict=False)):
            for place, label in enumerate(classes):
                values = [getattr(row, measure) for row in rows if (row.word, row.label) == (word, label)]
                axes.scatter(values, place + _spread(len(values)), s=5, color=COLORS[0], alpha=0.45, linewidths=0)
                if len(values) >= _FEWEST:
                    _draw_box(axes, values, place)
            axes.set_title(label_words([word])[0], fontsize=9)
            axes.set_yticks(range(len(classes)), [title_class(label) for label in classes])
            axes.set_ylim(len(classes) - 0.5, -0.5)
            if measure == RATIO:
                axes.axvline(1, color="black", lw=0.8, ls=":")
            else:
                axes.set_xlim(left=0)
            axes.grid(axis="x", **GRID)
            axes.set_axisbelow(True)
            if number % columns == 0:
                axes.set_ylabel("class")
        for axes in panels[len(words) :]:
            axes.set_axis_off()
        figure.supxlabel(AXIS_LABELS[measure], fontsize=9)


def _spread(count: int) -> np.ndarray:
    """Offsets across the line that keep points apart, the same whenever they are drawn."""
    golden = (math.sqrt(5) - 1) / 2
    return ((np.arange(count) * golden) % 1 - 0.5) * 2 * _SPREAD


def _draw_box(axes: Any, values: Sequence[float], place: int) -> None:
    low, first, median, third, high = np.quantile(values, _QUANTILES)
    axes.plot([low, first], [place, place], color="black", lw=0.9)
    axes.plot([third, high], [place, place], color="black", lw=0.9)
    axes.barh(place, third - first, left=first, height=_BOX_HEIGHT, facecolor="none", edgecolor="black", lw=0.9)
    half = _BOX_HEIGHT / 2
    axes.plot([median, median], [place - half, place + half], color=COLORS[1], lw=1.8)
