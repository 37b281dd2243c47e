"""Lets --fp16 train where there is no GPU; fairseq lays out its copy of the parameters by GPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import open_dict

from muse_plugin.fairseq_repairs.repair import Repair

_MARK = "_copies_each_parameter_without_gpus"


def _is_needed() -> bool:
    return torch.cuda.device_count() == 0 and not hasattr(FP16Optimizer.build_optimizer, _MARK)


def _apply() -> None:
    original = FP16Optimizer.build_optimizer.__func__

    @functools.wraps(original)
    def build_optimizer(cls: type, cfg: Any, params: Any, **named: Any) -> Any:
        with open_dict(cfg):
            cfg.common.fp16_no_flatten_grads = True  # a copy of each parameter, as with --bf16
        return original(cls, cfg, params, **named)

    setattr(build_optimizer, _MARK, True)
    FP16Optimizer.build_optimizer = classmethod(build_optimizer)


REPAIR = Repair(
    name="fp16-without-gpu",
    why="without a GPU --fp16 ends with 'Torch not compiled with CUDA enabled' unless --fp16-no-flatten-grads is given",
    is_needed=_is_needed,
    apply=_apply,
)
