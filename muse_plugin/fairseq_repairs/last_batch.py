"""Keeps the last batch, which fairseq throws away unless its size is a multiple of eight."""

from __future__ import annotations

import functools

import numpy as np
from fairseq.data import data_utils

from muse_plugin.fairseq_repairs.repair import Repair, rebind


def _is_needed() -> bool:
    try:
        batches = data_utils.batch_by_size(
            np.arange(3), None, np.ones(3, dtype=np.int64), required_batch_size_multiple=2
        )
    except ImportError:  # built without its compiled parts: fairseq says so when it needs them
        return False
    return sum(map(len, batches)) < 3


def _apply() -> None:
    original = data_utils.batch_by_size

    @functools.wraps(original)
    def batch_by_size(
        indices,
        num_tokens_fn,
        num_tokens_vec=None,
        max_tokens=None,
        max_sentences=None,
        required_batch_size_multiple=1,
        fixed_shapes=None,
    ):
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64)
        if len(indices) == 0:
            return []  # the original looks at the last of no batches
        batches = original(
            indices,
            num_tokens_fn,
            num_tokens_vec=num_tokens_vec,
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=required_batch_size_multiple,
            fixed_shapes=fixed_shapes,
        )
        # Batches are consecutive pieces of ``indices``. What is missing at the end is the one batch that was thrown
        # away; it had been formed within all limits and is smaller than the multiple, as the documentation allows.
        kept = sum(map(len, batches))
        if kept < len(indices):
            batches.append(indices[kept:])
        return batches

    rebind(original, batch_by_size)


REPAIR = Repair(
    name="last-batch",
    why="data_utils.batch_by_size drops the last batch when its size is no multiple of --required-batch-size-multiple "
    "(default 8): up to seven sentences vanish from every epoch, validation and test set, and a set of fewer than "
    "eight counts as empty",
    is_needed=_is_needed,
    apply=_apply,
)
