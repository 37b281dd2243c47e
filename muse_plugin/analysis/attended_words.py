"""The words that the heads of a pooling look at most, class by class (arXiv:1912.00835, Table 6)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from muse_plugin.analysis.drawing import label_words, name_by_model
from muse_plugin.analysis.pooled_attention import ClassMeans
from muse_plugin.analysis.result import Result, unique
from muse_plugin.results.figures import COLORS, GRID, open_figure

WEIGHT, RATIO = "weight", "ratio"
AXIS_LABELS = {
    WEIGHT: "weight of the word in a document (0 to 1)",
    RATIO: "weight of the word relative to equal weights (1: equal)",
}
# How the two are defined, for the reader of the report.
DEFINITION = (
    "Weight: what a word is given in a document, the sum over its places of the mean over heads (the weights of a "
    "document's words have a sum of 1; long documents have small ones). Ratio: that divided by the word's share of the "
    "document's words, 1 if all words are given the same."
)
_COLUMNS = 4
_PANEL_WIDTH = 2.5  # inches
_BAR_HEIGHT = 0.17
_LONGEST_CLASS = 22  # characters


class AttendedRow(NamedTuple):
    """A word that is among the first of a class; ``weight`` and ``ratio`` are means over the documents with it.

    ``documents`` of the class have the word, ``occurrences`` times in all. For weight and ratio see ``Uses``.
    """

    model: str
    label: str
    rank: int
    word: str
    weight: float
    ratio: float
    documents: int
    occurrences: int


class ClassRow(NamedTuple):
    """How many documents of a class were read; each text of a pair is one."""

    model: str
    label: str
    documents: int


def rank_words(
    name: str,
    classes: Sequence[str],
    means: ClassMeans,
    dictionary: Any,
    count: int,
    min_documents: int,
    measure: str = WEIGHT,
) -> list[AttendedRow]:
    """The words of each class with the largest mean; signs that are no words, such as that for unknown ones, are none.

    Args:
        name: of the model.
        classes: their names.
        means: of words by class.
        dictionary: of the words.
        count: most words of a class.
        min_documents: of a class that a word must occur in.
        measure: "weight" or "ratio", what words are ranked by; of equal ones the first of the dictionary comes first.

    Returns:
        Rows by class and rank; none for a class without such a word.
    """
    values = getattr(means, measure + "s").masked_fill(~_find_frequent(means, dictionary, min_documents), -math.inf)
    rows = []
    for number, label in enumerate(classes):
        order = values[number].argsort(descending=True, stable=True)[:count].tolist()
        for rank, word in enumerate((word for word in order if values[number, word] > -math.inf), start=1):
            found = (float(table[number, word]) for table in (means.weights, means.ratios))
            counts = (int(table[number, word]) for table in (means.documents, means.counts))
            rows.append(AttendedRow(name, label, rank, dictionary[word], *found, *counts))  # type: ignore[arg-type]
    return rows


def choose_words(
    means: ClassMeans, dictionary: Any, count: int, min_documents: int, measure: str = WEIGHT
) -> list[int]:
    """The words whose mean differs most between classes: the largest minus the smallest.

    A class counts for a word if ``min_documents`` of its documents have the word. Words of one such class differ by
    nothing and come last, the largest mean first.

    Args:
        means: of words by class.
        dictionary: of the words.
        count: most words.
        min_documents: see above.
        measure: "weight" or "ratio".

    Returns:
        Their ids; none if no word is that frequent.
    """
    frequent = _find_frequent(means, dictionary, min_documents)
    values: Tensor = getattr(means, measure + "s")
    largest = values.masked_fill(~frequent, -math.inf).amax(dim=0)
    differences = largest - values.masked_fill(~frequent, math.inf).amin(dim=0)
    candidates = frequent.any(dim=0).nonzero().flatten().tolist()
    order = sorted(candidates, key=lambda word: (-float(differences[word]), -float(largest[word])))
    return order[:count]


def _find_frequent(means: ClassMeans, dictionary: Any, min_documents: int) -> Tensor:
    words = torch.arange(means.documents.shape[1]) >= dictionary.nspecial
    frequent: Tensor = (means.documents >= min_documents) & words
    return frequent


def make_results(
    rows: Sequence[AttendedRow], sizes: Sequence[ClassRow], min_documents: int, measure: str = WEIGHT
) -> list[Result]:
    """Rows to results, one for each model.

    Args:
        rows: of ``rank_words``.
        sizes: of all classes, those without words, too.
        min_documents: see ``rank_words``.
        measure: likewise.
    """
    models, results = unique([row.model for row in rows]), []
    for model in models:
        own = [row for row in rows if row.model == model]
        classes = [row for row in sizes if row.model == model]
        results.append(
            Result(
                *name_by_model("attended_words", "Words that the pooling looks at, by class", model, models),
                f"The words with the largest mean {measure} over the documents of a class (by their true label) that "
                f"have the word, at least {min_documents}. {DEFINITION}",
                own,
                lambda path, own=own, classes=classes: draw(own, classes, path, measure),  # type: ignore[misc]
            )
        )
    return results


def draw(rows: Sequence[AttendedRow], sizes: Sequence[ClassRow], path: Path, measure: str = WEIGHT) -> None:
    """Draws a panel for each class, a bar for each word, the first on top."""
    columns = min(_COLUMNS, len(sizes))
    lines = math.ceil(len(sizes) / columns)
    most = max(row.rank for row in rows)
    start = 1 if measure == RATIO else 0
    size = 0.3 + _PANEL_WIDTH * columns, 0.3 + lines * (0.75 + _BAR_HEIGHT * most)
    with open_figure(path, *size, "--output") as figure:
        panels = list(figure.subplots(lines, columns, squeeze=False, sharex=True).flat)
        for number, (axes, part) in enumerate(zip(panels, sizes, strict=False)):
            own = [row for row in rows if row.label == part.label]
            lengths = [getattr(row, measure) - start for row in own]
            axes.barh([row.rank for row in own], lengths, left=start, color=COLORS[0], height=0.75)
            axes.set_yticks([row.rank for row in own], label_words([row.word for row in own]))
            axes.set_ylim(most + 0.6, 0.4)
            axes.tick_params(axis="y", length=0)
            axes.tick_params(axis="x", labelbottom=True)
            axes.xaxis.get_major_locator().set_params(nbins=3)
            axes.set_title(title_class(part.label, part.documents), fontsize=9)
            axes.grid(axis="x", **GRID)
            axes.set_axisbelow(True)
            if number % columns == 0:
                axes.set_ylabel("word")
            if own:
                axes.axvline(start, color="black", lw=0.8)
            else:
                axes.text(0.5, 0.5, "no word is frequent enough", transform=axes.transAxes, ha="center", fontsize=8)
        for axes in panels[len(sizes) :]:
            axes.set_axis_off()
        figure.supxlabel("mean " + AXIS_LABELS[measure], fontsize=9)


def title_class(label: str, documents: Optional[int] = None) -> str:
    """The name of a class and how many documents it has, as a title or label: in few characters, no formula."""
    cut = label if len(label) <= _LONGEST_CLASS else label[: _LONGEST_CLASS - 1] + "…"
    number = "" if documents is None else f" ({documents:,} document{'' if documents == 1 else 's'})"
    return cut.replace("$", r"\$") + number
