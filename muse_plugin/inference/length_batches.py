"""Cuts sentences into batches of similar length."""

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
    batches: list[list[Key]] = []
    for key in sorted(lengths, key=lambda key: lengths[key]):
        # Ascending: the newest is the longest, and all are padded to its length.
        size = len(batches[-1]) + 1 if batches else None
        if (
            size is None
            or (max_sentences is not None and size > max_sentences)
            or (max_tokens is not None and size * lengths[key] > max_tokens)
        ):
            batches.append([])
        batches[-1].append(key)
    return batches
