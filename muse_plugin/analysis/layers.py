"""The layers of a model, from the bottom; what every analysis numbers by."""

from collections.abc import Iterator
from typing import Any, Union

from torch import nn

SIDES = ("encoder", "decoder")


def iterate_layers(model: nn.Module) -> Iterator[tuple[str, int, nn.Module]]:
    """Yields (side, number from 1 at the bottom, layer).

    Args:
        model: with an ``encoder`` and perhaps a ``decoder``; one without ``layers`` counts as a single layer.
    """
    for side in SIDES:
        root = getattr(model, side, None)
        if root is not None:
            layers = getattr(root, "layers", None)
            for number, layer in enumerate([root] if layers is None else layers, start=1):
                yield side, number, layer


def iterate_parts(model: nn.Module, kind: Union[type, tuple[type, ...]]) -> Iterator[tuple[str, int, Any]]:
    """Yields (side, number of the layer, module) for the modules of a kind within the layers of a model."""
    for side, number, layer in iterate_layers(model):
        yield from ((side, number, module) for module in layer.modules() if isinstance(module, kind))
