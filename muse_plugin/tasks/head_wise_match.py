"""Two sentences in, a label out; each sentence is read alone, so that its vectors can be kept."""

from dataclasses import dataclass

from fairseq.tasks import register_task

from muse_plugin.contracts.flag import flag
from muse_plugin.tasks.sentence_classification import MuseSentenceClassificationTask, SentenceClassificationConfig


@dataclass
class HeadWiseMatchTaskConfig(SentenceClassificationConfig):
    """Flags of head-wise match."""

    max_words: int = flag(62, "longest sentence, in words or word pieces; BERT adds [CLS] and [SEP]: 62 makes 64")


@register_task("head_wise_match", dataclass=HeadWiseMatchTaskConfig)
class HeadWiseMatchTask(MuseSentenceClassificationTask):
    """Classification of pairs, from the layout of fairseq's ``sentence_prediction`` with ``input0`` and ``input1``."""

    def __init__(self, cfg: HeadWiseMatchTaskConfig) -> None:
        super().__init__(cfg)
        if not self.pairs:
            raise ValueError(
                f"--task head_wise_match compares two sentences, but {self.folder} has no input1; prepare pairs, or "
                "use --task muse_sentence_classification."
            )
