"""``muse-plugin benchmark train``: time and memory of a training step, against fairseq's models and the plain form."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.optim.adam import Adam

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
    systems.MUSE_COMPILED,
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
        is_ours = name in (systems.MUSE, systems.MUSE_COMPILED, systems.SIMPLE)
        self.model = factory.build(model_name, setting, **_DROPOUT).to(args.device, args.dtype).train()
        self.criterion = make_criterion(FUSED_LOSS if is_ours else FAIRSEQ_LOSS, factory)
        self.optimizer = Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98))
        self.sample = sample

    def __call__(self) -> None:
        """Makes the update."""
        loss, sample_size, _ = self.criterion(self.model, self.sample)
        (loss / sample_size).backward()
        utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def count_bytes(self) -> int:
        """Bytes of the weights and of the optimizer's state; gradients come and go within a step."""
        state = (x for entry in self.optimizer.state.values() for x in entry.values() if isinstance(x, torch.Tensor))
        tensors: list[torch.Tensor] = [*self.model.parameters(), *state]
        return sum(x.numel() * x.element_size() for x in tensors)


def make_criterion(name: str, factory: ModelFactory) -> FairseqCriterion:
    """Builds a criterion with label smoothing 0.1."""
    build: Callable[..., FairseqCriterion] = CRITERION_REGISTRY[name]
    return build(argparse.Namespace(target_dictionary=factory.dictionary), sentence_avg=False, label_smoothing=0.1)
