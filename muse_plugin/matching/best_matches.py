"""Finds each query's best matches among cached vectors, with bounded memory.

Either the model scores every pair, or a cheaper first stage picks candidates for it: the cosine of the whole vectors
(exact, in blocks), or an approximate index (``faiss_index.py``). Of equal values the lower row comes first, wherever
blocks end.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.vector_cache import VectorCache

_ABSENT = -1


class Matches(NamedTuple):
    """The best rows of each query, best first.

    Attributes:
        values: of ``PairModel.rank_values``, shape (Q, K).
        rows: their numbers, shape (Q, K); -1 where there are fewer.
    """

    values: Tensor
    rows: Tensor


class TopRows:
    """Keeps the best rows of each query.

    Args:
        queries: their number Q.
        k: rows to keep, at least 1.

    Attributes:
        values: of the best so far, best first, shape (Q, up to k), float32.
        rows: their numbers, shape (Q, up to k), int64.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.values = torch.empty(queries, 0)
        self.rows = torch.empty(queries, 0, dtype=torch.int64)

    def add(self, values: Tensor, first_row: int) -> None:
        """Takes the next block.

        Args:
            values: of consecutive rows, shape (Q, M); finite.
            first_row: number of the first of them, above all that were added before.
        """
        best = best_columns(values, self.k)
        joined = torch.cat([self.values, values.gather(1, best)], dim=1)
        rows = torch.cat([self.rows, best + first_row], dim=1)
        # Both parts are sorted and rows of the second are higher: a stable sort keeps the lower one first.
        order = joined.sort(dim=1, descending=True, stable=True).indices[:, : self.k]
        self.values, self.rows = joined.gather(1, order), rows.gather(1, order)


def best_columns(values: Tensor, k: int) -> Tensor:
    """Numbers of the largest values of each row, best first, of equal ones the lower number first.

    Args:
        values: shape (Q, M).
        k: how many; all M if there are fewer.

    Returns:
        Shape (Q, min(k, M)), int64.
    """
    k = min(k, values.shape[1])
    if k == 0:
        return torch.empty(len(values), 0, dtype=torch.int64)
    top = values.topk(k, dim=1)
    # topk takes any of several equal values; which ones matters only where the last place is shared.
    columns = top.indices.sort(dim=1).values
    shared = (values >= top.values[:, -1:]).sum(dim=1) > k
    if bool(shared.any()):
        columns[shared] = values[shared].sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values
    order = values.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    return columns.gather(1, order)


def find_best(
    rank: Callable[[Tensor], Tensor],
    queries: int,
    corpus: VectorCache,
    k: int,
    block_rows: int,
    progress: Callable[[int], object],
) -> Matches:
    """Compares queries with every sentence of a corpus, exactly.

    Args:
        rank: from vectors of the corpus, shape (M, R), what they are ranked by: shape (Q, M); see ``rank_by_cosine``.
        queries: their number Q.
        corpus: the other sentences.
        k: matches per query.
        block_rows: rows of the corpus in memory at once.
        progress: called with the number of rows after each block.
    """
    top = TopRows(queries, k)
    for start, block in corpus.blocks(block_rows):
        top.add(rank(block), start)
        progress(len(block))
    return Matches(top.values, top.rows)


def rank_by_cosine(queries: Tensor, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Cosines of vectors with ``queries``, shape (Q, R), for ``find_best``; products are computed on ``device``."""
    unit = F.normalize(queries.to(device), dim=1)
    return lambda block: (unit @ F.normalize(block.to(device), dim=1).T).cpu()


def rank_candidates(
    model: PairModel, queries: Tensor, corpus: VectorCache, candidates: Tensor, k: int, output: int, block_rows: int
) -> Matches:
    """Lets the model choose among candidates.

    Args:
        model: the model.
        queries: vectors, shape (Q, R).
        corpus: the other sentences.
        candidates: row numbers, shape (Q, N); -1 for none.
        k: matches per query.
        output: number of the model's output that counts.
        block_rows: rows of the corpus in memory at once.
    """
    values = torch.full(candidates.shape, -torch.inf)
    rows = candidates.sort(dim=1).values  # in the order of the file, and of equal values the lower row first
    for query in range(len(queries)):
        places = (rows[query] != _ABSENT).nonzero().squeeze(1)
        for start in range(0, len(places), block_rows):
            part = places[start : start + block_rows]
            block = corpus.gather(rows[query, part])
            values[query, part] = model.rank_pairs(queries[query : query + 1], block, output)[0]
    best = best_columns(values, k)
    return Matches(values.gather(1, best), rows.gather(1, best))
