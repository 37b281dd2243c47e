"""Forms batches by size with numpy, for a fairseq without its compiled extension ``data_utils_fast``."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np


def batch_by_size_vec(
    indices: np.ndarray, num_tokens_vec: np.ndarray, max_tokens: int, max_sentences: int, bsz_mult: int
) -> list[np.ndarray]:
    """Cuts a sequence of sentences into batches, each as long as the limits allow.

    A batch of at least ``bsz_mult`` sentences has a multiple of it. What is over joins the next batch, or is a batch of
    its own if the two together are more than ``max_tokens``, padding included.

    Args:
        indices: of the sentences, in order, shape (N,).
        num_tokens_vec: tokens of each sentence in that order, shape (N,).
        max_tokens: most tokens of a batch: its sentences times the tokens of the longest; no limit below 1.
        max_sentences: most sentences of a batch; no limit below 1.
        bsz_mult: the multiple.

    Returns:
        Consecutive pieces of ``indices``.

    Raises:
        AssertionError: if a sentence is longer than ``max_tokens``.
    """
    total = len(indices)
    if total == 0:
        return []
    most = min(max_sentences, total) if max_sentences > 0 else total
    bounds = [0]
    if max_tokens > 0:
        longest = num_tokens_vec.max()
        assert longest <= max_tokens, f"a sentence has {longest} tokens, but max_tokens is {max_tokens}"
        bounds += _find_bounds(num_tokens_vec, max_tokens, most, bsz_mult)
    else:
        size = most - _count_over(most, bsz_mult)
        batches = -((most - total) // size)  # before the rest fits into one
        bounds = [size * i for i in range(batches + 1)]
    over = _count_over(total - bounds[-1], bsz_mult)
    bounds += [total - over, total] if over else [total]
    return [indices[start:end] for start, end in pairwise(bounds)]


def _count_over(sentences: int, bsz_mult: int) -> int:
    """Sentences beyond the last multiple; none if there is no multiple."""
    return sentences % bsz_mult if sentences >= bsz_mult else 0


def _find_bounds(num_tokens: np.ndarray, max_tokens: int, most: int, bsz_mult: int) -> list[int]:
    """Positions where batches end before the rest of the sentences fits into one."""
    # limits[i]: most sentences of a batch in which sentence i is the longest. Looked up: dividing takes longer.
    by_length = np.minimum(max_tokens // np.maximum(np.arange(num_tokens.max() + 1), 1), most)
    by_length[0] = most
    limits = by_length[num_tokens]
    is_over_fitting = by_length[-1] >= bsz_mult  # what is over is fewer than the multiple
    counts = np.arange(by_length[num_tokens.min()])
    smallest, larger = np.minimum.reduce, np.maximum  # bound once: the loop below runs for every batch
    bounds: list[int] = []
    start = 0
    while True:
        # Sentence i after the start ends the batch before itself if it is one too many for itself or for any before
        # it: the batch has min(max(i, limits[start + i])) sentences.
        window = limits[start : start + limits[start]]
        end = start + int(smallest(larger(window, counts[: len(window)])))
        if end >= len(limits):
            return bounds
        over = _count_over(end - start, bsz_mult)
        start = end - over
        bounds.append(start)
        if over and not is_over_fitting and smallest(limits[start : end + 1]) <= over:
            start = end
            bounds.append(start)


def batch_by_size_fn(
    indices: np.ndarray, num_tokens_fn: Callable[[int], int], max_tokens: int, max_sentences: int, bsz_mult: int
) -> list[np.ndarray]:
    """``batch_by_size_vec`` with a function from an index to its tokens."""
    num_tokens = np.fromiter(map(num_tokens_fn, indices), dtype=np.int64, count=len(indices))
    return batch_by_size_vec(indices, num_tokens, max_tokens, max_sentences, bsz_mult)


def batch_fixed_shapes_fast(
    indices: np.ndarray, num_tokens_fn: Callable[[int], int], fixed_shapes_sorted: np.ndarray
) -> list[list[int]]:
    """Cuts a sequence of sentences into batches that fit into one of some shapes.

    As in the compiled code, the sentence that opens a batch after another counts as one without tokens.

    Args:
        indices: of the sentences, in order, shape (N,).
        num_tokens_fn: from an index to its tokens.
        fixed_shapes_sorted: sentences and tokens of each shape, shape (M, 2), in the order in which they are tried.

    Returns:
        Consecutive pieces of ``indices``.
    """
    shapes = fixed_shapes_sorted.tolist()
    batches: list[list[int]] = []
    batch: list[int] = []
    longest = first = 0
    for index in indices.tolist():
        longest = max(longest, num_tokens_fn(index))
        while first < len(shapes) and (len(batch) >= shapes[first][0] or longest > shapes[first][1]):
            first += 1
        if first == len(shapes):
            batches.append(batch)
            batch, longest, first = [], 0, 0
        batch.append(index)
    return [*batches, batch] if batch else batches
