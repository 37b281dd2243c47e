"""The data set of training pairs whose segmentation differs from epoch to epoch."""

from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import (
    AppendTokenDataset,
    Dictionary,
    FairseqDataset,
    LanguagePairDataset,
    StripTokenDataset,
    TruncateDataset,
)

from muse_plugin.tasks.bpe_dropout.background import BackgroundSegmenter


class FlatTokens(FairseqDataset):
    """Sentences of one language in one array.

    Takes 2 bytes per token (4 with a dictionary of more than 65,536 symbols) and 12 per sentence.

    Args:
        ids: of all sentences one after another.
        lengths: ids per sentence.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self._ids = ids
        self._starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=self._starts[1:])
        self.sizes = lengths

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self._ids[self._starts[index] : self._starts[index + 1]].astype(np.int64))

    def num_tokens(self, index: int) -> int:
        """Length of a sentence in tokens."""
        return int(self.sizes[index])

    size = num_tokens


class ResegmentedPairs(LanguagePairDataset):
    """Sentence pairs that ``set_epoch`` replaces by another segmentation of the same text.

    Every epoch holds every pair, under the same number, but lengths differ; fairseq makes new batches for each epoch,
    with its limits on tokens per batch and positions per sentence applied to the lengths of that epoch. Memory, for
    both languages together: 4 bytes per pair of tokens and 40 per pair of sentences, and twice as much when an epoch
    begins; the next epoch waits in a temporary file of the same size. 4.5 million pairs of 30 tokens take 0.7 GB.

    Args:
        segmenter: gives the segmented text.
        epoch: to begin with, counted from 1.
        src_dict: dictionary of the source language.
        tgt_dict: dictionary of the target language.
        max_source_tokens: longer sources are cut to this length, the token that ends them included; None cuts none.
        **settings: of ``LanguagePairDataset``.

    Raises:
        RuntimeError: if the text could not be segmented; ``set_epoch`` raises it, too.
    """

    # So that fairseq makes new batches for each epoch, and new worker processes that see the new text.
    can_reuse_epoch_itr_across_epochs = False

    def __init__(
        self,
        segmenter: BackgroundSegmenter,
        epoch: int,
        src_dict: Dictionary,
        tgt_dict: Dictionary,
        max_source_tokens: Optional[int],
        **settings: Any,
    ) -> None:
        self.segmenter = segmenter
        self._dictionaries = src_dict, tgt_dict
        self._max_source_tokens = max_source_tokens
        self._settings = settings
        self._fill(epoch)

    def _fill(self, epoch: int) -> None:
        src_dict, tgt_dict = self._dictionaries
        source, target = (FlatTokens(text.ids, text.lengths) for text in self.segmenter.take(epoch))
        if self._max_source_tokens is not None:
            words = TruncateDataset(StripTokenDataset(source, src_dict.eos()), self._max_source_tokens - 1)
            source = AppendTokenDataset(words, src_dict.eos())
        # Everything the base class derives from lengths, buckets for instance, has to be made again.
        super().__init__(source, source.sizes, src_dict, target, target.sizes, tgt_dict, **self._settings)
        self.epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Takes the segmentation of an epoch, counted from 1; waits for it if need be."""
        if epoch != self.epoch:
            self._fill(epoch)
