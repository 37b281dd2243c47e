"""Refuses a checkpoint that takes more memory than the file is large, and says what is wrong with a damaged one."""

from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils

from muse_plugin.checkpoints.safe_loading import load_checkpoint
from muse_plugin.fairseq_repairs.repair import Repair, replace
from muse_plugin.pretrained.torch_files import check_stored_whole, check_torch_file

FAIRSEQ_READS_SAFELY = bool(torch.__version__ >= "2.6")  # as versions; torch before that restricts only who asks for it


def _apply() -> None:
    @replace(checkpoint_utils, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(original: Any, path: str, *rest: Any, **named: Any) -> dict[str, Any]:
        is_file = Path(path).is_file()  # others, such as those of a store, are left to fairseq
        if is_file:
            check_torch_file(Path(path))
            if not FAIRSEQ_READS_SAFELY:
                load_checkpoint(path)  # refuses what would run code
        try:
            state: dict[str, Any] = original(path, *rest, **named)
        except Exception:
            if is_file:
                load_checkpoint(path)  # says in one sentence what is wrong with the file
            raise
        if is_file:
            check_stored_whole(Path(path), state)
        return state


REPAIR = Repair(
    why="a checkpoint of a few kilobytes, packed or made of a repeated number, can fill the memory when it is read; "
    "with torch before 2.6, one can also run code then",
    remedy=_apply,
)
