"""A sentence in, a tag for every word out: parts of speech, named entities."""

from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task

from muse_plugin.tasks.sentences.columns import Texts, load_tags
from muse_plugin.tasks.sentences.sentence_task import SentenceTask, SentenceTaskConfig, flag


@dataclass
class SequenceTaggingConfig(SentenceTaskConfig):
    """Flags of sequence tagging."""

    entities: bool = flag(
        False, "tags are B-X, I-X and O: measure entities as conlleval does (needs seqeval), besides tags"
    )


@register_task("muse_sequence_tagging", dataclass=SequenceTaggingConfig)
class MuseSequenceTaggingTask(SentenceTask):
    """Tags words, from columns of words and tags; see ``SentenceTask``."""

    predicts = "tags"

    def __init__(self, cfg: SequenceTaggingConfig) -> None:
        super().__init__(cfg)
        wrong = [tag for tag in self.labels if tag != "O" and not (tag[:2] in ("B-", "I-") and len(tag) > 2)]
        if cfg.entities and wrong:
            raise ValueError(
                f"--entities needs tags O, B-X and I-X, but label/dict.txt in {self.folder} has "
                f"{', '.join(wrong[:5])}; drop the flag to measure tags alone."
            )

    def load_targets(self, split: str, texts: Texts) -> Any:
        """See ``SentenceTask``."""
        assert self.label_dictionary is not None
        return load_tags(self.folder / "label", split, self.label_dictionary, texts)
