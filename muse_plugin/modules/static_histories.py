"""Histories of all layers in buffers of a fixed size, for a step whose tensors always have the same shapes.

A buffer is written slot by slot and never moved. Which slots a hypothesis has gone through is in one table for all
layers: when beam search picks other rows, a column of the table is copied instead of the history of every layer. The
newest position is always the last one that a layer is given, and slot 0, which stays zero, stands for positions before
the sentence: to the layer, they are padding on the left.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class StaticHistories:
    """Implements ``layer_cache.Histories``.

    Args:
        rows: number of hypotheses R.
        capacity: positions S of each.
        device: of all tensors.
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.rows, self.capacity = rows, capacity
        self.slot = torch.zeros(1, dtype=torch.int64, device=device)  # the newest one, and the number of tokens
        self._columns = torch.arange(rows, device=device)
        self._order = self._columns.clone()  # rows of the last step that are continued
        # Where the positions of each hypothesis are in the flattened buffers: (S, R), the oldest first.
        self._table = torch.zeros(capacity, rows, dtype=torch.int64, device=device)
        self._buffers: dict[str, Tensor] = {}  # (1 + S, R, size)

    @property
    def bytes(self) -> int:
        """Of all buffers."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._buffers.values())

    def advance(self) -> Tensor:
        """Makes room for the next position; called once, before the layers.

        Returns:
            Which positions are before the sentence: bool, shape (1, S).
        """
        self._table[:-1] = self._table[1:].index_select(1, self._order)
        self.slot.add_(1)
        self._table[-1] = self.slot * self.rows + self._columns
        self._order.copy_(self._columns)
        return (self._table[:, 0] < self.rows).unsqueeze(0)

    def extend(self, name: str, new: Tensor) -> Tensor:
        """Writes the newest position of a slice.

        Args:
            name: of layer and slice.
            new: shape (R, 1, size).

        Returns:
            All positions, shape (R, S, size); zeros before the sentence.
        """
        buffer = self._buffer(name, new)
        buffer.index_copy_(0, self.slot, new.transpose(0, 1))
        picked = buffer.flatten(0, 1).index_select(0, self._table.flatten())
        return picked.view(self.capacity, self.rows, -1).transpose(0, 1)

    def reorder(self, rows: Tensor) -> None:
        """Picks rows for the next step, shape (new rows,), at most R; rows behind them hold nothing of worth."""
        self._order[: len(rows)] = self._order.index_select(0, rows)

    def load(self, past: Mapping[str, Tensor], length: int) -> None:
        """Starts from what ``read`` returned, of any other histories.

        Args:
            past: by name, each (length, rows, size), with at most S positions and R rows.
            length: of ``past``.
        """
        self.slot.fill_(length)
        self._order.copy_(self._columns)
        self._table.zero_()
        slots = torch.arange(1, length + 1, device=self.slot.device)
        self._table[self.capacity - length :] = slots[:, None] * self.rows + self._columns
        for name, positions in past.items():
            buffer = self._buffer(name, positions)
            buffer[1 : length + 1, : positions.shape[1]] = positions

    def read(self, length: int, rows: int) -> dict[str, Tensor]:
        """The last positions of the first rows, by name, each (length, rows, size), in the order asked for."""
        entries = self._table[self.capacity - length :].index_select(1, self._order[:rows]).flatten()
        return {
            name: buffer.flatten(0, 1).index_select(0, entries).view(length, rows, -1)
            for name, buffer in self._buffers.items()
        }

    def _buffer(self, name: str, like: Tensor) -> Tensor:
        if name not in self._buffers:
            self._buffers[name] = like.new_zeros(1 + self.capacity, self.rows, like.shape[-1])
        return self._buffers[name]
