"""Keeps the current folder off the module path of the processes that fairseq starts for a training (Python 3.11 on).

``multiprocessing`` starts them by ``python -c``, which puts the current folder first, before they take the path of
this process.
"""

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

from fairseq.distributed import utils as distributed_utils

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(distributed_utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Callable[..., None], **kwargs: Any) -> Any:
        with mock.patch.dict(os.environ, PYTHONSAFEPATH="1"):
            return original(cfg, main, **kwargs)


REPAIR = Repair(
    why="each process of a training that fairseq starts runs a multiprocessing.py, or a file named as another module "
    "that Python needs at its start, where the current folder has one",
    remedy=_apply,
)
