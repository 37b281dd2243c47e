"""What stands for a word before the encoder: its vector, a second fixed vector, its characters, side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.character_encoder import CharacterEncoder


class WordEmbedder(nn.Module):
    """Ids to vectors: tables and characters side by side, dropout, and a linear map to the encoder's width.

    Args:
        words: the table of word vectors.
        output_size: width C that the encoder wants.
        extra: a second table, for the same ids; None for none.
        characters: makes a vector of a word's characters; None for none.
        dropout: probability in [0, 1) of dropping a channel, before the linear map; training only.
        always_project: have the linear map even if widths agree.
    """

    def __init__(
        self,
        words: nn.Embedding,
        output_size: int,
        extra: nn.Embedding | None = None,
        characters: CharacterEncoder | None = None,
        dropout: float = 0.0,
        always_project: bool = True,
    ) -> None:
        super().__init__()
        self.words = words
        self.extra = extra
        self.characters = characters
        self.dropout = nn.Dropout(dropout)
        width = words.embedding_dim
        width += 0 if extra is None else extra.embedding_dim
        width += 0 if characters is None else characters.output_size
        self.projection = nn.Linear(width, output_size) if always_project or width != output_size else None

    def forward(self, tokens: Tensor, characters: Tensor | None = None) -> Tensor:
        """Embeds.

        Args:
            tokens: ids, shape (B, T).
            characters: ids of the characters of each word, shape (B, T, W); needed where there is a character encoder.

        Returns:
            Shape (B, T, C).

        Raises:
            ValueError: if characters are needed and missing.
        """
        parts = [self.words(tokens)]
        if self.extra is not None:
            parts.append(self.extra(tokens))
        if self.characters is not None:
            if characters is None:
                raise ValueError(
                    "this embedder reads the characters of every word, but the data have none; prepare them with "
                    "their characters."
                )
            parts.append(self.characters(characters))
        x: Tensor = self.dropout(torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0])
        return x if self.projection is None else self.projection(x)
