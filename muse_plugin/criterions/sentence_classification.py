"""Cross-entropy of labels, with accuracy and F1."""

import math
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import nn

from muse_plugin.criterions.class_counts import count_classes, log_f1, log_share, log_sums


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """No flags."""


@register_criterion("muse_sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class MuseSentenceClassificationCriterion(FairseqCriterion):
    """Cross-entropy of one label per sentence.

    Logs the loss in bits per sentence and ``accuracy`` in percent; in validation also, in percent, ``macro_f1`` over
    the labels that occur and, if labels are few, ``f1_LABEL``. For the best checkpoint: ``--best-checkpoint-metric
    accuracy --maximize-best-checkpoint-metric``.
    """

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        check_task(task, "label", "muse_sentence_classification")

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: a sentence model.
            sample: see ``SentenceDataset.collater``; labels, shape (B,).
            reduce: sum over the batch.

        Returns:
            The loss in nats, summed, or of each sentence; the number of sentences; and what is logged.
        """
        logits = model(**sample["net_input"]).logits
        target = sample["target"]
        loss = F.cross_entropy(logits.float(), target, reduction="sum" if reduce else "none")
        said = logits.argmax(dim=-1)
        log = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": len(target),
            "_correct": (said == target).sum(),
        }
        if not model.training:
            log.update(count_classes(said, target, self.task.labels))
        return loss, len(target), log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        log_loss(logging_outputs)
        log_sums(logging_outputs, ("_correct", "_decisions"))
        log_share("accuracy", "_correct", "_decisions")
        log_f1(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Everything logged is a sum."""
        return True


def log_loss(logging_outputs: list[dict[str, Any]]) -> None:
    """Logs the loss in bits per decision, and keeps their number for shares."""
    size = sum(float(log.get("sample_size", 0)) for log in logging_outputs)
    total = sum(float(log.get("loss", 0)) for log in logging_outputs)
    metrics.log_scalar("loss", total / max(size, 1.0) / math.log(2), size, round=4)
    for log in logging_outputs:
        log.setdefault("_decisions", log.get("sample_size", 0))


def check_task(task: Any, predicts: str, criterion: str) -> None:
    """Raises ValueError unless the task predicts what the criterion measures."""
    criterions = {
        "label": "muse_sentence_classification",
        "number": "muse_sentence_regression",
        "tags": "muse_sequence_tagging",
    }
    have = getattr(task, "predicts", None)
    if have != predicts:
        wanted = criterions.get(str(have))
        raise ValueError(
            f"--criterion {criterion} is for tasks that predict a {predicts.rstrip('s')}, but this one predicts "
            f"{have or 'none'}; use "
            + (f"--criterion {wanted}." if wanted else "it with --task muse_sentence_classification and its kin.")
        )
