"""Keeps the last batch, which fairseq throws away unless its size is a multiple of eight."""

from typing import Any

import numpy as np
from fairseq.data import data_utils

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(data_utils, "batch_by_size")
    def batch_by_size(original: Any, indices: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64)
        if len(indices) == 0:
            return []  # the original looks at the last of no batches
        batches = original(indices, *rest, **named)
        # Batches are consecutive pieces of ``indices``. What is missing at the end is the one batch that was thrown
        # away; it had been formed within all limits and is smaller than the multiple, as the documentation allows.
        kept = sum(map(len, batches))
        if kept < len(indices):
            batches.append(indices[kept:])
        return batches


REPAIR = Repair(
    why="data_utils.batch_by_size drops the last batch when its size is no multiple of --required-batch-size-multiple "
    "(default 8): up to seven sentences vanish from every epoch, validation and test set, and a set of fewer than "
    "eight counts as empty",
    remedy=_apply,
)
