"""A vector of each word from its characters, learned with the task: convolution or bidirectional LSTM.

Sources: convolution with a maximum over the word, Ma and Hovy 2016 (arXiv:1603.01354); last states of an LSTM in either
direction, Lample et al. 2016 (arXiv:1603.01360).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.padding_mask import mask_padding
from muse_plugin.modules.recurrent_encoder import run_unpadded

CHARACTER_ENCODERS = ("none", "cnn", "bilstm")
_WIDTH = 3


class CharacterEncoder(nn.Module):
    """Words as sequences of characters to words as vectors.

    Args:
        kind: "cnn" or "bilstm".
        num_characters: size of the dictionary of characters.
        padding_idx: the id that fills short words.
        embed_dim: width of a character's embedding.
        output_size: width of a word's vector; even for "bilstm".
        dropout: probability in [0, 1) of dropping a channel of a character's embedding, training only.

    Raises:
        ValueError: if the kind is unknown, or the width is odd for "bilstm".
    """

    def __init__(
        self, kind: str, num_characters: int, padding_idx: int, embed_dim: int, output_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if kind not in CHARACTER_ENCODERS[1:]:
            raise ValueError(f"kind must be one of {', '.join(CHARACTER_ENCODERS[1:])}, but got {kind!r}.")
        if kind == "bilstm" and output_size % 2 != 0:
            raise ValueError(f"output_size must be even for bilstm, half for each direction, but got {output_size}.")
        self.padding_idx = padding_idx
        self.output_size = output_size
        self.embedding = nn.Embedding(num_characters, embed_dim, padding_idx)
        nn.init.uniform_(self.embedding.weight, -((3 / embed_dim) ** 0.5), (3 / embed_dim) ** 0.5)
        with torch.no_grad():
            self.embedding.weight[padding_idx].zero_()
        self.dropout = nn.Dropout(dropout)
        self.conv: nn.Conv1d | None = None
        self.lstm: nn.LSTM | None = None
        if kind == "cnn":
            self.conv = nn.Conv1d(embed_dim, output_size, _WIDTH, padding=_WIDTH // 2)
        else:
            self.lstm = nn.LSTM(embed_dim, output_size // 2, batch_first=True, bidirectional=True)

    def forward(self, characters: Tensor) -> Tensor:
        """Encodes words.

        Args:
            characters: ids, shape (B, T, W), the characters of a word first and then padding; a word of nothing but
                padding (a position after the sentence) gets zeros.

        Returns:
            Shape (B, T, ``output_size``).
        """
        words = characters.flatten(0, 1)
        lengths = words.ne(self.padding_idx).sum(dim=1)
        real = lengths > 0
        out = self.embedding.weight.new_zeros(len(words), self.output_size)
        if bool(real.any()):
            embedded = self.dropout(self.embedding(words[real]))
            out = out.to(embedded.dtype)
            out[real] = self._encode(embedded, lengths[real]).to(out.dtype)
        return out.view(*characters.shape[:2], self.output_size)

    def _encode(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """(words, W, C) -> (words, output_size)."""
        if self.conv is not None:
            hidden: Tensor = self.conv(embedded.transpose(1, 2)).transpose(1, 2)
            padding = mask_padding(lengths, hidden.shape[1])
            return hidden.masked_fill(padding.unsqueeze(-1), -torch.inf).amax(dim=1)
        assert self.lstm is not None
        states = run_unpadded(self.lstm, embedded, lengths)
        forward, backward = states.chunk(2, dim=-1)
        last = (lengths - 1)[:, None, None].expand(-1, 1, forward.shape[-1])
        return torch.cat([forward.gather(1, last).squeeze(1), backward[:, 0]], dim=-1)
