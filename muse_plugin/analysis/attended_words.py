"""The words that the heads of a pooling look at, class by class (arXiv:1912.00835).

Those that are looked at most (Table 6), and for chosen ones the distributions over documents (Figure 4).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import torch
from torch import Tensor

from muse_plugin.analysis.drawing import label, label_words, open_grid
from muse_plugin.analysis.result import Result, group, make_results_by_model
from muse_plugin.modules.padding_mask import mask_padding
from muse_plugin.results.figures import COLORS
from muse_plugin_command.flags.analyze import MIN_DOCUMENTS, TOP_WORDS

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
_CHOSEN_WORDS = 6  # whose distributions are shown where --words names none
_LONGEST_CLASS = 22  # characters
_SPREAD = 0.26  # of the points of a class, to either side
_FEWEST = 5  # documents that a box is drawn for
_BOX_HEIGHT = 0.62
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class WordSettings(NamedTuple):
    """What is shown of words.

    Attributes:
        chosen: words whose distributions are shown; None for those whose mean differs most between classes.
        top: most words shown of a class.
        min_documents: of a class that a word must occur in, so that its mean counts.
        measure: "weight" or "ratio", what words are ranked by, see ``Uses``.
    """

    chosen: Optional[Sequence[str]] = None
    top: int = TOP_WORDS
    min_documents: int = MIN_DOCUMENTS
    measure: str = WEIGHT


class Uses(NamedTuple):
    """What words are given in documents: one entry for each word of each document; tensors of shape (N,).

    Attributes:
        words: id of the word, int64.
        labels: number of the document's class, int64.
        documents: place of the document in the split, int64.
        texts: 1, or 2 for the second text of a pair, int64; each text is a document of its own.
        counts: how often the word occurs in the document, int64.
        weights: what it is given there: the sum over its places of the mean over heads, float64.
        ratios: ``weights`` divided by what equal weights would give it, that is its share of the document's words.
    """

    words: Tensor
    labels: Tensor
    documents: Tensor
    texts: Tensor
    counts: Tensor
    weights: Tensor
    ratios: Tensor


def sum_by_word(tokens: Tensor, lengths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Adds the weights of a batch up by word.

    Args:
        tokens: ids, shape (B, T), padding on the right.
        lengths: number of words, shape (B,).
        weights: of heads, shape (B, m, T).

    Returns:
        Row in the batch, and ``words``, ``counts``, ``weights`` and ``ratios`` of ``Uses``, by row and id.
    """
    real = ~mask_padding(lengths, tokens.shape[1])
    rows = real.nonzero()[:, 0]
    size = int(tokens.max()) + 1
    keys, places, counts = torch.unique(rows * size + tokens[real], return_inverse=True, return_counts=True)
    given = weights.double().mean(dim=1)[real]
    sums = torch.zeros(len(keys), dtype=torch.float64, device=given.device).index_add_(0, places, given)
    rows = keys // size
    return rows, keys % size, counts, sums, sums * lengths[rows] / counts


class ClassMeans(NamedTuple):
    """What each word is given in each class; tensors of shape (classes, words).

    Attributes:
        weights: ``Uses.weights``, mean over the documents of the class with the word; NaN where there are none.
        ratios: ``Uses.ratios``, the same.
        documents: how many these documents are.
        counts: how often the word occurs in them.
    """

    weights: Tensor
    ratios: Tensor
    documents: Tensor
    counts: Tensor


def average_by_class(uses: Uses, classes: int, words: int) -> ClassMeans:
    """Means over documents.

    Args:
        uses: of words.
        classes: number of classes.
        words: number of ids.
    """
    places = uses.labels * words + uses.words

    def add_up(values: Tensor) -> Tensor:
        sums = torch.zeros(classes * words, dtype=values.dtype).index_add_(0, places, values)
        return sums.view(classes, words)

    documents = add_up(torch.ones_like(uses.words))
    return ClassMeans(add_up(uses.weights) / documents, add_up(uses.ratios) / documents, documents, add_up(uses.counts))


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


def check_words(words: Sequence[str], dictionary: Any) -> None:
    """Raises ValueError if chosen words are unknown to a dictionary; None for a model without one."""
    unknown = [word for word in words if dictionary is None or word not in dictionary]
    if unknown:
        raise ValueError(
            f"--words must be words of the model's dictionary, but it lacks {', '.join(map(repr, unknown))}; name "
            "others, written as in the prepared data."
        )


def read_words(
    name: str, dictionary: Any, uses: Optional[Uses], sizes: dict[str, int], settings: WordSettings
) -> Union[dict[str, list[Any]], str]:
    """The tables about words; or why there are none.

    Args:
        name: of the model.
        dictionary: of the words.
        uses: of words in the documents; None if these have no classes.
        sizes: documents read of each class, by its name.
        settings: what is shown.

    Raises:
        ValueError: if a chosen word occurs in no document.
    """
    if uses is None:
        return "the model predicts no classes to tell words apart by"
    classes, total = list(sizes), sum(sizes.values())
    means = average_by_class(uses, len(classes), len(dictionary))
    words = [dictionary.index(word) for word in dict.fromkeys(settings.chosen or ())]
    lacking = [dictionary[word] for word in words if not means.documents[:, word].any()]
    if lacking:
        raise ValueError(
            f"--words must occur in what is read, but no document has "
            f"{', '.join(map(repr, lacking))} (documents read: {total}); raise --sentences, or name others."
        )
    ranked = rank_words(name, classes, means, dictionary, settings)
    if not ranked:
        return (
            f"no word occurs in {settings.min_documents} documents of one class among the {total} that were read (a "
            "smaller --min-documents or more --sentences may help)"
        )
    if settings.chosen is None:
        words = choose_words(means, dictionary, settings)
    return {
        "attended": ranked,
        "word_weights": read_word_weights(name, classes, uses, dictionary, words),
        "classes": [ClassRow(name, *size) for size in sizes.items()],
    }


def rank_words(
    name: str, classes: Sequence[str], means: ClassMeans, dictionary: Any, settings: WordSettings
) -> list[AttendedRow]:
    """The words of each class with the largest mean; signs that are no words, such as that for unknown ones, are none.

    Of words with equal means, the first of the dictionary comes first.
    """
    values = getattr(means, settings.measure + "s").masked_fill(~_find_frequent(means, dictionary, settings), -math.inf)
    rows = []
    for number, name_of_class in enumerate(classes):
        order = values[number].argsort(descending=True, stable=True)[: settings.top].tolist()
        for rank, word in enumerate((word for word in order if values[number, word] > -math.inf), start=1):
            found = (table[number, word].item() for table in means)
            rows.append(AttendedRow(name, name_of_class, rank, dictionary[word], *found))
    return rows


def choose_words(means: ClassMeans, dictionary: Any, settings: WordSettings, count: int = _CHOSEN_WORDS) -> list[int]:
    """The ``count`` words whose mean differs most between classes: the largest minus the smallest.

    A class counts for a word if ``min_documents`` of its documents have the word. Words of one such class differ by
    nothing and come last, the largest mean first.
    """
    frequent = _find_frequent(means, dictionary, settings)
    values: Tensor = getattr(means, settings.measure + "s")
    largest = values.masked_fill(~frequent, -math.inf).amax(dim=0)
    differences = largest - values.masked_fill(~frequent, math.inf).amin(dim=0)
    candidates = frequent.any(dim=0).nonzero().flatten().tolist()
    order = sorted(candidates, key=lambda word: (-float(differences[word]), -float(largest[word])))
    return order[:count]


def _find_frequent(means: ClassMeans, dictionary: Any, settings: WordSettings) -> Tensor:
    words = torch.arange(means.documents.shape[1]) >= dictionary.nspecial
    return (means.documents >= settings.min_documents) & words


def read_word_weights(
    name: str, classes: Sequence[str], uses: Uses, dictionary: Any, words: Sequence[int]
) -> list[WordWeightRow]:
    """Uses of the words with the ids ``words`` to rows, in the order of words, classes and documents."""
    rows = []
    for word in words:
        found = (uses.words == word).nonzero().flatten()
        table = [part[found].tolist() for part in uses[1:]]
        for place, document, *rest in sorted(zip(*table, strict=True)):
            rows.append(WordWeightRow(name, dictionary[word], classes[place], document + 1, *rest))
    return rows


def make_results(
    ranked: Sequence[AttendedRow],
    weights: Sequence[WordWeightRow],
    sizes: Sequence[ClassRow],
    settings: WordSettings,
) -> list[Result]:
    """Rows to results, of each kind one for each model.

    Args:
        ranked: of ``rank_words``.
        weights: of ``read_word_weights``.
        sizes: of all classes, those without words, too.
        settings: of the measure, which is also what is drawn, and ``min_documents``.
    """
    classes, measure = group(sizes, "model"), settings.measure
    about_ranks = (
        f"The words with the largest mean {measure} over the documents of a class (by their true label) that have the "
        f"word, at least {settings.min_documents}. {DEFINITION}"
    )
    about_weights = (
        f"The {measure} of chosen words in each document that has them, by its true label: a point for a document; "
        f"boxes, of classes with at least {_FEWEST}, have the quartiles, with the median as a line, and whiskers from "
        f"the 5th to the 95th percentile. {DEFINITION}"
    )
    return [
        *make_results_by_model(
            "attended_words",
            "Words that the pooling looks at, by class",
            lambda rows: about_ranks,
            ranked,
            lambda rows, path: draw_ranks(rows, classes[rows[0].model], path, measure),
        ),
        *make_results_by_model(
            "word_weights",
            "Attention to chosen words, by class",
            lambda rows: about_weights,
            weights,
            lambda rows, path: draw_weights(rows, [part.label for part in classes[rows[0].model]], path, measure),
        ),
    ]


def draw_ranks(rows: Sequence[AttendedRow], sizes: Sequence[ClassRow], path: Path, measure: str) -> None:
    """Draws a panel for each class, a bar for each word, the first on top."""
    most = max(row.rank for row in rows)
    start = 1 if measure == RATIO else 0
    with open_grid(path, len(sizes), 4, 2.5, 0.75 + 0.17 * most, 0.3, sharex=True) as (figure, panels, leftmost):
        for axes, part in zip(panels, sizes, strict=True):
            own = [row for row in rows if row.label == part.label]
            ranks = [row.rank for row in own]
            axes.barh(ranks, [getattr(row, measure) - start for row in own], left=start, color=COLORS[0], height=0.75)
            axes.set_yticks(ranks, label_words([row.word for row in own]))
            axes.set_ylim(most + 0.6, 0.4)
            axes.tick_params(axis="y", length=0)
            axes.tick_params(axis="x", labelbottom=True)
            axes.xaxis.get_major_locator().set_params(nbins=3)
            _finish(axes, title_class(part.label, part.documents))
            if own:
                axes.axvline(start, color="black", lw=0.8)
            else:
                axes.text(0.5, 0.5, "no word is frequent enough", transform=axes.transAxes, ha="center", fontsize=8)
        for axes in leftmost:
            label(axes, y="word")
        figure.supxlabel("mean " + AXIS_LABELS[measure], fontsize=9)


def draw_weights(rows: Sequence[WordWeightRow], classes: Sequence[str], path: Path, measure: str) -> None:
    """Draws a panel for each word, a line of points and a box for each class."""
    words = group(rows, "word")
    height = 0.75 + 0.27 * len(classes)
    with open_grid(path, len(words), 3, 3.1, height, 1.2, sharey=True) as (figure, panels, leftmost):
        for axes, (word, own) in zip(panels, words.items(), strict=True):
            for place, name in enumerate(classes):
                values = [getattr(row, measure) for row in own if row.label == name]
                axes.scatter(values, place + _spread(len(values)), s=5, color=COLORS[0], alpha=0.45, linewidths=0)
                if len(values) >= _FEWEST:
                    _draw_box(axes, values, place)
            axes.set_yticks(range(len(classes)), [title_class(name) for name in classes])
            axes.set_ylim(len(classes) - 0.5, -0.5)
            if measure == RATIO:
                axes.axvline(1, color="black", lw=0.8, ls=":")
            else:
                axes.set_xlim(left=0)
            _finish(axes, label_words([word])[0])
        for axes in leftmost:
            label(axes, y="class")
        figure.supxlabel(AXIS_LABELS[measure], fontsize=9)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=9)
    label(axes, grid="x")


def title_class(name: str, documents: Optional[int] = None) -> str:
    """The name of a class and how many documents it has, as a title or label: in few characters, no formula."""
    number = "" if documents is None else f" ({documents:,} document{'' if documents == 1 else 's'})"
    return label_words([name], _LONGEST_CLASS)[0] + number


def _spread(count: int) -> np.ndarray:
    """Offsets across the line that keep points apart, the same whenever they are drawn."""
    golden = (math.sqrt(5) - 1) / 2
    return ((np.arange(count) * golden) % 1 - 0.5) * 2 * _SPREAD


def _draw_box(axes: Any, values: Sequence[float], place: int) -> None:
    low, first, median, third, high = np.quantile(values, _QUANTILES)
    half = _BOX_HEIGHT / 2
    for start, end in ((low, first), (third, high)):
        axes.plot([start, end], [place, place], color="black", lw=0.9)
    axes.barh(place, third - first, left=first, height=_BOX_HEIGHT, facecolor="none", edgecolor="black", lw=0.9)
    axes.plot([median, median], [place - half, place + half], color=COLORS[1], lw=1.8)
