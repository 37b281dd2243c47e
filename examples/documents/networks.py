"""Networks without data: what ``parameters.py`` and ``speed.py`` build."""

from argparse import Namespace
from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import build_model
from torch import nn

import muse_plugin  # noqa: F401  (registers the models)


def build(name: str, words: int, classes: int, **flags: object) -> nn.Module:
    """A model as ``train.sh`` makes it, for a vocabulary of made-up words.

    Args:
        name: for ``--arch``.
        words: size of the vocabulary, with the four special symbols.
        classes: number of outputs.
        **flags: other than the defaults of the model.
    """
    dictionary = Dictionary()
    for number in range(words - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    task = SimpleNamespace(
        predicts="label",
        outputs=classes,
        labels=[str(number) for number in range(classes)],
        pairs=False,
        vector_size=0,
        max_words=None,
        has_heads=None,
        loads_checkpoint=False,
        source_dictionary=dictionary,
        character_dictionary=None,
    )
    model: nn.Module = build_model(Namespace(_name=name, arch=name, **flags), task)
    return model


def count(*modules: nn.Module) -> int:
    """Parameters of modules."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
