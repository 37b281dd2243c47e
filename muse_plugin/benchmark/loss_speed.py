"""``muse-plugin benchmark loss``: output layer and label-smoothed loss, forward and backward, against fairseq's."""

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from muse_plugin.benchmark.contestants import Lab
from muse_plugin.benchmark.measurement import Measurement, measure_memory, measure_time
from muse_plugin.benchmark.training_speed import FAIRSEQ_LOSS, make_criterion
from muse_plugin.criterions.fused_label_smoothed_cross_entropy import NAME as FUSED_LOSS

FAIRSEQ = "fairseq"
OURS = "muse_plugin"


def measure(args: argparse.Namespace) -> Iterator[Measurement]:
    """Measures every width and vocabulary."""
    for width in args.widths:
        for vocabulary in args.vocabularies:
            torch.manual_seed(args.seed)
            lab = Lab(vocabulary)
            model = _OutputLayer(args.tokens, width, vocabulary).to(args.device, args.dtype)
            target = lab.make_tokens(1, args.tokens, args.device)
            names = {FAIRSEQ: FAIRSEQ_LOSS, OURS: FUSED_LOSS}
            runs = {name: _make_run(lab, loss, model, target) for name, loss in names.items()}
            case, work = {"width": width, "vocabulary": vocabulary}, {"tokens": args.tokens}
            if args.memory:
                yield Measurement(case, FAIRSEQ, measure_memory(runs, args.device), "bytes", work)
            else:
                seconds = measure_time(runs, args.device, args.rounds, max_seconds=args.max_seconds)
                yield Measurement(case, FAIRSEQ, seconds, work=work)


class _OutputLayer(nn.Module):
    """A model that consists of nothing but the states and the output layer."""

    def __init__(self, tokens: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(1, tokens, width))
        self.decoder = Namespace(output_projection=nn.Linear(width, vocabulary, bias=False))
        self.weight = self.decoder.output_projection.weight

    def forward(self, features_only: bool = False) -> tuple[Tensor, None]:
        """Returns states, or scores of all words."""
        return (self.states if features_only else nn.functional.linear(self.states, self.weight)), None

    def get_normalized_probs(self, net_output: tuple[Tensor, None], log_probs: bool) -> Tensor:
        """What fairseq's criterion asks for."""
        assert log_probs
        return torch.log_softmax(net_output[0], dim=-1, dtype=torch.float32)

    def get_targets(self, sample: dict[str, Any], _: object) -> Tensor:
        """What fairseq's criterion asks for."""
        target: Tensor = sample["target"]
        return target


def _make_run(lab: Lab, loss_name: str, model: _OutputLayer, target: Tensor) -> Callable[[], object]:
    criterion = make_criterion(loss_name, lab)
    sample = {"net_input": {}, "target": target, "ntokens": target.numel(), "nsentences": 1}

    def run() -> None:
        loss, sample_size, _ = criterion(model, sample)
        (loss / sample_size).backward()
        model.zero_grad(set_to_none=True)

    return run
