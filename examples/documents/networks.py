"""Networks without data: what ``parameters.py`` and ``speed.py`` build."""

from argparse import Namespace

from fairseq.models import build_model
from torch import nn

from muse_plugin.benchmark.systems import ModelFactory


def build(name: str, words: int, classes: int, **flags: object) -> nn.Module:
    """A model as ``train.sh`` makes it, for a vocabulary of made-up words.

    Args:
        name: for ``--arch``.
        words: size of the vocabulary, with the four special symbols.
        classes: number of outputs.
        **flags: other than the defaults of the model.
    """
    task = ModelFactory(words).make_sentence_task(classes)
    return build_model(Namespace(_name=name, arch=name, **flags), task)


def count(*modules: nn.Module) -> int:
    """Parameters of modules."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
