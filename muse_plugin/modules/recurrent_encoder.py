"""Recurrent networks that never read padding."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def run_packed(network: nn.RNNBase, x: Tensor, lengths: Tensor) -> Tensor:
    """Runs a recurrent network over real tokens only.

    Args:
        network: with ``batch_first``.
        x: shape (B, T, C), padding on the right.
        lengths: number of real tokens, shape (B,); a sentence of none counts as one token.

    Returns:
        Shape (B, T, C_out), zeros at padding.
    """
    packed = pack_padded_sequence(x, lengths.cpu().clamp(min=1), batch_first=True, enforce_sorted=False)
    states, _ = network(packed)
    padded: Tensor = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]
    return padded


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
        return run_packed(self.gru, x, lengths)
