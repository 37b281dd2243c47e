"""The tables about a pooling with heads, for ``muse-plugin analyze model``: which there are, and from which flags."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from muse_plugin.analysis import attended_words, head_similarity, shaded_document
from muse_plugin.analysis.analyzed_model import AnalyzedModel, Batches, name_words
from muse_plugin.analysis.pooled_attention import (
    Pooled,
    average_by_class,
    list_classes,
    read_document_heads,
    read_pooling,
)
from muse_plugin_command.flags.analyze import MIN_DOCUMENTS, TOP_WORDS

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
    analyzed: AnalyzedModel,
    wanted: Sequence[str],
    chosen: Sequence[int],
    place: Optional[int],
    max_tokens: int,
    settings: WordSettings,
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Lets a model whose pooling has heads read documents.

    Args:
        analyzed: the model and its data.
        wanted: names of analyses, of which "words" and "pooling" count here.
        chosen: places of the documents that are read.
        place: of the document that is shown; needed for "pooling".
        max_tokens: of a batch, padding included.
        settings: what is shown of words.

    Returns:
        Rows of tables by their names, and why an analysis has nothing to show, by its name.

    Raises:
        ValueError: if a chosen word is unknown, or does not occur in what is read.
    """
    tables: dict[str, list[Any]] = {}
    reasons: dict[str, str] = {}
    name, dictionary = analyzed.name, analyzed.task.source_dictionary
    unknown = [word for word in settings.chosen or () if dictionary is None or word not in dictionary]
    if unknown:
        raise ValueError(
            f"--words must be words of the model's dictionary, but it lacks {', '.join(map(repr, unknown))}; name "
            "others, written as in the prepared data."
        )
    pooled = read_pooling(analyzed, chosen, max_tokens, name)
    if place is not None and "pooling" in wanted:
        (inputs,) = Batches(analyzed, [place])
        weights, *labels = read_document_heads(analyzed, place, inputs)
        words, _ = name_words(analyzed, inputs)
        tables["shaded"] = shaded_document.read_document(name, weights, words, place + 1, *labels)
        tables["similarity"] = head_similarity.read_similarity(name, pooled.similarity)
    if "words" in wanted:
        ranked = _rank(analyzed, pooled, settings)
        if isinstance(ranked, str):
            reasons["words"] = ranked
        else:
            tables.update(ranked)
    return tables, reasons


def _rank(analyzed: AnalyzedModel, pooled: Pooled, settings: WordSettings) -> Union[dict[str, list[Any]], str]:
    """The tables about words; or why there are none."""
    name, classes, dictionary = analyzed.name, list_classes(analyzed), analyzed.task.source_dictionary
    if pooled.uses is None:
        return "the model predicts no classes to tell words apart by"
    means = average_by_class(pooled.uses, len(classes), len(dictionary))
    total = sum(pooled.class_sizes)
    words = [dictionary.index(word) for word in dict.fromkeys(settings.chosen or ())]
    lacking = [dictionary[word] for word in words if not means.documents[:, word].any()]
    if lacking:
        raise ValueError(
            f"--words must occur in what is read, but no document has "
            f"{', '.join(map(repr, lacking))} (documents read: {total}); raise --sentences, or name others."
        )
    kept = settings.min_documents, settings.measure
    ranked = attended_words.rank_words(name, classes, means, dictionary, settings.top, *kept)
    if not ranked:
        return (
            f"no word occurs in {settings.min_documents} documents of one class among the {total} that were read (a "
            "smaller --min-documents or more --sentences may help)"
        )
    if settings.chosen is None:
        words = attended_words.choose_words(means, dictionary, _CHOSEN_WORDS, *kept)
    sizes = zip(classes, pooled.class_sizes, strict=True)
    return {
        "attended": ranked,
        "word_weights": attended_words.read_word_weights(name, classes, pooled.uses, dictionary, words),
        "classes": [attended_words.ClassRow(name, *size) for size in sizes],
    }
