"""One sentence or a pair in, a label or a number out."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from muse_plugin.contracts.flag import flag
from muse_plugin.tasks.sentences.columns import Texts, load_labels, load_numbers
from muse_plugin.tasks.sentences.sentence_task import SentenceTask, SentenceTaskConfig


@dataclass
class SentenceClassificationConfig(SentenceTaskConfig):
    """Flags of sentence classification."""

    numbers: int = flag(
        0,
        "predict that many numbers per sentence, from label/SPLIT.label, instead of a label; train them with "
        "--criterion muse_sentence_regression",
    )
    unknown_words: ChoiceEnum(["keep", "drop"]) = flag(
        "keep",
        "read words that the dictionary lacks as one unknown word (keep), or leave them out of the text (drop); a text "
        "of nothing else is one unknown word",
    )


@register_task("muse_sentence_classification", dataclass=SentenceClassificationConfig)
class MuseSentenceClassificationTask(SentenceTask):
    """Classification or regression of sentences and pairs, from the layout of fairseq's ``sentence_prediction``."""

    def __init__(self, cfg: SentenceClassificationConfig) -> None:
        if cfg.numbers < 0:
            raise ValueError(f"--numbers must be at least 0, but got {cfg.numbers}; 0 is for labels.")
        if cfg.numbers:
            self.predicts = "number"
        super().__init__(cfg)
        if str(cfg.unknown_words) == "drop":
            if self.character_dictionary is not None:
                raise ValueError(
                    f"--unknown-words drop is for data of words alone, but {self.folder} has their characters, which "
                    "tell unknown words apart; drop the flag, or prepare the data without --characters."
                )
            self.dropped = self.unknown_index

    @property
    def outputs(self) -> int:
        """See ``SentenceTask``."""
        return self.cfg.numbers or super().outputs

    def load_label_dictionary(self) -> Optional[Dictionary]:
        """See ``SentenceTask``."""
        return None if self.cfg.numbers else super().load_label_dictionary()

    def load_targets(self, split: str, texts: Texts) -> Any:
        """See ``SentenceTask``."""
        folder = self.folder / "label"
        if self.cfg.numbers:
            return load_numbers(folder / f"{split}.label", self.cfg.numbers, len(texts))
        return load_labels(folder, split, self.label_dictionary, len(texts))
