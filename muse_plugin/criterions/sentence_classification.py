"""Cross-entropy of labels, with accuracy and F1; and penalties for heads that are alike."""

import math
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from muse_plugin.contracts.flag import flag
from muse_plugin.criterions.class_counts import count_classes, log_f1, log_sums
from muse_plugin.criterions.sentence_criterion import SentenceCriterion

_WEIGHT = 0.2  # arXiv:1912.00835


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Flags of the loss."""

    disagreement: ChoiceEnum(["none", "penal", "emb"]) = flag(
        "none",
        "in training, add how alike the heads of --pooling low_rank_attention or structured_attention are: penal, "
        "||A A^T - I||^2 of the weights A of heads and words; emb, the mean cosine of their vectors",
    )
    disagreement_weight: float = flag(_WEIGHT, "what --disagreement is multiplied by")


@register_criterion("muse_sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class MuseSentenceClassificationCriterion(SentenceCriterion):
    """Cross-entropy of one label per sentence.

    Logs the loss in bits per sentence and ``accuracy`` in percent; in validation also, in percent, ``macro_f1`` over
    the labels that occur and, if labels are few, ``f1_LABEL``. For the best checkpoint: ``--best-checkpoint-metric
    accuracy --maximize-best-checkpoint-metric``.

    With ``--disagreement``, training adds ``--disagreement-weight`` times the penalty of each sentence to its loss
    (arXiv:1912.00835: lambda 0.2; arXiv:1703.03130 with penal), and logs its mean, unweighted, as ``penalty``.

    Raises:
        ValueError: if the task predicts no label, the weight is negative or no number, or of no penalty, or the penalty
            is for heads that the task's model has not.
    """

    predicts = "label"

    def __init__(self, task: Any, disagreement: Any = "none", disagreement_weight: float = _WEIGHT) -> None:
        super().__init__(task)
        if not 0 <= disagreement_weight < math.inf:
            raise ValueError(
                f"--disagreement-weight must be a finite number of at least 0, but got {disagreement_weight}."
            )
        if str(disagreement) == "none" and disagreement_weight != _WEIGHT:
            raise ValueError(
                f"--disagreement-weight {disagreement_weight} is the weight of a penalty, but there is none; give "
                "--disagreement penal or emb, or drop the flag."
            )
        if str(disagreement) != "none" and task.has_heads is False:
            raise ValueError(
                f"--disagreement {disagreement} is for heads that attend to words, but this model has none; give "
                "--pooling low_rank_attention or structured_attention, or drop the flag."
            )
        self.disagreement = str(disagreement)
        self.disagreement_weight = disagreement_weight

    def measure(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """See ``SentenceCriterion``; losses are in nats."""
        penalised = model.training and self.disagreement != "none"
        prediction = model(**sample["net_input"], **({"disagreement": self.disagreement} if penalised else {}))
        logits, target = prediction.logits, sample["target"]
        losses = F.cross_entropy(logits.float(), target, reduction="none")
        predicted = logits.argmax(dim=-1)
        log = {"_correct": (predicted == target).sum()}
        if penalised:
            losses = losses + self.disagreement_weight * prediction.penalty
            log["_penalty"] = prediction.penalty.detach().sum()
        if not model.training:
            log.update(count_classes(predicted, target, self.task.labels))
        return losses, len(target), log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        super().reduce_metrics(logging_outputs)
        if any("_penalty" in log for log in logging_outputs):
            log_sums(logging_outputs, ("_penalty",))
            metrics.log_derived("penalty", lambda meters: round(meters["_penalty"].sum / meters["_decisions"].sum, 4))
        log_f1(logging_outputs)
