"""Vectors of a word's case, shape and affixes, which new names have in common with known ones.

Sources: capitalisation and suffixes as features of a word, Collobert et al. 2011 (JMLR 12, section 6.1); a hash
instead of a list of all shapes and affixes, Miranda et al. 2022 (arXiv:2212.09255). Everything is computed from the ids
of a word's characters, so data that have characters need nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

WORD_FEATURES = ("case", "shape", "affixes")
LOWER, UPPER, DIGIT, _OTHER = range(1, 5)  # 0 is padding
_CASES = 1 << 5  # a bit each: first is upper, later upper, lower, digit, other
_LONGEST = 4  # of a run in a shape: Xxxx for Xxxxxx
_BUCKETS = 4096  # rows of a table whose entries are hashed
_BASE, _MODULUS = 1_000_003, 2_147_483_647  # products stay below 2**63
_AFFIXES = (3, -2, -3)  # characters from the start, or from the end if negative


class WordFeatures(nn.Module):
    """Words as sequences of characters to the vectors of their features, side by side.

    Case is which kinds of characters a word has. Its shape is the kind of each character, other signs as they are, of
    a run at most four. Affixes are the first three, last two and last three characters in lower case.

    Args:
        kinds: out of ``WORD_FEATURES``.
        symbols: the character of each id; what is longer than a character is no letter.
        padding_idx: the id that fills short words.
        embed_dim: width of each vector.

    Raises:
        ValueError: if kinds are none, unknown or twice, or case is asked for where no symbol is in upper case.
    """

    lowered: Tensor
    classes: Tensor

    def __init__(self, kinds: Sequence[str], symbols: Sequence[str], padding_idx: int, embed_dim: int) -> None:
        super().__init__()
        if not kinds or len({*kinds}) < len(kinds) or not {*kinds} <= {*WORD_FEATURES}:
            raise ValueError(f"kinds must be some of {', '.join(WORD_FEATURES)}, each once, but got {list(kinds)}.")
        if "case" in kinds and not any(len(symbol) == 1 and symbol.isupper() for symbol in symbols):
            raise ValueError(
                "the feature case needs text with upper-case letters, but the characters have none; leave case out, or "
                "prepare the text as it is written."
            )
        self.kinds = tuple(kinds)
        self.padding_idx = padding_idx
        self.output_size = embed_dim * sum(len(_AFFIXES) if kind == "affixes" else 1 for kind in kinds)
        ids = {symbol: i for i, symbol in enumerate(symbols)}
        lowered = [ids.get(symbol.lower(), i) if len(symbol) == 1 else i for i, symbol in enumerate(symbols)]
        classes = [_classify(symbol) if i != padding_idx else 0 for i, symbol in enumerate(symbols)]
        # Made of the dictionary, which a checkpoint is checked against: not part of it.
        self.register_buffer("lowered", torch.tensor(lowered), persistent=False)
        self.register_buffer("classes", torch.tensor(classes), persistent=False)
        sizes = [_CASES] * ("case" in kinds) + [_BUCKETS] * ("shape" in kinds)
        sizes += [_BUCKETS] * len(_AFFIXES) * ("affixes" in kinds)
        self.tables = nn.ModuleList()
        for size in sizes:
            table = nn.Embedding(size, embed_dim)
            nn.init.uniform_(table.weight, -((3 / embed_dim) ** 0.5), (3 / embed_dim) ** 0.5)
            self.tables.append(table)

    def forward(self, characters: Tensor) -> Tensor:
        """Embeds the features.

        Args:
            characters: ids, shape (B, T, W), the characters of a word first and then padding.

        Returns:
            Shape (B, T, ``output_size``); zeros where a word is nothing but padding.
        """
        indices = self.find_features(characters)
        out = torch.cat([table(row) for table, row in zip(self.tables, indices, strict=True)], dim=-1)
        return out * characters.ne(self.padding_idx).any(dim=-1, keepdim=True)

    def find_features(self, characters: Tensor) -> list[Tensor]:
        """The row in each table of words (B, T, W): shape (B, T) each."""
        found = []
        classes = self.classes[characters]
        if "case" in self.kinds:
            found.append(self._find_case(classes))
        if "shape" in self.kinds:
            found.append(self._find_shape(characters, classes))
        if "affixes" in self.kinds:
            lengths = characters.ne(self.padding_idx).sum(dim=-1, keepdim=True)
            lowered = self.lowered[characters]
            for size in _AFFIXES:
                places = torch.arange(abs(size), device=characters.device) + (0 if size > 0 else lengths + size)
                inside = (places >= 0) & (places < lengths)
                last = characters.shape[-1] - 1
                ids = lowered.gather(-1, places.clamp(0, last).expand(*characters.shape[:-1], -1))
                found.append(_hash(ids, inside))
        return found

    def _find_case(self, classes: Tensor) -> Tensor:
        upper = classes == UPPER
        rest = torch.cat([torch.zeros_like(upper[..., :1]), upper[..., 1:]], dim=-1)
        bits = [upper[..., 0], rest.any(-1), *((classes == kind).any(-1) for kind in (LOWER, DIGIT, _OTHER))]
        return torch.stack([bit.long() << place for place, bit in enumerate(bits)]).sum(dim=0)

    def _find_shape(self, characters: Tensor, classes: Tensor) -> Tensor:
        # A sign stands for itself, and is told from the classes of letters and digits by what is added to its id.
        signs = torch.where(classes == _OTHER, characters + _OTHER, classes)
        kept = classes > 0
        if signs.shape[-1] > _LONGEST:
            windows = signs.unfold(-1, _LONGEST + 1, 1)  # (B, T, W - 4, 5)
            kept = kept.clone()
            kept[..., _LONGEST:] &= (windows != windows[..., :1]).any(dim=-1)
        return _hash(signs, kept)


def _classify(symbol: str) -> int:
    if len(symbol) != 1:
        return _OTHER
    if symbol.isupper():
        return UPPER
    if symbol.isdigit():
        return DIGIT
    return LOWER if symbol.isalpha() else _OTHER


def _hash(ids: Tensor, kept: Tensor) -> Tensor:
    """The bucket of each sequence of ids (..., W), of those that are ``kept``: a polynomial, as a string's hash."""
    code = torch.zeros_like(ids[..., 0])
    for place in range(ids.shape[-1]):
        code = torch.where(kept[..., place], (code * _BASE + ids[..., place] + 1) % _MODULUS, code)
    return code % _BUCKETS
