"""``muse-plugin benchmark loss``: output layer and label-smoothed loss, forward and backward, against fairseq's."""

import argparse
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from muse_plugin.benchmark.measurement import Case
from muse_plugin.benchmark.systems import ModelFactory
from muse_plugin.benchmark.training_speed import FAIRSEQ_LOSS, make_criterion
from muse_plugin.criterions.fused_label_smoothed_cross_entropy import NAME as FUSED_LOSS

FAIRSEQ = "fairseq"
OURS = "muse_plugin"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every width and vocabulary."""
    for width, vocabulary in itertools.product(args.widths, args.vocabularies):
        torch.manual_seed(args.seed)
        factory = ModelFactory(vocabulary)
        model = _OutputLayer(args.tokens, width, vocabulary).to(args.device, args.dtype)
        target = factory.make_tokens(1, args.tokens, args.device)
        names = {FAIRSEQ: FAIRSEQ_LOSS, OURS: FUSED_LOSS}
        runs = {name: _make_run(factory, loss, model, target) for name, loss in names.items()}
        yield Case({"width": width, "vocabulary": vocabulary}, runs.items(), args.tokens)


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
        return sample["target"]


def _make_run(factory: ModelFactory, loss_name: str, model: _OutputLayer, target: Tensor) -> Callable[[], object]:
    criterion = make_criterion(loss_name, factory)
    sample = {"net_input": {}, "target": target, "ntokens": target.numel(), "nsentences": 1}

    def run() -> None:
        loss, sample_size, _ = criterion(model, sample)
        (loss / sample_size).backward()
        model.zero_grad(set_to_none=True)

    return run
