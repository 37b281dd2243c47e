"""Batches of sentences or pairs, with what is to be predicted."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import torch
from fairseq.data import FairseqDataset, data_utils
from torch import Tensor

from muse_plugin.tasks.sentences.columns import IGNORED_TAG, Sentence

# Sentences of similar length are looked for among this many at a time.
_SORTED_TOGETHER = 1600
# Lengths are taken by this much longer or shorter, at random, so that other sentences meet in each epoch.
_LENGTH_NOISE = 0.2


class SentenceDataset(FairseqDataset):
    """Sentences or pairs and their targets.

    Args:
        texts: one column, or two for pairs; each with ``sizes`` (words per sentence) and items ``Sentence``.
        padding: id that fills short sentences.
        character_padding: id that fills short words; None without characters.
        targets: labels (N,), numbers (N, D), or one tensor of tags (T,) per sentence; None without.
        shuffle: order sentences at random, again in each epoch; sentences of similar length still meet in batches.
    """

    can_reuse_epoch_itr_across_epochs = False

    def __init__(
        self,
        texts: Sequence[Any],
        padding: int,
        character_padding: Optional[int] = None,
        targets: Optional[Union[Tensor, list[Tensor]]] = None,
        shuffle: bool = False,
    ) -> None:
        super().__init__()
        self.texts = texts
        self.padding = padding
        self.character_padding = character_padding
        self.targets = targets
        self.shuffle = shuffle
        self.sizes = np.max([column.sizes for column in texts], axis=0)

    def __len__(self) -> int:
        return len(self.texts[0])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "id": index,
            "texts": [column[index] for column in self.texts],
            "target": None if self.targets is None else self.targets[index],
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Makes a batch.

        Args:
            samples: items of this data set.

        Returns:
            "id" (B,); "net_input" with ids "src_tokens" (B, T), "src_lengths" (B,), "src_characters" (B, T, W) where
            there are characters, and the same under "pair_" for the second sentences; "target": labels (B,), numbers
            (B, D) or tags (B, T) with -1 at padding, where there are any; "nsentences"; "ntokens", all words read.
        """
        if not samples:
            return {}
        net_input: dict[str, Tensor] = {}
        tokens = 0
        for prefix, number in zip(("src", "pair"), range(len(self.texts)), strict=False):
            rows = [sample["texts"][number] for sample in samples]
            net_input[f"{prefix}_tokens"] = data_utils.collate_tokens([row.tokens for row in rows], self.padding)
            net_input[f"{prefix}_lengths"] = torch.tensor([len(row.tokens) for row in rows])
            if self.character_padding is not None:
                net_input[f"{prefix}_characters"] = collate_characters(rows, self.character_padding)
            tokens += sum(len(row.tokens) for row in rows)
        batch: dict[str, Any] = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": net_input,
            "nsentences": len(samples),
            "ntokens": tokens,
        }
        if self.targets is not None:
            targets = [sample["target"] for sample in samples]
            tagged = isinstance(self.targets, list)
            batch["target"] = data_utils.collate_tokens(targets, IGNORED_TAG) if tagged else torch.stack(targets)
        return batch

    def num_tokens(self, index: int) -> int:
        """Words of a sentence, of the longer one of a pair."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """``num_tokens`` of several."""
        return self.sizes[indices]

    size = num_tokens

    def ordered_indices(self) -> np.ndarray:
        """The order in which sentences become batches; fairseq has seeded numpy by then.

        Without ``shuffle`` by length. With it, at random, and then roughly by length within stretches.
        """
        if not self.shuffle:
            return np.argsort(self.sizes, kind="stable")
        order = np.random.permutation(len(self))
        lengths = self.sizes * np.random.uniform(1 - _LENGTH_NOISE, 1 + _LENGTH_NOISE, len(self))
        parts = [order[start : start + _SORTED_TOGETHER] for start in range(0, len(order), _SORTED_TOGETHER)]
        return np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts] or [order])


def collate_characters(rows: Sequence[Sentence], padding: int) -> Tensor:
    """Characters of all words, shape (B, T, W), padding after the end of words and sentences."""
    words = [row.characters or [] for row in rows]
    longest = max(len(row) for row in words)
    width = max((len(word) for row in words for word in row), default=1)
    out = torch.full((len(rows), longest, max(width, 1)), padding)
    for i, row in enumerate(words):
        for j, word in enumerate(row):
            out[i, j, : len(word)] = word
    return out
