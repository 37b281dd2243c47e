"""``muse-plugin benchmark train``: time and memory of a training step, against fairseq's models and the plain form."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.optim.adam import Adam

from muse_plugin.benchmark import contestants
from muse_plugin.benchmark.contestants import Lab
from muse_plugin.benchmark.measurement import Measurement, measure_memory, measure_time
from muse_plugin.criterions.fused_label_smoothed_cross_entropy import NAME as FUSED_LOSS

FAIRSEQ_LOSS = "label_smoothed_cross_entropy"
_SUFFIX = ", fairseq's loss"
CONTESTANTS = (
    contestants.TRANSFORMER,
    contestants.DYNAMIC_CONV,
    contestants.MUSE_UNFUSED,
    contestants.MUSE + _SUFFIX,
    contestants.MUSE,
    contestants.SIMPLE,
)
_DROPOUT = {"dropout": 0.1}  # as in the published base setting: no dropout of attention weights


def measure(args: argparse.Namespace) -> Iterator[Measurement]:
    """Measures every setting and length."""
    lab = Lab(args.vocabulary, args.share_all_embeddings)
    names = contestants.select(CONTESTANTS, args)
    for setting in args.setting:
        torch.manual_seed(args.seed)
        for length in args.lengths:
            sample = lab.make_sample(max(1, args.tokens // length), length, args.device)
            case = {"setting": setting, "length": length}
            work = {"tokens": sample["ntokens"]}
            if args.memory:
                yield Measurement(case, names[0], _measure_memory(lab, names, setting, sample, args), "bytes", work)
                continue
            steps = {name: TrainingStep(lab, name, setting, sample, args) for name in names}
            seconds = measure_time(steps, args.device, args.rounds, max_seconds=args.max_seconds)
            yield Measurement(case, names[0], seconds, work=work)


def _measure_memory(
    lab: Lab, names: list[str], setting: str, sample: dict[str, Any], args: argparse.Namespace
) -> dict[str, list[float]]:
    """One model after the other, so that only one lies in memory; weights and Adam's state count."""
    values = {}
    for name in names:
        step = TrainingStep(lab, name, setting, sample, args)
        (beyond,) = measure_memory({name: step}, args.device)[name]
        values[name] = [step.count_bytes() + beyond]
    return values


class TrainingStep:
    """One update of a model on one batch; calling it makes the next one.

    Args:
        lab: that builds the model.
        name: of the contestant; with the suffix ", fairseq's loss" ours does without the fused loss.
        setting: see ``contestants.SETTINGS``.
        sample: fairseq's batch.
        args: ``device`` and ``dtype``.
    """

    def __init__(self, lab: Lab, name: str, setting: str, sample: dict[str, Any], args: argparse.Namespace) -> None:
        model_name = name.removesuffix(_SUFFIX)
        is_ours = name in (contestants.MUSE, contestants.SIMPLE)
        self.model = lab.build(model_name, setting, **_DROPOUT).to(args.device, args.dtype).train()
        self.criterion = make_criterion(FUSED_LOSS if is_ours else FAIRSEQ_LOSS, lab)
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


def make_criterion(name: str, lab: Lab) -> FairseqCriterion:
    """Builds a criterion with label smoothing 0.1."""
    build: Callable[..., FairseqCriterion] = CRITERION_REGISTRY[name]
    return build(argparse.Namespace(target_dictionary=lab.dictionary), sentence_avg=False, label_smoothing=0.1)
