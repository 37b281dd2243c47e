"""Says which batch made training stop at a loss or gradients that are not finite, and what to do about it.

fairseq stops with "gradients are Nan/Inf" or "Minimum loss scale reached", or stumbles while it looks for the module.
Here the batches of that update are computed once more, and the error names the sentences. Nothing is added to updates
that succeed. Before it stops, fairseq saves the state as ``crash.pt`` and logs the first module that is not finite.
"""

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import Any

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.trainer import Trainer
from torch import Tensor

from muse_plugin.fairseq_repairs.repair import Repair, find_cause, replace

logger = logging.getLogger(__name__)

MOST_NAMED = 20  # sentences of a batch that are listed
MOST_ALONE = 256  # sentences of a batch that are tried one by one

# What fairseq raises once gradients have been added up over processes: then all of them raise it.
_AFTER_REDUCTION = ("gradients are Nan/Inf", "Minimum loss scale reached", "gradients are inconsistent between workers")


class NotFiniteError(FloatingPointError):
    """Training met a loss or gradients that are not finite; the message names the batch."""


def _find(trainer: Trainer, samples: list[Any]) -> list[str]:
    """What is not finite in this process: one part of a sentence for each parameter or batch of the update at fault.

    The trainer is as the failed update left it: its parameters are those before the update.
    """
    model = trainer.get_model()
    ruined = [name for name, parameter in model.named_parameters() if not parameter.detach().isfinite().all()]
    if ruined:
        more = f" and {len(ruined) - 1} more" if len(ruined) > 1 else ""
        return [f"parameter {ruined[0]}{more} was not finite before this update, so no batch is at fault"]
    if trainer.is_fsdp:  # to compute anything takes all processes
        return [_describe(sample) for sample in samples if sample]
    model.train()
    trainer.get_criterion().train()
    trainer._set_seed()  # the dropout of the update, as far as a computation of its own can have it
    faults, named = [], []
    for sample in samples:
        batch, is_dummy = trainer._prepare_sample(sample)
        if is_dummy:
            continue
        named.append(_describe(batch))
        fault = _fault(trainer, batch)
        if fault:
            alone = _sentences_at_fault(trainer, batch)
            faults.append(f"{fault} for {named[-1]}{_list_alone(alone, batch)}")
    return faults or [f"computed once more, all is finite; the update read {text}" for text in named]


def _loss(trainer: Trainer, batch: dict[str, Any]) -> Tensor:
    with torch.autocast(trainer.device.type, enabled=bool(trainer.cfg.common.amp)):
        return trainer.get_criterion()(trainer.get_model(), batch)[0]


def _fault(trainer: Trainer, batch: dict[str, Any]) -> str:
    """What is not finite about a batch; empty if nothing is."""
    loss = _loss(trainer, batch)
    value = float(loss.detach())
    if not math.isfinite(value):
        return f"the loss is {value}"
    scaler = getattr(trainer.optimizer, "scaler", None)
    scale = 1.0 if scaler is None else scaler.get_scale() if trainer.cfg.common.amp else scaler.loss_scale
    parameters = [parameter for parameter in trainer.get_model().parameters() if parameter.requires_grad]
    # Not loss.backward(): that would start the sums over processes that DistributedDataParallel hangs on to it.
    gradients = torch.autograd.grad(loss * scale, parameters, allow_unused=True)
    if all(gradient is None or bool(gradient.isfinite().all()) for gradient in gradients):
        return ""
    return f"the loss of {value:.4g} is finite, but its gradients are not"


def _sentences_at_fault(trainer: Trainer, batch: dict[str, Any]) -> list[int]:
    """The sentences of a batch whose loss is not finite when they are computed one by one."""
    ids, dataset = _ids(batch), trainer.task.dataset(trainer.cfg.dataset.train_subset)
    found = []
    for number in ids[:MOST_ALONE] if len(ids) > 1 else []:
        with contextlib.suppress(Exception):  # a data set whose ids are no positions in it
            alone, _ = trainer._prepare_sample(dataset.collater([dataset[number]]))
            with torch.no_grad():
                if _ids(alone) == [number] and not math.isfinite(float(_loss(trainer, alone))):
                    found.append(number)
    return found


def _list_alone(alone: list[int], batch: dict[str, Any]) -> str:
    if not alone:
        return ""
    return ", and for each of them alone" if len(alone) == len(_ids(batch)) else f", and for {_list(alone)} alone"


def _ids(batch: dict[str, Any]) -> list[int]:
    ids = batch.get("id")
    return [] if ids is None else [int(number) for number in ids]


def _list(numbers: list[int]) -> str:
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return ", ".join(map(str, numbers[:MOST_NAMED])) + more


def _describe(batch: dict[str, Any]) -> str:
    """The sentences of a batch and their length, as a part of a sentence."""
    ids = _ids(batch)
    names = f"sentences {_list(ids)}" if len(ids) != 1 else f"sentence {ids[0]}"
    if not ids:
        names = "a batch without ids"
    lengths = [tokens.shape[1] for tokens in _token_tensors(batch)]
    return f"{names} (longest: {max(lengths)} tokens)" if lengths else names


def _token_tensors(batch: dict[str, Any]) -> Iterator[Tensor]:
    inputs = batch.get("net_input") or {}
    for name, value in [*inputs.items(), ("target", batch.get("target"))]:
        if isinstance(value, Tensor) and value.dim() == 2 and (name.endswith("tokens") or name == "target"):
            yield value


def _find_in_all_processes(trainer: Trainer, samples: list[Any], error: FloatingPointError) -> list[str]:
    try:
        found = _find(trainer, samples)
    except Exception as failure:  # such as too little memory: the first error must not be lost for it
        logger.warning("what is not finite could not be found out: %s", failure)
        found = [_describe(sample) for sample in samples if isinstance(sample, dict) and sample]
    settings = trainer.cfg.distributed_training
    together = trainer.data_parallel_world_size > 1 and not trainer.tpu
    if not together:
        return found
    alone = trainer.cfg.optimization.use_bmuf or settings.ddp_backend == "slowmo"  # each has gradients of its own
    if alone or not any(part in str(error) for part in _AFTER_REDUCTION):
        return [f"{text} in process {trainer.data_parallel_rank}" for text in found]
    everywhere: list[Any] = [None] * trainer.data_parallel_world_size
    torch.distributed.all_gather_object(everywhere, found, group=trainer.data_parallel_process_group)
    faults = [f"{text} in process {rank}" for rank, part in enumerate(everywhere) for text in part]
    at_fault = [text for text in faults if not text.startswith("computed once more")]
    return at_fault or faults


def _sentence(trainer: Trainer, found: list[str], error: FloatingPointError) -> str:
    common, optimization = trainer.cfg.common, trainer.cfg.optimization
    what = "gradients must be finite, but they are not"
    if "Minimum loss scale reached" in str(error):
        flag = "--amp" if common.amp else "--fp16"
        what = (
            f"gradients overflow even at the smallest loss scale of {flag}, --min-loss-scale {common.min_loss_scale:g}"
        )
    half = ", or take --bf16 instead of " + ("--amp" if common.amp else "--fp16") if common.fp16 or common.amp else ""
    clip = f"lower --clip-norm (now {optimization.clip_norm:g})" if optimization.clip_norm > 0 else "set --clip-norm"
    return (
        f"{what}: update {trainer.get_num_updates() + 1} of --train-subset {trainer.cfg.dataset.train_subset}; "
        f"{'; '.join(found)}. Sentences are counted from 0 in the order of the data. If one of them is broken or far "
        f"too long, fix or remove it; otherwise lower --lr (now {trainer.get_lr():.3g}), raise --warmup-updates or "
        f"{clip}{half}."
    )


def _apply() -> None:
    @replace(Trainer, "train_step")
    def train_step(original: Any, self: Trainer, samples: list[Any], *rest: Any, **named: Any) -> Any:
        try:
            return original(self, samples, *rest, **named)
        except NotFiniteError:  # --amp repeats an update from within
            raise
        except Exception as error:
            # fairseq computes the update again to find the module, and may stumble over that: its hooks end with
            # StopIteration on a module that returns a dict of lists, as every translation encoder does.
            cause = find_cause(error, FloatingPointError)
            norms = getattr(self, "_grad_norm_buf", None)
            if cause is None or ("inconsistent" in str(cause) and norms is not None and norms.isfinite().all()):
                raise  # the latter: gradients are finite, but not the same
            found = _find_in_all_processes(self, samples, cause)
            raise NotFiniteError(_sentence(self, found, cause)) from cause

    @replace(AMPOptimizer, "clip_grad_norm")
    def clip_grad_norm(original: Any, self: AMPOptimizer, max_norm: float, aggregate_norm_fn: Any = None) -> Any:
        if self.scaler.is_enabled():
            return original(self, max_norm, aggregate_norm_fn)
        norm = self.fp32_optimizer.clip_grad_norm(max_norm, aggregate_norm_fn)
        if not torch.isfinite(norm).all():  # there is no scaler that would skip the step
            raise FloatingPointError("gradients are Nan/Inf")
        return norm


REPAIR = Repair(
    why="a loss or gradients that are not finite end training with 'StopIteration', from the hooks of fairseq's own "
    "search for the module, with --amp on a CPU with \"no attribute '_backoff_factor'\", on several GPUs as if "
    "gradients were inconsistent, and never with a word about the batch",
    remedy=_apply,
)
