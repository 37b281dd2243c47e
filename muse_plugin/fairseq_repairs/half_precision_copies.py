"""Copies all gradients and all weights of --fp16 and --bf16 by one call each.

On a GPU, fairseq's optimiser of half precision holds weights in float32 as one tensor. Every update it fills that one's
gradient, and the model's weights from it, by a call for each parameter: 15 % of all kernels of an update of MUSE, 30 %
of a Transformer's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(_FP16OptimizerMixin, "_sync_fp16_grads_to_fp32")
    def collect_gradients(original: Any, optimizer: Any) -> None:
        if not optimizer.has_flat_params:
            original(optimizer)
        elif optimizer._needs_sync:
            for device, weights in optimizer.fp32_params.items():
                own = [p for p in optimizer.fp16_params if p.requires_grad and p.device.index == device]
                gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
                _copy(_split(weights.grad, gradients), [x.reshape(-1) for x in gradients])
            optimizer._needs_sync = False

    @replace(_FP16OptimizerMixin, "_sync_fp32_params_to_fp16")
    def hand_out_weights(original: Any, optimizer: Any) -> None:
        if not optimizer.has_flat_params:
            original(optimizer)
            return
        for device, weights in optimizer.fp32_params.items():
            own = [p.data for p in optimizer.fp16_params if p.device.index == device]
            _copy([p.view(-1) for p in own], _split(weights.data, own))


def _split(flat: Tensor, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
    sizes = [part.numel() for part in parts]
    return flat[: sum(sizes)].split(sizes)


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


REPAIR = Repair(
    why="on a GPU, an update with --fp16 or --bf16 starts two kernels for each parameter, only to copy it",
    remedy=_apply,
)
