"""Cuts a text into blocks with numpy, for a fairseq without its compiled extension ``token_block_utils_fast``."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np


def _get_slice_indices_fast(sizes: np.ndarray, break_mode: str, block_size: int, document_sep_len: int) -> np.ndarray:
    """Finds the blocks of a text.

    Args:
        sizes: tokens of each sentence, shape (N,).
        break_mode: ``none``: ``block_size`` tokens a block; ``complete``: whole sentences, as many as fit, at least
            one; ``complete_doc``: the same within a document, without blocks of one token; ``eos``: a sentence.
        block_size: tokens.
        document_sep_len: tokens of a sentence that is between two documents.

    Returns:
        First token of each block and the one after its last, shape (blocks, 2).

    Raises:
        ValueError: if ``break_mode`` is unknown.
    """
    ends = np.cumsum(sizes)
    if break_mode == "eos":
        return np.stack([ends - sizes, ends], axis=1)
    if break_mode == "none":
        total = int(ends[-1]) if len(ends) else 0
        starts = np.arange(0, total, block_size)
        return np.stack([starts, np.minimum(starts + block_size, total)], axis=1)
    if break_mode == "complete":
        blocks = _fill_blocks(ends, 0, len(sizes), block_size)
    elif break_mode == "complete_doc":
        separators = [-1, *np.flatnonzero(sizes == document_sep_len).tolist(), len(sizes)]
        documents = ((before + 1, after) for before, after in pairwise(separators))
        blocks = (
            (start, end)
            for document in documents
            for start, end in _fill_blocks(ends, *document, block_size)
            if end - start > 1
        )
    else:
        raise ValueError(f"break_mode must be none, complete, complete_doc or eos, but got {break_mode!r}; choose one.")
    return np.array(list(blocks), dtype=np.int64).reshape(-1, 2)


def _fill_blocks(ends: np.ndarray, first: int, last: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Blocks of whole sentences, from sentence ``first`` to the one before ``last``; empty ones are left out."""
    start = int(ends[first - 1]) if first else 0
    while first < last:
        fitting = first + int(ends[first:last].searchsorted(start + block_size, side="right"))
        longer = first + int(ends[first:last].searchsorted(start, side="right")) + 1  # with a sentence that has a token
        first = min(max(fitting, longer), last)
        end = int(ends[first - 1])
        if end > start:
            yield start, end
        start = end


def _get_block_to_dataset_index_fast(sizes: np.ndarray, slice_indices: np.ndarray) -> np.ndarray:
    """Finds the sentences of each block.

    Args:
        sizes: tokens of each sentence, shape (N,).
        slice_indices: what ``_get_slice_indices_fast`` returned, shape (blocks, 2).

    Returns:
        The sentence of a block's first token, the place of that token in it, and the sentence of the last token,
        shape (blocks, 3). A token at the start of a sentence after empty ones belongs to the first of those.
    """
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    starts, ends = slice_indices[:, 0], slice_indices[:, 1]

    def find(tokens: np.ndarray) -> np.ndarray:
        found = bounds.searchsorted(tokens)
        return found - (bounds[np.minimum(found, len(sizes))] != tokens)

    first = find(starts)
    last = np.where(ends > starts, find(np.maximum(ends - 1, 0)), first)
    return np.stack([first, starts - bounds[first], last], axis=1)
