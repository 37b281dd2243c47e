"""Cross-entropy of tags or the likelihood of whole tag sequences, with accuracy of tags and F1 of entities."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import nn

from muse_plugin.criterions.class_counts import count_classes, f1, log_f1, log_share, log_sums
from muse_plugin.criterions.entities import count_entities
from muse_plugin.criterions.sentence_classification import check_task, log_loss

_IGNORED = -1
_ENTITY_SUMS = ("_entities_right", "_entities_predicted", "_entities_gold")


@dataclass
class SequenceTaggingCriterionConfig(FairseqDataclass):
    """No flags."""


@register_criterion("muse_sequence_tagging", dataclass=SequenceTaggingCriterionConfig)
class MuseSequenceTaggingCriterion(FairseqCriterion):
    """The loss of a tagger: cross-entropy per word, or with ``--crf`` the negative log-likelihood of its sequences.

    Logs the loss in bits per word and ``accuracy`` in percent (in training that of the best tag of each word, also with
    ``--crf``); in validation also ``macro_f1``, ``f1_TAG`` if tags are few and, with ``--entities``, ``entity_f1``,
    ``entity_precision`` and ``entity_recall``, in percent, as conlleval counts them.
    """

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        check_task(task, "tags", "muse_sequence_tagging")

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: a sentence model.
            sample: see ``SentenceDataset.collater``; tags, shape (B, T), -1 at padding.
            reduce: sum over the batch.

        Returns:
            The loss in nats, summed, or of each sentence; the number of words; and what is logged.
        """
        target, lengths = sample["target"], sample["net_input"]["src_lengths"]
        prediction = model(**sample["net_input"], target=target)
        losses = prediction.losses
        if losses is None:
            logits = prediction.logits.float().transpose(1, 2)
            losses = F.cross_entropy(logits, target, ignore_index=_IGNORED, reduction="none").sum(dim=1)
        words = int(lengths.sum())
        log = {
            "loss": losses.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": words,
        }
        real = target != _IGNORED
        if model.training:  # without Viterbi decoding, which takes its time
            log["_correct"] = (prediction.logits.argmax(-1) == target)[real].sum()
        else:
            best = model.best_tags(prediction.logits, lengths)  # type: ignore[operator]
            predicted = torch.tensor([tag for row in best for tag in row], device=target.device)
            log["_correct"] = (predicted == target[real]).sum()
            log.update(count_classes(predicted, target[real], self.task.labels))
            if self.task.cfg.entities:
                names = self.task.labels
                gold = [row[:length] for row, length in zip(target.tolist(), lengths.tolist(), strict=True)]
                counts = count_entities(
                    [[names[tag] for tag in row] for row in best], [[names[tag] for tag in row] for row in gold]
                )
                log.update(zip(_ENTITY_SUMS, counts, strict=True))
        return losses.sum() if reduce else losses, words, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        log_loss(logging_outputs)
        log_sums(logging_outputs, ("_correct", "_decisions"))
        log_share("accuracy", "_correct", "_decisions")
        log_f1(logging_outputs)
        if any(_ENTITY_SUMS[0] in log for log in logging_outputs):
            log_sums(logging_outputs, _ENTITY_SUMS)
            log_share("entity_precision", _ENTITY_SUMS[0], _ENTITY_SUMS[1])
            log_share("entity_recall", _ENTITY_SUMS[0], _ENTITY_SUMS[2])
            metrics.log_derived("entity_f1", lambda meters: round(f1(*(meters[key].sum for key in _ENTITY_SUMS)), 4))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Everything logged is a sum."""
        return True
