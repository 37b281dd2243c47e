"""Entities in tag sequences, counted by the rules of conlleval."""

from collections.abc import Sequence

from muse_plugin.contracts.seqeval_package import import_seqeval


def count_entities(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> tuple[int, int, int]:
    """How many entities were found exactly, were predicted, and are there.

    An entity is a stretch of words and a type; it counts as found if both agree. An I-X that continues nothing opens an
    entity, as in conlleval.

    Args:
        predicted: tags B-X, I-X and O of each sentence.
        gold: the right ones, in the same form.

    Raises:
        ImportError: if seqeval is not installed.
    """
    get_entities = import_seqeval().get_entities
    found = truth = right = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        have, want = set(get_entities(list(ours))), set(get_entities(list(theirs)))
        found, truth, right = found + len(have), truth + len(want), right + len(have & want)
    return right, found, truth
