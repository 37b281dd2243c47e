"""Warns that --fp16 and --bf16 slow a training on a CPU down, where nothing is faster in half precision."""

import logging
from typing import Any

from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, replace

logger = logging.getLogger(__name__)

# Time of an update by that in float32, of muse_tiny with batches of 600 tokens, torch 2.13: in two runs on a core of an
# AMD EPYC that computes in bfloat16 (AVX512-BF16) 7.6 and 1.6, 6.3 and 1.1; on another machine 6.1 and 4.5.
SLOWER = {"fp16": "6 to 8", "bf16": "up to 4"}


def _apply() -> None:
    @replace(Trainer, "__init__")
    def init(original: Any, trainer: Trainer, *rest: Any, **named: Any) -> None:
        original(trainer, *rest, **named)
        flag = next((name for name in SLOWER if getattr(trainer.cfg.common, name)), None)
        if flag is not None and trainer.device.type == "cpu" and trainer.is_data_parallel_master:
            logger.warning(
                f"--{flag} saves time on a GPU only: on a CPU an update takes {SLOWER[flag]} times as long as "
                "in float32; leave the flag out."
            )


REPAIR = Repair(
    why="--fp16 and --bf16, with which most training commands end, slow one on a CPU down several times, and nothing "
    "says so",
    remedy=_apply,
)
