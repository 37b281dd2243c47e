"""Lets --fp16 train where there is no GPU; fairseq lays out its copy of the parameters by GPU."""

from typing import Any

import torch
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import open_dict

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(FP16Optimizer, "build_optimizer")
    def build_optimizer(original: Any, cls: type, cfg: Any, params: Any, **named: Any) -> Any:
        with open_dict(cfg):
            cfg.common.fp16_no_flatten_grads = True  # a copy of each parameter, as with --bf16
        return original(cls, cfg, params, **named)


REPAIR = Repair(
    why="without a GPU --fp16 ends with 'Torch not compiled with CUDA enabled' unless --fp16-no-flatten-grads is given",
    remedy=_apply,
    concerns=lambda: torch.cuda.device_count() == 0,
)
