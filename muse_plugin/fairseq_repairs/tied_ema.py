"""Averages tied weights once in an update of --store-ema, whatever number of names they have."""

from types import SimpleNamespace
from typing import Any

from fairseq.models.ema.ema import EMA
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(EMA, "_step_internal")
    def _step_internal(original: Any, self: EMA, new_model: Any, updates: Any = None) -> None:
        first = {}  # of the names of each storage
        for name, value in new_model.state_dict().items():
            is_empty = not isinstance(value, Tensor) or value.numel() == 0
            first.setdefault(name if is_empty else (value.data_ptr(), value.shape, value.stride()), (name, value))
        original(self, SimpleNamespace(state_dict=lambda: dict(first.values())), updates)


REPAIR = Repair(
    why="--store-ema averages each name of a weight in turn: shared embeddings, which have three, move three times an "
    "update, with the decay to the third power",
    remedy=_apply,
)
