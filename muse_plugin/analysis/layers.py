"""The layers of a model, from the bottom; what every analysis numbers by."""

from collections.abc import Iterator

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
