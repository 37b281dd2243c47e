"""``muse-plugin benchmark train``: time and memory of a training step, against fairseq's models and the plain form."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import FairseqOptimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import OmegaConf

from muse_plugin.benchmark import systems
from muse_plugin.benchmark.measurement import Case
from muse_plugin.benchmark.systems import ModelFactory
from muse_plugin.criterions.fused_label_smoothed_cross_entropy import NAME as FUSED_LOSS

FAIRSEQ_LOSS = "label_smoothed_cross_entropy"
_SUFFIX = ", fairseq's loss"
SYSTEMS = (
    systems.TRANSFORMER,
    systems.DYNAMIC_CONV,
    systems.MUSE_UNFUSED,
    systems.MUSE + _SUFFIX,
    systems.MUSE,
    systems.SIMPLE,
)
_DROPOUT = {"dropout": 0.1}  # as in the published base setting: no dropout of attention weights


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every setting and length; steps are made one after the other, so that their memory can be measured."""
    factory = ModelFactory(args.vocabulary, args.share_all_embeddings)
    names = systems.select(SYSTEMS, args)
    for setting in args.setting:
        torch.manual_seed(args.seed)
        for length in args.lengths:
            sample = factory.make_sample(max(1, args.tokens // length), length, args.device)
            step = partial(TrainingStep, factory, setting=setting, sample=sample, args=args)
            steps = ((name, step(name)) for name in names)
            yield Case({"setting": setting, "length": length}, steps, sample["ntokens"])


class TrainingStep:
    """One update of a model on one batch; calling it makes the next one.

    Args:
        factory: that builds the model.
        name: of the system; with the suffix ", fairseq's loss" ours does without the fused loss.
        setting: see ``systems.SETTINGS``.
        sample: fairseq's batch.
        args: ``device`` and ``dtype``.
    """

    def __init__(
        self, factory: ModelFactory, name: str, setting: str, sample: dict[str, Any], args: argparse.Namespace
    ) -> None:
        model_name = name.removesuffix(_SUFFIX)
        is_ours = name in (systems.MUSE, systems.SIMPLE)
        self.model = factory.build(model_name, setting, **_DROPOUT).to(args.device, args.dtype).train()
        self.criterion = make_criterion(FUSED_LOSS if is_ours else FAIRSEQ_LOSS, factory)
        self.optimizer = make_optimizer(list(self.model.parameters()), args)
        self.sample = sample

    def __call__(self) -> None:
        """Makes the update."""
        loss, sample_size, _ = self.criterion(self.model, self.sample)
        self.optimizer.backward(loss)
        self.optimizer.multiply_grads(1 / sample_size)
        self.optimizer.clip_grad_norm(1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def count_bytes(self) -> int:
        """Bytes of the weights, of their copy in float32 and its gradient, and of Adam's state."""
        groups = self.optimizer.optimizer.param_groups
        tensors: list[torch.Tensor] = [*self.model.parameters()]
        if isinstance(self.optimizer, FP16Optimizer):
            tensors += [x for group in groups for weight in group["params"] for x in (weight, weight.grad)]
        states = self.optimizer.optimizer.state.values()
        tensors += [x for state in states for x in state.values() if isinstance(x, torch.Tensor)]
        return sum(x.numel() * x.element_size() for x in tensors)


def make_optimizer(parameters: list[torch.nn.Parameter], args: argparse.Namespace) -> FairseqOptimizer:
    """Builds Adam as fairseq-train does, in half precision for a copy of the weights in float32."""
    config = OmegaConf.structured(FairseqConfig)
    config.optimizer = OmegaConf.structured(FairseqAdamConfig(_name="adam", adam_betas="(0.9, 0.98)", lr=[1e-4]))
    if args.dtype == torch.float32:
        return FairseqAdam(config.optimizer, parameters)
    config.common.bf16 = args.dtype == torch.bfloat16
    config.common.fp16_no_flatten_grads = args.device.type == "cpu"  # fairseq flattens on GPUs alone
    optimizer = FP16Optimizer.build_optimizer(config, parameters)
    if optimizer.scaler is not None:
        optimizer.scaler.loss_scale = 2**-6  # where fairseq's trainer ends, which skips updates that overflow
    return optimizer


def make_criterion(name: str, factory: ModelFactory) -> FairseqCriterion:
    """Builds a criterion with label smoothing 0.1."""
    build: Callable[..., FairseqCriterion] = CRITERION_REGISTRY[name]
    return build(argparse.Namespace(target_dictionary=factory.dictionary), sentence_avg=False, label_smoothing=0.1)
