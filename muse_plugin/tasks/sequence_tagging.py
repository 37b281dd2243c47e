"""A sentence in, a tag for every word out: parts of speech, named entities."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from torch import Tensor

from muse_plugin.contracts.flag import flag
from muse_plugin.tasks.sentences.columns import Texts, load_tags
from muse_plugin.tasks.sentences.sentence_task import SentenceTask, SentenceTaskConfig
from muse_plugin.text.bio_tags import find_bad_continuations, is_bio_tag

logger = logging.getLogger(__name__)


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
        wrong = [tag for tag in self.labels if not is_bio_tag(tag)]
        if cfg.entities and wrong:
            raise ValueError(
                f"--entities needs tags O, B-X and I-X, but label/dict.txt in {self.folder} has "
                f"{', '.join(wrong[:5])}; drop the flag to measure tags alone."
            )

    def load_targets(self, split: str, texts: Texts) -> Any:
        """See ``SentenceTask``."""
        targets = load_tags(self.folder / "label", split, self.label_dictionary, texts)
        if self.cfg.entities:
            self._report_bad_continuations(targets, split)
        return targets

    def _report_bad_continuations(self, targets: Iterable[Tensor], split: str) -> None:
        counts = [len(find_bad_continuations([self.labels[index] for index in row.tolist()])) for row in targets]
        if any(counts):
            first = next(number for number, count in enumerate(counts, start=1) if count)
            logger.warning(
                f"{split}: {sum(counts):,} tags I-X continue nothing, the first in line {first}; conlleval's rules "
                "count each as the beginning of an entity. muse-plugin prepare-text --tags bio refuses them, with "
                "--bad-tags repair it makes them B-X."
            )
