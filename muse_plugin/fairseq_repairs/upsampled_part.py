"""Reads training data in several parts without ``--upsample-primary``."""

import inspect
from typing import Any

from fairseq.tasks import translation

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    signature = inspect.signature(translation.load_langpair_dataset)

    @replace(translation, "load_langpair_dataset")
    def load_langpair_dataset(original: Any, *rest: Any, **named: Any) -> Any:
        call = signature.bind(*rest, **named)
        if call.arguments["upsample_primary"] == -1:
            call.arguments["upsample_primary"] = 1
        return original(*call.args, **call.kwargs)


REPAIR = Repair(
    why="data in several parts (fairseq-preprocess --trainpref a,b; --combine-valid-subsets) end training with "
    "'negative dimensions are not allowed': the first part is read -1 times, unless --upsample-primary says how often",
    remedy=_apply,
)
