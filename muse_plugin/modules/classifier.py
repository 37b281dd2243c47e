"""The two-layer network on top of a sentence vector."""

from __future__ import annotations

from torch import nn

ACTIVATIONS = {"leaky_relu": nn.LeakyReLU, "relu": nn.ReLU, "elu": nn.ELU, "tanh": nn.Tanh}


def build_classifier(
    input_size: int,
    hidden_size: int,
    output_size: int,
    activation: str = "leaky_relu",
    dropout: float = 0.0,
    input_dropout: float | None = None,
) -> nn.Sequential:
    """Linear, activation, linear, each linear layer behind a dropout.

    Args:
        input_size: width of the sentence vector or of the pair's features.
        hidden_size: width of the hidden layer; 0 for a single linear layer.
        output_size: number of classes or of numbers.
        activation: a key of ``ACTIVATIONS``.
        dropout: probability in [0, 1) of dropping a channel, training only.
        input_dropout: that of the input; ``dropout`` if None.

    Raises:
        ValueError: if the activation is unknown or a size negative.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, but got {activation!r}.")
    if hidden_size < 0:
        raise ValueError(f"hidden_size must be at least 0, but got {hidden_size}; 0 is a single layer.")
    layers: list[nn.Module] = [nn.Dropout(dropout if input_dropout is None else input_dropout)]
    if hidden_size > 0:
        layers += [nn.Linear(input_size, hidden_size), ACTIVATIONS[activation](), nn.Dropout(dropout)]
    layers.append(nn.Linear(hidden_size or input_size, output_size))
    return nn.Sequential(*layers)
