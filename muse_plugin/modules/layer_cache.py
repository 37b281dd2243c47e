"""What a layer remembers in step-by-step decoding: the history of its cached slices, and the encoder's keys and values.

The value history is also the convolution's (``gated_conv.py``): there is no second buffer. Rows are hypotheses; several
rows in a row may belong to one sentence (a beam), whose encoder keys and values are kept once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

# Positions by which a history grows: copies are rare, and at most that many positions are wasted.
BLOCK = 64


class LayerCache:
    """History of one layer, by slice name.

    Attributes:
        encoder_key_value: keys and values of the encoder, each (sentences, S_enc, C), or None before the first step.
    """

    def __init__(self) -> None:
        self._histories: dict[str, _History] = {}
        self._stages: dict[int, LayerCache] = {}
        self.encoder_key_value: tuple[Tensor, Tensor] | None = None

    @property
    def lengths(self) -> dict[str, int]:
        """Number of positions by slice name."""
        return {name: history.length for name, history in self._histories.items()}

    def extend(self, name: str, new: Tensor) -> Tensor:
        """Appends new positions to the history of a slice.

        Args:
            name: of the slice.
            new: shape (B, T, size); B must be that of the earlier positions.

        Returns:
            All positions, shape (B, S, size): a view that is valid until the next ``reorder``.
        """
        return self._histories.setdefault(name, _History()).append(new)

    def stage(self, number: int) -> LayerCache:
        """The history of one stage of a layer that has several, see ``staged_layer.py``."""
        return self._stages.setdefault(number, LayerCache())

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Picks rows, e.g. those that survive a step of beam search.

        Args:
            rows: row indices, shape (new B,).
            sentences: indices of the sentences that are left, shape (new sentences,); None keeps all of them.
        """
        for history in self._histories.values():
            history.select(rows)
        for stage in self._stages.values():
            stage.reorder(rows, sentences)
        if sentences is not None and self.encoder_key_value is not None:
            key, value = self.encoder_key_value
            self.encoder_key_value = key.index_select(0, sentences), value.index_select(0, sentences)


class Histories(Protocol):
    """Where histories of all layers are kept, by "layer.slice" or "layer.stage.slice"."""

    def extend(self, name: str, new: Tensor) -> Tensor:
        """See ``LayerCache.extend``."""


class NamedCache(LayerCache):
    """The history of a layer among those of all layers, in tensors that the caller owns.

    Args:
        name: of the layer; that of a stage is "layer.stage".
        histories: of all layers.
        encoded: "encoder_key.NAME" and "encoder_value.NAME" of all layers that attend to the encoder, each
            (sentences, S_enc, C).
    """

    def __init__(self, name: str, histories: Histories, encoded: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._name, self._all, self._encoded = name, histories, encoded
        if f"encoder_key.{name}" in encoded:
            self.encoder_key_value = encoded[f"encoder_key.{name}"], encoded[f"encoder_value.{name}"]

    def extend(self, name: str, new: Tensor) -> Tensor:
        """See ``LayerCache.extend``."""
        return self._all.extend(f"{self._name}.{name}", new)

    def stage(self, number: int) -> LayerCache:
        """See ``LayerCache.stage``."""
        return NamedCache(f"{self._name}.{number}", self._all, self._encoded)


class _History:
    """Positions of one slice in a buffer that grows in blocks; time is its first axis, so that a step is one copy."""

    def __init__(self) -> None:
        self.buffer: Tensor | None = None  # (capacity, B, size)
        self.spare: Tensor | None = None  # of the same shape: what select writes into
        self.length = 0

    def append(self, new: Tensor) -> Tensor:
        new = new.transpose(0, 1)
        if torch.is_grad_enabled() and (new.requires_grad or (self.buffer is not None and self.buffer.requires_grad)):
            # Writing into a buffer would spoil what autograd has kept of it.
            self.buffer = new if self.buffer is None else torch.cat([self.buffer[: self.length], new])
            self.length = self.buffer.shape[0]
            return self.buffer.transpose(0, 1)
        past, self.length = self.length, self.length + new.shape[0]
        if self.buffer is None or self.buffer.shape[0] < self.length:
            capacity = -(-self.length // BLOCK) * BLOCK
            grown = new.new_empty(capacity, *new.shape[1:])
            if self.buffer is not None:
                grown[:past] = self.buffer[:past]
            self.buffer, self.spare = grown, None
        self.buffer[past : self.length] = new
        return self.buffer[: self.length].transpose(0, 1)

    def select(self, rows: Tensor) -> None:
        if self.buffer is None:
            return
        if self.buffer.requires_grad or rows.numel() != self.buffer.shape[1]:
            self.buffer, self.spare = self.buffer.index_select(1, rows), None
            return
        if self.spare is None:
            self.spare = torch.empty_like(self.buffer)
        torch.index_select(self.buffer[: self.length], 1, rows, out=self.spare[: self.length])
        self.buffer, self.spare = self.spare, self.buffer


def group_rows(rows: Tensor, sentences: int, rows_per_sentence: int) -> tuple[Tensor | None, int]:
    """Says which sentences are left when rows are picked, and how many neighbouring rows each of them has now.

    Args:
        rows: indices of the picked rows, shape (new B,), out of sentences * rows_per_sentence.
        sentences: number of sentences before.
        rows_per_sentence: neighbouring rows that share a sentence before.

    Returns:
        The indices of the sentences that are left, shape (new sentences,), or None if that is every one, in order; and
        the new number of rows per sentence. Where neighbours do not form groups of one size, every row counts as a
        sentence of its own.
    """
    owners = torch.div(rows, rows_per_sentence, rounding_mode="floor")
    everyone = torch.arange(sentences, dtype=rows.dtype, device=rows.device)
    if len(rows) % max(sentences, 1) == 0 and len(rows) > 0:
        size = len(rows) // sentences
        if torch.equal(owners.view(sentences, size), everyone.unsqueeze(1).expand(-1, size)):
            return None, size
    left, counts = torch.unique_consecutive(owners, return_counts=True)
    if len(left) > 0 and bool((counts == counts[0]).all()):
        return left, len(rows) // len(left)
    return owners, 1
