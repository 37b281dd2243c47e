"""Keeps float32 weights and loss scalers of half precision: a training that resumes equals one that never stopped."""

from typing import Any

import torch
from fairseq.optim import fp16_optimizer
from fairseq.optim.amp_optimizer import AMPOptimizer
from torch import Tensor
from torch.amp import GradScaler

from muse_plugin.fairseq_repairs.repair import Repair, replace

# Of last_optimizer_state, as loss_scale is.
_WEIGHTS, _SCALER = "float32_weights", "loss_scaler"
_COUNTERS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")


def _list_weights(optimizer: Any) -> list[Tensor]:
    """The weights in float32 besides those of the model; none with --memory-efficient-fp16 and --amp."""
    weights = getattr(optimizer, "fp32_params", [])
    return [weight.data for weight in (weights.values() if isinstance(weights, dict) else weights)]


def _put_back(optimizer: Any, stored: list[Tensor]) -> None:
    """Unless the weights of the model are others than those that were stored, rounded."""
    weights = _list_weights(optimizer)
    if [x.shape for x in weights] != [x.shape for x in stored]:
        return
    pairs = list(zip(weights, stored, strict=True))
    if all(torch.equal(*(x.to(new.device, optimizer.fp16_params[0].dtype) for x in (new, old))) for new, old in pairs):
        for new, old in pairs:
            new.copy_(old)


def _read_scaler(scaler: Any) -> dict[str, Any]:
    return scaler.state_dict() if isinstance(scaler, GradScaler) else {x: getattr(scaler, x) for x in _COUNTERS}


def _set_scaler(scaler: Any, stored: dict[str, Any]) -> None:
    if not isinstance(scaler, GradScaler):
        vars(scaler).update((name, stored[name]) for name in _COUNTERS if name in stored)
    elif stored:  # without a GPU there is nothing to scale
        scaler.load_state_dict(stored)


def _keep(optimizer: type) -> None:
    @replace(optimizer, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        state = original(self)
        if weights := _list_weights(self):
            state[_WEIGHTS] = weights
        if self.scaler is not None:
            state[_SCALER] = _read_scaler(self.scaler)
        return state

    @replace(optimizer, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: dict[str, Any], optimizer_overrides: Any = None) -> None:
        state = dict(state)
        stored, scaler = state.pop(_WEIGHTS, []), state.pop(_SCALER, {})
        original(self, state, optimizer_overrides)
        _put_back(self, stored)
        if self.scaler is not None:
            _set_scaler(self.scaler, scaler)


def _apply() -> None:
    _keep(fp16_optimizer._FP16OptimizerMixin)
    _keep(fp16_optimizer._MemoryEfficientFP16OptimizerMixin)
    _keep(AMPOptimizer)


REPAIR = Repair(
    why="a checkpoint of --fp16 or --bf16 has the weights in half precision alone, so that a training that resumes "
    "loses what it has learnt below that, and counts again until the next loss scale; --amp begins with its first one",
    remedy=_apply,
)
