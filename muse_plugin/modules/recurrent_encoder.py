"""Recurrent networks that never read padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from muse_plugin.modules.padding_mask import mask_padding


def run_unpadded(network: nn.GRU | nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Runs a recurrent network over real tokens only.

    On a GPU the sequences are packed, which cuDNN does well. On the CPU PyTorch's gradient of packed sequences takes
    time that grows with the square of the length: every step's slice has a gradient of the whole batch's size. There
    each direction runs over the padded batch, the second one over each sequence turned round within its length, so that
    padding comes after all real tokens in both. The states are the same.

    Args:
        network: with ``batch_first`` and biases, without a projection of the states.
        x: shape (B, T, C), padding on the right.
        lengths: number of real tokens, shape (B,); a sentence of none counts as one token.

    Returns:
        Shape (B, T, C_out), zeros at padding.
    """
    lengths = lengths.clamp(min=1)
    if x.device.type != "cpu":
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(network(packed)[0], batch_first=True, total_length=x.shape[1])[0]
    position = torch.arange(x.shape[1])
    padding = mask_padding(lengths, x.shape[1])
    turned = torch.where(padding, position, lengths.unsqueeze(1) - 1 - position)
    x = x.masked_fill(padding.unsqueeze(2), 0)
    for layer in range(network.num_layers):
        if layer:
            x = functional.dropout(x, network.dropout, network.training)
        states = [_run_direction(network, x, f"l{layer}")]
        if network.bidirectional:
            states.append(_reorder(_run_direction(network, _reorder(x, turned), f"l{layer}_reverse"), turned))
        x = torch.cat(states, dim=2).masked_fill(padding.unsqueeze(2), 0)
    return x


def _run_direction(network: nn.GRU | nn.LSTM, x: Tensor, suffix: str) -> Tensor:
    """One layer from left to right: (B, T, C) -> (B, T, hidden_size)."""
    weights = [getattr(network, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    start = x.new_zeros(1, len(x), network.hidden_size)
    if isinstance(network, nn.LSTM):
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, network.training, False, True)[0]
    return torch.gru(x, start, weights, True, 1, 0.0, network.training, False, True)[0]


def _reorder(x: Tensor, index: Tensor) -> Tensor:
    """Positions of (B, T, C) in the order of ``index`` (B, T)."""
    return x.gather(1, index.unsqueeze(2).expand_as(x))


class BiGRU(nn.Module):
    """A stack of bidirectional gated recurrent units (Cho et al. 2014; the reset gate acts as in cuDNN).

    Args:
        input_size: width of what it reads.
        hidden_size: width of a state in one direction.
        num_layers: height of the stack.
        dropout: probability in [0, 1) of dropping a channel between layers, training only.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_size = 2 * hidden_size
        self.gru = nn.GRU(
            input_size,
            hidden_size,
            num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes.

        Args:
            x: shape (B, T, C), padding on the right.
            lengths: number of real tokens, shape (B,).
            key_padding_mask: not needed, lengths say the same.

        Returns:
            Shape (B, T, 2 * hidden_size), zeros at padding.
        """
        return run_unpadded(self.gru, x, lengths)
