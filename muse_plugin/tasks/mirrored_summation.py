"""Mirrored summation: a synthetic task that needs words far from each other (arXiv:1912.00544, section 5.1).

A sentence is N vectors a_1 .. a_N, drawn from U(0, 1)^d; the target is the sum over i = 1 .. K of a_i * a_(N-i+1),
element by element. For K up to N / 2 the best constant prediction has a mean squared error of 7 K / 144.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II

from muse_plugin.contracts.flag import check_values, flag, size


@dataclass
class MirroredSummationConfig(FairseqDataclass):
    """Flags of mirrored summation; defaults are the paper's."""

    length: int = size(100, "vectors per sentence, N")
    vector_size: int = size(50, "width of a vector, d")
    terms: int = flag(50, "products in the sum, K")
    train_sentences: int = size(200_000, "size of the training set")
    valid_sentences: int = size(2_000, "size of the validation set")
    test_sentences: int = size(200_000, "size of the test set")
    data_seed: int = flag(1, "the data are a function of this number")
    seed: int = II("common.seed")


class MirroredSums(FairseqDataset):
    """Sentences that are drawn when they are read, always the same.

    Args:
        count: number of sentences.
        length: N.
        vector_size: d.
        terms: K.
        seed: of this split.
    """

    can_reuse_epoch_itr_across_epochs = False

    def __init__(self, count: int, length: int, vector_size: int, terms: int, seed: tuple[int, ...], shuffle: bool):
        super().__init__()
        self.count, self.length, self.vector_size, self.terms = count, length, vector_size, terms
        self.seed, self.shuffle = seed, shuffle
        self.sizes = np.full(count, length)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = np.random.default_rng((*self.seed, int(index)))
        vectors = generator.random((self.length, self.vector_size), dtype=np.float32)
        target = (vectors[: self.terms] * vectors[::-1][: self.terms]).sum(axis=0)
        return {"id": index, "vectors": torch.from_numpy(vectors), "target": torch.from_numpy(target)}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Makes a batch: "src_tokens" are vectors, shape (B, N, d), "target" sums, shape (B, d)."""
        if not samples:
            return {}
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": {
                "src_tokens": torch.stack([sample["vectors"] for sample in samples]),
                "src_lengths": torch.full((len(samples),), self.length),
            },
            "target": torch.stack([sample["target"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": len(samples) * self.length,
        }

    def num_tokens(self, index: int) -> int:
        """N."""
        return self.length

    size = num_tokens

    def ordered_indices(self) -> np.ndarray:
        """At random for training; fairseq has seeded numpy by then."""
        return np.random.permutation(self.count) if self.shuffle else np.arange(self.count)


@register_task("muse_mirrored_summation", dataclass=MirroredSummationConfig)
class MuseMirroredSummationTask(FairseqTask):
    """Predicts the sum of products of vectors that mirror each other; see the top of this file."""

    predicts = "number"
    pairs = False
    max_words = source_dictionary = target_dictionary = character_dictionary = unknown_index = has_heads = None
    labels: list[str] = []
    loads_checkpoint = False
    cfg: MirroredSummationConfig

    def __init__(self, cfg: MirroredSummationConfig) -> None:
        super().__init__(cfg)
        check_values(cfg, MirroredSummationConfig)
        if not 1 <= cfg.terms <= cfg.length:
            raise ValueError(
                f"--terms must lie between 1 and --length, which is {cfg.length}, but got {cfg.terms}; there are only "
                "that many pairs of mirrored vectors."
            )
        self.vector_size = self.outputs = cfg.vector_size

    @classmethod
    def setup_task(cls, cfg: MirroredSummationConfig, **kwargs: Any) -> "MuseMirroredSummationTask":
        """Called by fairseq, with arguments that do not matter here."""
        return cls(cfg)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> MirroredSums:
        """Makes a split: train, valid or test.

        Raises:
            ValueError: if it is none of these.
        """
        splits = ("train", "valid", "test")
        if split not in splits:
            raise ValueError(f"mirrored summation has the splits {', '.join(splits)}, but got {split!r}.")
        cfg = self.cfg
        self.datasets[split] = MirroredSums(
            getattr(cfg, f"{split}_sentences"),
            cfg.length,
            cfg.vector_size,
            cfg.terms,
            (cfg.data_seed, splits.index(split)),
            shuffle=split == "train",
        )
        return self.datasets[split]
