"""The tables about a pooling with heads, for ``muse-plugin analyze model``: which there are, and from which flags."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from muse_plugin.analysis import attended_words, head_similarity, shaded_document, word_weights
from muse_plugin.analysis.pooled_attention import (
    Pooled,
    average_by_class,
    list_classes,
    read_document_heads,
    read_pooling,
)
from muse_plugin.analysis.result import Result, unique
from muse_plugin.analysis.subject import Batches, Subject, name_words
from muse_plugin_command.flags.analyze import MIN_DOCUMENTS, TOP_WORDS

TABLES = ("attended", "word_weights", "classes", "shaded", "similarity")
_CHOSEN_WORDS = 6  # whose distributions are shown where --words names none


class WordSettings(NamedTuple):
    """What is shown of words.

    Attributes:
        chosen: words whose distributions are shown; None for those whose mean differs most between classes.
        top: most words shown of a class.
        min_documents: of a class that a word must occur in, so that its mean counts.
        measure: "weight" or "ratio", what words are ranked by, see ``Uses`` in ``pooled_attention.py``.
    """

    chosen: Optional[Sequence[str]] = None
    top: int = TOP_WORDS
    min_documents: int = MIN_DOCUMENTS
    measure: str = attended_words.WEIGHT

    @classmethod
    def from_flags(cls, args: argparse.Namespace) -> "WordSettings":
        """Settings from the flags about words."""
        return cls(args.words, args.top_words, args.min_documents, args.word_measure)


def read_tables(
    subject: Subject,
    wanted: Sequence[str],
    chosen: Sequence[int],
    place: Optional[int],
    max_tokens: int,
    settings: WordSettings,
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Lets a model whose pooling has heads read documents.

    Args:
        subject: the model and its data.
        wanted: names of analyses, of which "words" and "pooling" count here.
        chosen: places of the documents that are read.
        place: of the document that is shown; needed for "pooling".
        max_tokens: of a batch, padding included.
        settings: what is shown of words.

    Returns:
        Rows of tables out of ``TABLES``, and why an analysis has nothing to show, by its name.

    Raises:
        ValueError: if a chosen word is unknown, or does not occur in what is read.
    """
    tables: dict[str, list[Any]] = {}
    reasons: dict[str, str] = {}
    _check_words(subject, settings)
    pooled = read_pooling(subject, chosen, max_tokens, subject.name)
    if place is not None and "pooling" in wanted:
        (inputs,) = Batches(subject, [place])
        found = read_document_heads(subject, place, inputs)
        words, _ = name_words(subject, inputs)
        tables["shaded"] = shaded_document.read_document(subject.name, found.weights, words, place + 1, *found[1:])
        tables["similarity"] = head_similarity.read_similarity(subject.name, pooled.similarity)
    if "words" in wanted:
        ranked, reason = _rank(subject, pooled, settings)
        if reason is None:
            tables.update(ranked)
        else:
            reasons["words"] = reason
    return tables, reasons


def _check_words(subject: Subject, settings: WordSettings) -> None:
    dictionary = subject.task.source_dictionary
    unknown = [word for word in settings.chosen or () if dictionary is None or word not in dictionary]
    if unknown:
        raise ValueError(
            f"--words must be words of the model's dictionary, but it lacks {', '.join(map(repr, unknown))}; name "
            "others, written as in the prepared data."
        )


def _rank(subject: Subject, pooled: Pooled, settings: WordSettings) -> tuple[dict[str, list[Any]], Optional[str]]:
    """The tables about words; or none, and why."""
    name, classes, dictionary = subject.name, list_classes(subject), subject.task.source_dictionary
    if pooled.uses is None:
        return {}, "the model predicts no classes to tell words apart by"
    means = average_by_class(pooled.uses, len(classes), len(dictionary))
    kept = settings.min_documents, settings.measure
    total = sum(pooled.class_sizes)
    chosen = None if settings.chosen is None else unique([dictionary.index(word) for word in settings.chosen])
    lacking = [dictionary[word] for word in chosen or () if not means.documents[:, word].any()]
    if lacking:
        raise ValueError(
            f"--words must occur in what is read, but no document has "
            f"{', '.join(map(repr, lacking))} (documents read: {total}); raise --sentences, or name others."
        )
    ranked = attended_words.rank_words(name, classes, means, dictionary, settings.top, *kept)
    if not ranked:
        return {}, (
            f"no word occurs in {settings.min_documents} documents of one class among the {total} that were read (a "
            "smaller --min-documents or more --sentences may help)"
        )
    words = attended_words.choose_words(means, dictionary, _CHOSEN_WORDS, *kept) if chosen is None else chosen
    sizes = zip(classes, pooled.class_sizes, strict=True)
    return {
        "attended": ranked,
        "word_weights": word_weights.read_word_weights(name, classes, pooled.uses, dictionary, words),
        "classes": [attended_words.ClassRow(name, label, size) for label, size in sizes],
    }, None


def list_makers(settings: WordSettings) -> dict[str, tuple[tuple[str, ...], Callable[..., list[Result]]]]:
    """Which tables the analyses have, the first of which says whether they apply, and how they become results."""
    return {
        "words": (
            ("attended", "word_weights", "classes"),
            lambda ranked, weights, classes: [
                *attended_words.make_results(ranked, classes, settings.min_documents, settings.measure),
                *word_weights.make_results(weights, classes, settings.measure),
            ],
        ),
        "pooling": (
            ("shaded", "similarity"),
            lambda shaded, similarity: [
                *shaded_document.make_results(shaded),
                *head_similarity.make_results(similarity),
            ],
        ),
    }
