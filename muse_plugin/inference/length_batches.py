"""Cuts sentences into batches of similar length."""

import math
from collections.abc import Hashable, Mapping
from typing import Optional, TypeVar

Key = TypeVar("Key", bound=Hashable)


def make_batches(
    lengths: Mapping[Key, int], max_tokens: Optional[int] = None, max_sentences: Optional[int] = None
) -> list[list[Key]]:
    """Groups sentences by length, the shortest first; equal lengths stay in the order of ``lengths``.

    Args:
        lengths: tokens of each sentence.
        max_tokens: most tokens in a batch, padding included; a longer sentence is a batch of its own; None for no
            limit.
        max_sentences: most sentences in a batch; None for no limit.

    Returns:
        The keys of ``lengths``, each in one batch.
    """
    most_tokens = math.inf if max_tokens is None else max_tokens
    most_sentences = math.inf if max_sentences is None else max_sentences
    batches: list[list[Key]] = []
    for key in sorted(lengths, key=lengths.__getitem__):
        # Ascending: the newest is the longest, and all are padded to its length.
        size = len(batches[-1]) + 1 if batches else 0
        if size == 0 or size > most_sentences or size * lengths[key] > most_tokens:
            batches.append([])
        batches[-1].append(key)
    return batches
