"""The base of tasks that read sentences from disk."""

import functools
import hashlib
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, FairseqLanguageModel
from fairseq.tasks import FairseqTask
from omegaconf import MISSING, DictConfig, open_dict
from torch import Tensor

from muse_plugin.contracts.flag import flag
from muse_plugin.contracts.sentences import CRITERIONS
from muse_plugin.tasks.sentences.columns import LONGEST_WORD, WORD_SEPARATOR, Sentence, Texts, find_kept
from muse_plugin.tasks.sentences.sentence_dataset import SentenceDataset
from muse_plugin.text import FILLER
from muse_plugin.text.lowered_words import LoweredWord, find_character, written_form
from muse_plugin.text.text_settings import find_sentence_settings, load_text_settings

logger = logging.getLogger(__name__)


@dataclass
class SentenceTaskConfig(FairseqDataclass):
    """Flags of tasks that read sentences."""

    data: str = flag(MISSING, "folder of the data, made by muse-plugin prepare-text")
    max_words: int = flag(512, "longest text, in words")
    long_texts: ChoiceEnum(["truncate", "refuse"]) = flag(
        "truncate", "what happens to longer ones: truncate (the first words are kept; how many texts is logged), refuse"
    )
    no_shuffle: bool = flag(
        False,
        "make batches of texts in the order of their length instead of at random; fairseq shuffles the batches",
    )


class EncodedTexts(list[Sentence]):
    """Sentences that are in memory already; the same interface as ``Texts``."""

    @property
    def sizes(self) -> np.ndarray:
        """Words of each sentence."""
        return np.array([len(sentence.tokens) for sentence in self], dtype=np.int64)


class SentenceTask(FairseqTask):
    """Reads sentences or pairs; subclasses say what is predicted.

    Its attributes are those that models and criterions ask for: ``TaskOfSentences``.
    """

    predicts = "label"
    vector_size = 0
    loads_checkpoint = False
    has_heads: Optional[bool] = None
    dropped: Optional[int] = None  # the id of a word that is not read
    source_dictionary: Optional[Dictionary] = None
    target_dictionary: Optional[Dictionary] = None
    cfg: Any

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        if cfg.max_words < 1:
            raise ValueError(f"--max-words must be at least 1, but got {cfg.max_words}.")
        self.max_words: int = cfg.max_words
        self.folder = Path(cfg.data)
        self.dictionary = self.source_dictionary = _load_dictionary(self.folder / "input0")
        self.pairs = (self.folder / "input1").is_dir()
        if self.pairs and _load_dictionary(self.folder / "input1") != self.dictionary:
            raise ValueError(
                f"both texts of a pair must have one dictionary, but those of input0 and input1 in {self.folder} "
                "differ; prepare the data with muse-plugin prepare-text, or binarise input1 with --srcdict "
                "input0/dict.txt."
            )
        self.character_dictionary: Optional[Dictionary] = None
        if (self.folder / "characters0").is_dir():
            self.character_dictionary = _load_dictionary(self.folder / "characters0")
        self.label_dictionary = self.target_dictionary = self.load_label_dictionary()
        self.labels = [] if self.label_dictionary is None else list_labels(self.label_dictionary, self.folder)
        self.state.merge_state_dict({"dictionaries": self._fingerprint_dictionaries()})
        logger.info(f"dictionary: {len(self.dictionary):,} words; labels: {' '.join(self.labels) or 'none'}")

    @functools.cached_property
    def unknown_index(self) -> int:
        """The id that an unknown word has in the data; word pieces have one of their own."""
        piece = None
        if find_sentence_settings(self.folder).is_file():
            piece = load_text_settings(self.folder)[0].settings.unknown_piece
        return int(self.dictionary.index(piece or self.dictionary.unk_word))

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "SentenceTask":
        """Called by fairseq, with arguments that do not matter here."""
        return cls(cfg)

    def _fingerprint_dictionaries(self) -> dict[str, str]:
        """Hashes of the symbols and their order, by file; every checkpoint has them."""
        dictionaries = {
            "input0/dict.txt": self.dictionary,
            "characters0/dict.txt": self.character_dictionary,
            "label/dict.txt": self.label_dictionary,
        }
        return {
            name: hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()
            for name, dictionary in dictionaries.items()
            if dictionary is not None
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called by fairseq with what a checkpoint that is to be used says of its data.

        Raises:
            ValueError: if a dictionary is another one, even one of the same size: every number would mean another word.
        """
        own = self.state.dictionaries
        others = [name for name, digest in state_dict.get("dictionaries", {}).items() if own.get(name) != digest]
        if others:
            raise ValueError(
                f"the data must be those that the model was trained with, but {' and '.join(others)} in {self.folder} "
                "has other entries; name the folder of the training data, or prepare the new text with its "
                "dictionaries (muse-plugin prepare-text --dict-from)."
            )

    @property
    def outputs(self) -> int:
        """Number of outputs of the model."""
        return len(self.labels)

    def load_label_dictionary(self) -> Optional[Dictionary]:
        """The dictionary of labels or tags; None for numbers."""
        folder = self.folder / "label"
        if next(folder.glob("*.label"), None) is not None:
            raise ValueError(
                f"labels need {folder / 'dict.txt'}, but these data have numbers: give --numbers, which says how many "
                f"a sentence has, and --criterion {CRITERIONS['number']}."
            )
        return _load_dictionary(folder)

    def load_targets(self, split: str, texts: Texts) -> Any:
        """What is to be predicted of a split, as ``SentenceDataset`` wants it."""
        raise NotImplementedError

    def load_dataset(
        self,
        split: str,
        combine: bool = False,
        *,
        max_words: Optional[int] = None,
        long_texts: Optional[str] = None,
        **kwargs: Any,
    ) -> SentenceDataset:
        """Loads a split.

        Args:
            split: its name; ``train`` is shuffled, and what fairseq trains with (``--train-subset``).
            combine: whether fairseq's tasks would join parts named ``train``, ``train1`` and so on.
            max_words: longest text, in words, instead of ``--max-words``.
            long_texts: what happens to longer ones, instead of ``--long-texts``.
            **kwargs: of fairseq's training; others are not used.

        Raises:
            FileNotFoundError: if it is not there.
            ValueError: if its columns do not fit each other, it is in several parts, or a text is too long and such are
                refused.
        """
        if combine and indexed_dataset.dataset_exists(str(self.folder / "input0" / f"{split}1"), "mmap"):
            raise ValueError(
                f"sentence tasks read a split of one part, but {self.folder} has {split} and {split}1; join the texts "
                "and prepare them as one."
            )
        longest, refuse = max_words or self.max_words, (long_texts or str(self.cfg.long_texts)) == "refuse"
        columns = []
        for number in range(2 if self.pairs else 1):
            characters = None
            if self.character_dictionary is not None:
                characters = self.folder / f"characters{number}", self.character_dictionary
            folder = self.folder / f"input{number}"
            columns.append(Texts(folder, split, self.dictionary, characters, longest, self.dropped))
            _report_long_texts(columns[-1], split, longest, refuse)
        if len(columns) == 2 and len(columns[0]) != len(columns[1]):
            raise ValueError(
                f"pairs must have two texts, but split {split} has {len(columns[0])} in input0 and {len(columns[1])} "
                f"in input1 of {self.folder}; prepare both from the same file."
            )
        dataset = SentenceDataset(
            columns,
            self.dictionary.pad(),
            None if self.character_dictionary is None else self.character_dictionary.pad(),
            self.load_targets(split, columns[0]),
            shuffle=(split == "train" or "data_selector" in kwargs) and not self.cfg.no_shuffle,
        )
        logger.info(f"{split}: {len(dataset):,} {'pairs' if self.pairs else 'sentences'}")
        self.datasets[split] = dataset
        return dataset

    def list_read_words(self, words: Sequence[str]) -> list[str]:
        """The words of a sentence that ``encode`` keeps."""
        if self.dropped is None:
            return list(words)
        return [words[place] for place in find_kept(self._index(words), self.dropped)]

    def _index(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([self.dictionary.index(word) for word in words], dtype=torch.int64)

    def encode(self, words: Sequence[str]) -> Sentence:
        """Ids of words but those that are dropped, and of their characters where the data have characters."""
        tokens = self._index(words)
        if self.dropped is not None:
            tokens = tokens[find_kept(tokens, self.dropped)]
        characters = self.character_dictionary
        if characters is None:
            return Sentence(tokens)
        spelled = []
        for word in words:
            written = written_form(word).replace(WORD_SEPARATOR, "_")[:LONGEST_WORD]
            find = characters.index
            if isinstance(word, LoweredWord):
                find = functools.partial(find_character, find=find, unknown=characters.unk())
            spelled.append(torch.tensor([find(character) for character in written]))
        return Sentence(tokens, spelled)

    def build_dataset_for_inference(  # type: ignore[override]
        self, src_tokens: Sequence[Sequence[Sentence]], src_lengths: Sequence[int]
    ) -> SentenceDataset:
        """Batches of sentences in memory.

        Args:
            src_tokens: the texts of each item, one or two, from ``encode``; one of a pair alone, too.
            src_lengths: not needed.
        """
        columns = [EncodedTexts(column) for column in zip(*src_tokens, strict=True)]
        padding = None if self.character_dictionary is None else self.character_dictionary.pad()
        return SentenceDataset(columns, self.dictionary.pad(), padding)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the model; what it needs is read from files only if there is no checkpoint that has it.

        Raises:
            ValueError: if it is a model that writes sentences.
        """
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if issubclass(ARCH_MODEL_REGISTRY.get(name, object), (FairseqEncoderDecoderModel, FairseqLanguageModel)):
            raise ValueError(
                f"this task needs a model of sentences, but --arch {name} writes sentences, as translation does; use "
                "one such as --arch sentence_transformer, or --task translation."
            )
        self.loads_checkpoint = from_checkpoint
        model = super().build_model(cfg, from_checkpoint)
        self.has_heads = getattr(model, "has_heads", False)
        with open_dict(cfg) if isinstance(cfg, DictConfig) else nullcontext():
            for name, value in getattr(model, "remembered", {}).items():
                setattr(cfg, name, value)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the loss.

        Raises:
            ValueError: if it is one of fairseq's, such as the one that it takes where none is named.
        """
        criterion = super().build_criterion(cfg, from_checkpoint)
        if type(criterion).__module__.startswith("fairseq."):
            raise ValueError(
                f"this task needs a criterion for what it predicts, but got --criterion {cfg._name}, which fairseq "
                f"takes where none is named; give --criterion {CRITERIONS[self.predicts]}."
            )
        return criterion

    def get_batch_iterator(self, dataset: Any, max_tokens: Optional[int] = None, *rest: Any, **named: Any) -> Any:
        """Makes the batches of a split; arguments as of ``FairseqTask.get_batch_iterator``.

        Raises:
            ValueError: if a batch cannot hold the longest text, which fairseq would leave out of a training in silence.
        """
        longest = int(dataset.sizes.max()) if len(dataset) else 0
        if max_tokens is not None and longest > max_tokens:
            raise ValueError(
                f"--max-tokens and --max-tokens-valid must hold the longest text, which has {longest} words, but one "
                f"is {max_tokens}; raise it or lower --max-words."
            )
        return super().get_batch_iterator(dataset, max_tokens, *rest, **named)


def _report_long_texts(texts: Texts, split: str, longest: int, refuse: bool) -> None:
    longer = np.flatnonzero(texts.lengths > longest)
    if len(longer) == 0:
        return
    if refuse:
        raise ValueError(
            f"--long-texts refuse allows {longest} words, but {len(longer)} texts of {texts.folder / split} are "
            f"longer, the first is line {longer[0] + 1} with {texts.lengths[longer[0]]}; raise --max-words, or "
            "truncate."
        )
    share = 100 * len(longer) / len(texts)
    logger.warning(f"{split}: {len(longer):,} texts ({share:.1f} %) are longer than {longest} words and truncated")


def _load_dictionary(folder: Path) -> Dictionary:
    path = folder / "dict.txt"
    if not path.is_file():
        raise FileNotFoundError(
            f"the data must hold {path}, but it is not there; make the data with muse-plugin prepare-text, and give "
            "their folder first, e.g. fairseq-train DATA ..."
        )
    return Dictionary.load(str(path))


def list_labels(dictionary: Dictionary, folder: Path) -> list[str]:
    """Names of the labels: what is in the dictionary, but for fairseq's symbols and those that fill it up.

    Raises:
        ValueError: if there are fewer than two.
    """
    names = [symbol for symbol in dictionary.symbols[dictionary.nspecial :] if not FILLER.fullmatch(symbol)]
    if len(names) < 2:
        raise ValueError(
            f"there must be at least two labels to tell apart, but {folder / 'label' / 'dict.txt'} has {len(names)}."
        )
    return names
