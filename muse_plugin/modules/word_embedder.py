"""What stands for a word before the encoder: its vector, a second fixed one, characters and features, side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from muse_plugin.modules.character_encoder import CharacterEncoder
from muse_plugin.modules.word_features import WordFeatures


class WordEmbedder(nn.Module):
    """Ids to vectors: tables, characters and features side by side, dropout, and a linear map to the encoder's width.

    Args:
        words: the table of word vectors.
        output_size: width C that the encoder wants.
        extra: a second table, for the same ids; None for none.
        characters: makes a vector of a word's characters; None for none.
        dropout: probability in [0, 1) of dropping a channel, before the linear map; training only.
        always_project: have the linear map even if widths agree.
        features: makes a vector of a word's case, shape and affixes; None for none.
        word_dropout: probability in [0, 1) that a word is unknown to the tables, so that characters and features have
            to do, and the unknown word learns; training only.
        unknown_idx: the id of the unknown word.
    """

    def __init__(
        self,
        words: nn.Embedding,
        output_size: int,
        extra: nn.Embedding | None = None,
        characters: CharacterEncoder | None = None,
        dropout: float = 0.0,
        always_project: bool = True,
        features: WordFeatures | None = None,
        word_dropout: float = 0.0,
        unknown_idx: int = 3,
    ) -> None:
        super().__init__()
        self.words = words
        self.extra = extra
        self.characters = characters
        self.features = features
        self.word_dropout = word_dropout
        self.unknown_idx = unknown_idx
        self.dropout = nn.Dropout(dropout)
        width = words.embedding_dim
        width += 0 if extra is None else extra.embedding_dim
        width += 0 if characters is None else characters.output_size
        width += 0 if features is None else features.output_size
        self.projection = nn.Linear(width, output_size) if always_project or width != output_size else None

    def forward(self, tokens: Tensor, characters: Tensor | None = None) -> Tensor:
        """Embeds.

        Args:
            tokens: ids, shape (B, T).
            characters: ids of the characters of each word, shape (B, T, W); needed where there is a character
                encoder, or features.

        Returns:
            Shape (B, T, C).

        Raises:
            ValueError: if characters are needed and missing.
        """
        if self.training and self.word_dropout > 0:
            padding = -1 if self.words.padding_idx is None else self.words.padding_idx
            dropped = torch.rand(tokens.shape, device=tokens.device) < self.word_dropout
            tokens = tokens.masked_fill(dropped & tokens.ne(padding), self.unknown_idx)
        parts = [self.words(tokens)]
        if self.extra is not None:
            parts.append(self.extra(tokens))
        for encoder in (self.characters, self.features):
            if encoder is None:
                continue
            if characters is None:
                raise ValueError(
                    "this embedder reads the characters of every word, but the data have none; prepare them with "
                    "their characters."
                )
            parts.append(encoder(characters))
        x: Tensor = self.dropout(torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0])
        return x if self.projection is None else self.projection(x)
