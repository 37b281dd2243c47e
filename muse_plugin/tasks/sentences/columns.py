"""Texts and labels on disk, in the layout of fairseq's task ``sentence_prediction``.

DATA/input0 and, for pairs, DATA/input1 hold words, DATA/label labels or tags, DATA/characters0 and characters1 the
characters of those words; each folder is what ``fairseq-preprocess --only-source`` makes of a text file, with its
dict.txt. DATA/label/SPLIT.label holds numbers instead, one line per sentence. ``muse-plugin prepare-text`` writes it.
"""

import struct
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils, indexed_dataset
from torch import Tensor

# Stands between the characters of one word and the next.
WORD_SEPARATOR = "\N{LOWER ONE EIGHTH BLOCK}"
# Of which a word may have many, in an address of the web for instance.
LONGEST_WORD = 50
IGNORED_TAG = -1
_NO_SEPARATOR = -1


class Sentence(NamedTuple):
    """One text as ids.

    Attributes:
        tokens: one id per word, shape (T,), int64.
        characters: ids of the characters of each word, each shape (1 .. ``LONGEST_WORD``,); None without characters.
    """

    tokens: Tensor
    characters: Optional[list[Tensor]] = None


class Texts:
    """One text per line, loaded lazily; the sign for the end that fairseq adds is left out.

    Args:
        folder: DATA/input0 or DATA/input1.
        split: name of the split.
        dictionary: of words.
        characters: folder of the characters of those words and their dictionary; None for none.
        longest: words read of a text; None for all.
        dropped: the id of a word that is left out of what is read, where a text has others; None for none.

    Attributes:
        lengths: words of each text on disk.
        read: words of each text within ``longest``.
        sizes: words of each text as it is handed out.

    Raises:
        FileNotFoundError: if there is no such split.
        ValueError: if a text has no word.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        dictionary: Dictionary,
        characters: Optional[tuple[Path, Dictionary]] = None,
        longest: Optional[int] = None,
        dropped: Optional[int] = None,
    ) -> None:
        self.folder = folder
        self.dropped = dropped
        self.tokens = load_column(folder, split, dictionary)
        self.lengths = count_tokens(self.tokens, dictionary)
        empty = np.flatnonzero(self.lengths == 0)
        if len(empty) > 0:
            raise ValueError(
                f"every text must have at least one word, but {len(empty)} of {folder / split} have none, the first in "
                f"line {empty[0] + 1}; leave those lines out, of the labels too, and binarise again."
            )
        self.sizes = self.read = self.lengths if longest is None else np.minimum(self.lengths, longest)
        self.characters = None
        if characters is not None:
            self.characters = load_column(characters[0], split, characters[1])
            known = WORD_SEPARATOR in characters[1]  # not where no text has two words
            self.separator = characters[1].index(WORD_SEPARATOR) if known else _NO_SEPARATOR
            self.end = characters[1].eos()
            check_count(characters[0] / split, len(self.characters), "lines of characters", len(self.tokens))
        if dropped is not None:
            self.sizes = np.array([len(self[i].tokens) for i in range(len(self))], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Sentence:
        size = int(self.read[index])
        tokens = self.tokens[index][:size].long()
        if self.dropped is not None:
            tokens = tokens[find_kept(tokens, self.dropped)]
        if self.characters is None:
            return Sentence(tokens)
        row = self.characters[index].long()
        words = cut_into_words(row[row != self.end], self.separator)
        if len(words) != self.lengths[index]:
            raise ValueError(
                f"every word must have its characters, but line {index + 1} of {self.folder} has "
                f"{self.lengths[index]} words and characters of {len(words)}; prepare both from the same text."
            )
        return Sentence(tokens, words[:size])


def find_kept(tokens: Tensor, dropped: int) -> Tensor:
    """The places of a text, shape (T,), whose words are read; one of the dropped ones stays where there is no other."""
    kept = (tokens != dropped).nonzero()[:, 0]
    return kept if len(kept) else torch.arange(len(tokens))[:1]


def load_column(folder: Path, split: str, dictionary: Dictionary) -> Any:
    """Loads a binarised text.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is damaged.
    """
    path = str(folder / split)
    try:
        kind = indexed_dataset.infer_dataset_impl(path) or "cached"
        dataset = None if kind == "fasta" else data_utils.load_indexed_dataset(path, dictionary, kind)
    except (ValueError, OverflowError, MemoryError, OSError, KeyError, AssertionError, struct.error) as error:
        raise ValueError(
            f"the data must be as prepare-text wrote them, but reading {folder / split}.idx and .bin gave "
            f"'{str(error)[:100]}'; they are cut short or damaged: prepare them again."
        ) from error
    if dataset is None:
        raise FileNotFoundError(
            f"the data must hold {folder / split}.bin and .idx, but they are not there; prepare that split with "
            "muse-plugin prepare-text."
        )
    return dataset


def count_tokens(dataset: Any, dictionary: Dictionary) -> np.ndarray:
    """Words per line, without the sign for the end that ``fairseq-preprocess`` adds to each."""
    ends = len(dataset) > 0 and len(dataset[0]) > 0 and int(dataset[0][-1]) == dictionary.eos()
    return np.asarray(dataset.sizes, dtype=np.int64) - int(ends)


def cut_into_words(row: Tensor, separator: int) -> list[Tensor]:
    """Cuts the characters of a sentence into those of its words, at most ``LONGEST_WORD`` each."""
    cuts = (row == separator).nonzero().squeeze(1).tolist()
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(row)]
    return [row[start:end][:LONGEST_WORD] for start, end in zip(starts, ends, strict=True)]


def load_labels(folder: Path, split: str, dictionary: Dictionary, sentences: int) -> Tensor:
    """One label per sentence.

    Returns:
        Numbers of classes from 0, shape (sentences,), int64.

    Raises:
        ValueError: if there are more or fewer labels than sentences, more than one in a line, or an unknown one.
    """
    dataset = load_column(folder, split, dictionary)
    check_count(folder / split, len(dataset), "labels", sentences)
    counts = count_tokens(dataset, dictionary)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong) > 0:
        raise ValueError(
            f"every sentence must have one label, but line {wrong[0] + 1} of {folder / split} has {counts[wrong[0]]}; "
            "a tag per word needs --task muse_sequence_tagging."
        )
    labels = torch.stack([dataset[i][0] for i in range(len(dataset))]).long() - dictionary.nspecial
    check_targets(folder / split, labels < 0)
    return labels


def load_tags(folder: Path, split: str, dictionary: Dictionary, texts: Texts) -> list[Tensor]:
    """One tag per word.

    Returns:
        Numbers of tags from 0 for each sentence, each shape (T,), int64, cut as the texts are.

    Raises:
        ValueError: if a sentence has more or fewer tags than words, or an unknown one.
    """
    dataset = load_column(folder, split, dictionary)
    check_count(folder / split, len(dataset), "lines of tags", len(texts))
    counts = count_tokens(dataset, dictionary)
    wrong = np.flatnonzero(counts != texts.lengths)
    if len(wrong) > 0:
        raise ValueError(
            f"every word must have one tag, but line {wrong[0] + 1} of {folder / split} has {counts[wrong[0]]} tags "
            f"for {texts.lengths[wrong[0]]} words; prepare both from the same file, or if there is a label for each "
            "text, use --task muse_sentence_classification."
        )
    tags = [dataset[i][: texts.sizes[i]].long() - dictionary.nspecial for i in range(len(dataset))]
    check_targets(folder / split, torch.tensor([bool((row < 0).any()) for row in tags]))
    return tags


def load_numbers(path: Path, count: int, sentences: int) -> Tensor:
    """Numbers of each sentence, from a text file with one line per sentence.

    Returns:
        Shape (sentences, count), float32.

    Raises:
        FileNotFoundError: if the file is not there.
        ValueError: if a line does not hold ``count`` finite numbers, or there are more or fewer lines than sentences.
    """
    if not path.is_file():
        found = "the data have labels: drop --numbers" if (path.parent / "dict.txt").is_file() else "it is not there"
        raise FileNotFoundError(
            f"--numbers reads {path}, but {found}; or prepare the data with muse-plugin prepare-text --numbers."
        )
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = [float(entry) for entry in line.split()]
            except ValueError:
                row = []
            if len(row) != count or not np.isfinite(row).all():
                raise ValueError(
                    f"--numbers {count} needs as many finite numbers in every line, but line {number} of {path} is "
                    f"{line.rstrip()!r}."
                )
            rows.append(row)
    check_count(path, len(rows), "lines of numbers", sentences)
    return torch.tensor(rows, dtype=torch.float32).view(len(rows), count)


def check_count(path: Path, have: int, what: str, sentences: int) -> None:
    """Raises ValueError unless there is one line per sentence."""
    if have != sentences:
        raise ValueError(
            f"every sentence must have its line, but {path} has {have} {what} for {sentences} sentences; prepare both "
            "from the same file."
        )


def check_targets(path: Path, unknown: Tensor) -> None:
    """Raises ValueError if a line is marked as unknown."""
    lines = unknown.nonzero().squeeze(1).tolist()
    if lines:
        raise ValueError(
            f"every label must be in label/dict.txt, made from the training data, but {len(lines)} lines of {path} "
            f"hold another one, the first is line {lines[0] + 1}; correct the file, or prepare the data again."
        )
