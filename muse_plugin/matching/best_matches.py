"""Keeps each query's best matches among rows that come in blocks.

Of equal values the lower row comes first, wherever blocks end.
"""

from typing import NamedTuple

import torch
from torch import Tensor


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
