"""``muse-plugin benchmark generate``: beam search with fairseq's generator, against fairseq's own and CTranslate2."""

import argparse
import importlib.util
import itertools
import logging
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from fairseq.sequence_generator import SequenceGenerator

from muse_plugin.benchmark import systems
from muse_plugin.benchmark.measurement import Case
from muse_plugin.benchmark.systems import ModelFactory

logger = logging.getLogger(__name__)
# Translates the sentences that it is made with.
Search = Callable[[], object]
# Makes a search of a system, from tokens (sentences, length) and the size of the beam.
SearchMaker = Callable[[torch.Tensor, int], Search]
_CTRANSLATE2 = (systems.CTRANSLATE2, systems.CTRANSLATE2_INT8)
_SIMPLE_ONNX = (systems.SIMPLE_ONNX, systems.SIMPLE_ONNX_INT8)
_MUSE_ONNX = (systems.MUSE_ONNX, systems.MUSE_ONNX_INT8)
# Contestants whose packages may be missing.
_PACKAGES = {_CTRANSLATE2: ("ctranslate2",), (*_SIMPLE_ONNX, *_MUSE_ONNX): ("onnx", "onnxruntime")}
SYSTEMS = {
    "six_layers": (
        systems.TRANSFORMER,
        systems.SIMPLE_ORDINARY,
        systems.SIMPLE,
        systems.SIMPLE_STEPWISE,
        systems.SIMPLE_INT8,
        *_SIMPLE_ONNX,
        *_CTRANSLATE2,
    ),
    "base": (
        systems.DYNAMIC_CONV,
        systems.TRANSFORMER,
        systems.MUSE,
        systems.MUSE_STEPWISE,
        systems.MUSE_INT8,
        *_MUSE_ONNX,
        *_CTRANSLATE2,
    ),
}
_DEFAULT = (systems.DYNAMIC_CONV, systems.TRANSFORMER, systems.MUSE, *_CTRANSLATE2)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every setting, size of the beam, number of sentences and length."""
    if max(args.lengths) >= systems.MAX_POSITIONS:
        raise ValueError(f"--lengths must be below {systems.MAX_POSITIONS}, but got {max(args.lengths)}.")
    factory = ModelFactory(args.vocabulary)
    for setting in args.setting:
        torch.manual_seed(args.seed)
        names = systems.select(SYSTEMS.get(setting, _DEFAULT), args)
        missing = _find_missing(names)
        makers: dict[str, SearchMaker] = {}
        for name in names:
            if name in missing:
                continue
            try:
                makers[name] = _prepare(factory, name, setting, args)
            except ImportError as error:
                logger.warning("%s not measured: %s", name, error)
                missing.add(name)
        if not makers:
            raise ImportError(
                f"--without must leave a contestant that can run, but got {'; '.join(names)}, whose packages are "
                "missing or do not fit; leave a name out, or install them."
            )
        for beam, sentences, length in itertools.product(args.beam, args.sentences, args.lengths):
            source = factory.make_tokens(sentences, length, args.device)
            searches = {name: make_own(source, beam) for name, make_own in makers.items()}
            case = {"setting": setting, "beam": beam, "sentences": sentences, "length": length}
            absent = tuple(name for name in names if name in missing)
            yield Case(case, searches.items(), sentences * length, 1 if length <= 100 else 0, absent)


def _find_missing(names: Sequence[str]) -> set[str]:
    """The contestants whose package is not installed, after saying so."""
    missing: set[str] = set()
    for users, packages in _PACKAGES.items():
        asked = set(users) & set(names)
        wanted = [package for package in packages if importlib.util.find_spec(package) is None]
        if asked and wanted:
            logger.warning("%s not measured: pip install %s adds it.", "; ".join(sorted(asked)), " ".join(wanted))
            missing |= asked
    return missing


def _prepare(factory: ModelFactory, name: str, setting: str, args: argparse.Namespace) -> SearchMaker:
    model = factory.build(name, setting).eval()
    if name in _CTRANSLATE2:
        from muse_plugin.benchmark.ctranslate2_search import CTranslate2Search

        compute_type = "int8" if name == systems.CTRANSLATE2_INT8 else str(args.dtype).removeprefix("torch.")
        return CTranslate2Search(factory, model, args.device, compute_type).make_search
    model = model.to(args.device, args.dtype)
    if not name.endswith("ordinary form"):
        generation = Namespace(beam=max(args.beam), print_alignment=None, replace_unk=None, no_beamable_mm=False)
        model.prepare_for_inference_(Namespace(generation=generation))
    return partial(make_search, factory, model)


def make_search(factory: ModelFactory, model: torch.nn.Module, source: torch.Tensor, beam: int) -> Search:
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
