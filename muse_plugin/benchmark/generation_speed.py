"""``muse-plugin benchmark generate``: beam search with fairseq's generator, against fairseq's own models."""

import argparse
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator

import torch
from fairseq.sequence_generator import SequenceGenerator

from muse_plugin.benchmark import systems
from muse_plugin.benchmark.measurement import Case
from muse_plugin.benchmark.systems import ModelFactory

SYSTEMS = {
    "six_layers": (
        systems.TRANSFORMER,
        systems.SIMPLE_ORDINARY,
        systems.SIMPLE,
        systems.SIMPLE_STEPWISE,
        systems.SIMPLE_INT8,
    ),
    "base": (systems.DYNAMIC_CONV, systems.TRANSFORMER, systems.MUSE, systems.MUSE_STEPWISE, systems.MUSE_INT8),
}
_DEFAULT = (systems.DYNAMIC_CONV, systems.TRANSFORMER, systems.MUSE)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every setting, number of sentences and length."""
    factory = ModelFactory(args.vocabulary)
    for setting in args.setting:
        torch.manual_seed(args.seed)
        names = systems.select(SYSTEMS.get(setting, _DEFAULT), args)
        models = {name: _prepare(factory, name, setting, args) for name in names}
        for sentences, length in itertools.product(args.sentences, args.lengths):
            source = factory.make_tokens(sentences, length, args.device)
            searches = {name: make_search(factory, model, source, args.beam) for name, model in models.items()}
            case = {"setting": setting, "sentences": sentences, "length": length}
            yield Case(case, searches.items(), sentences * length, warmups=1 if length <= 100 else 0)


def _prepare(factory: ModelFactory, name: str, setting: str, args: argparse.Namespace) -> torch.nn.Module:
    model = factory.build(name, setting).to(args.device, args.dtype).eval()
    if not name.endswith("ordinary form"):
        generation = Namespace(beam=args.beam, print_alignment=None, replace_unk=None, no_beamable_mm=False)
        model.prepare_for_inference_(Namespace(generation=generation))
    return model


def make_search(factory: ModelFactory, model: torch.nn.Module, source: torch.Tensor, beam: int) -> Callable[[], object]:
    """Returns a function that translates the sentences, with as many tokens as they have."""
    length = source.shape[1]
    # min_len does not count end-of-sentence: with both limits, every hypothesis has ``length`` tokens and its end.
    limits = {"max_len_a": 0, "max_len_b": length, "min_len": length}
    generator = SequenceGenerator([model], factory.dictionary, beam_size=beam, **limits)
    lengths = torch.full((len(source),), length, device=source.device)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}

    def search() -> object:
        with torch.no_grad():
            return generator.generate([], sample)

    return search
