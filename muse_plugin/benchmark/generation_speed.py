"""``muse-plugin benchmark generate``: beam search with fairseq's generator, against fairseq's own models."""

import argparse
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator

import torch
from fairseq.sequence_generator import SequenceGenerator

from muse_plugin.benchmark import contestants
from muse_plugin.benchmark.contestants import Lab
from muse_plugin.benchmark.measurement import Measurement, measure_time

CONTESTANTS = {
    "six_layers": (
        contestants.TRANSFORMER,
        contestants.SIMPLE_ORDINARY,
        contestants.SIMPLE,
        contestants.SIMPLE_INT8,
    ),
    "base": (contestants.DYNAMIC_CONV, contestants.TRANSFORMER, contestants.MUSE, contestants.MUSE_INT8),
}
_DEFAULT = (contestants.DYNAMIC_CONV, contestants.TRANSFORMER, contestants.MUSE)


def measure(args: argparse.Namespace) -> Iterator[Measurement]:
    """Measures every setting, number of sentences and length."""
    lab = Lab(args.vocabulary)
    for setting in args.setting:
        torch.manual_seed(args.seed)
        names = contestants.select(CONTESTANTS.get(setting, _DEFAULT), args)
        models = {name: _prepare(lab, name, setting, args) for name in names}
        for sentences, length in itertools.product(args.sentences, args.lengths):
            source = lab.make_tokens(sentences, length, args.device)
            searches = {name: make_search(lab, model, source, args.beam) for name, model in models.items()}
            yield Measurement(
                {"setting": setting, "sentences": sentences, "length": length},
                names[0],
                measure_time(searches, args.device, args.rounds, 1 if length <= 100 else 0, args.max_seconds),
                work={"tokens": sentences * length},
            )


def _prepare(lab: Lab, name: str, setting: str, args: argparse.Namespace) -> torch.nn.Module:
    model = lab.build(name, setting).to(args.device, args.dtype).eval()
    if not name.endswith("ordinary form"):
        generation = Namespace(beam=args.beam, print_alignment=None, replace_unk=None, no_beamable_mm=False)
        model.prepare_for_inference_(Namespace(generation=generation))
    return model


def make_search(lab: Lab, model: torch.nn.Module, source: torch.Tensor, beam: int) -> Callable[[], object]:
    """Returns a function that translates the sentences, with as many tokens as they have."""
    length = source.shape[1]
    # min_len does not count end-of-sentence: with both limits, every hypothesis has ``length`` tokens and its end.
    limits = {"max_len_a": 0, "max_len_b": length, "min_len": length}
    generator = SequenceGenerator([model], lab.dictionary, beam_size=beam, **limits)
    lengths = torch.full((len(source),), length, device=source.device)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}

    def search() -> object:
        with torch.no_grad():
            return generator.generate([], sample)

    return search
