"""Cross-entropy of labels, with accuracy and F1; and penalties for heads that are alike."""

import math
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import nn

from muse_plugin.contracts.flag import flag
from muse_plugin.contracts.sentences import TaskOfSentences
from muse_plugin.criterions.class_counts import count_classes, log_f1, log_share, log_sums

_WEIGHT = 0.2  # arXiv:1912.00835


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Flags of the loss."""

    disagreement: ChoiceEnum(["none", "penal", "emb"]) = flag(  # type: ignore[valid-type]
        "none",
        "in training, add how alike the heads of --pooling low_rank_attention or structured_attention are: penal, "
        "||A A^T - I||^2 of the weights A of heads and words; emb, the mean cosine of their vectors",
    )
    disagreement_weight: float = flag(_WEIGHT, "what --disagreement is multiplied by")


@register_criterion("muse_sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class MuseSentenceClassificationCriterion(FairseqCriterion):
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

    def __init__(self, task: Any, disagreement: Any = "none", disagreement_weight: float = _WEIGHT) -> None:
        super().__init__(task)
        check_task(task, "label", "muse_sentence_classification")
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

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: a sentence model.
            sample: see ``SentenceDataset.collater``; labels, shape (B,).
            reduce: sum over the batch.

        Returns:
            The loss in nats, summed, or of each sentence; the number of sentences; and what is logged.
        """
        penalised = model.training and self.disagreement != "none"
        prediction = model(**sample["net_input"], **({"disagreement": self.disagreement} if penalised else {}))
        logits, target = prediction.logits, sample["target"]
        losses = F.cross_entropy(logits.float(), target, reduction="none")
        if penalised:
            losses = losses + self.disagreement_weight * prediction.penalty
        loss = losses.sum() if reduce else losses
        predicted = logits.argmax(dim=-1)
        log = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": len(target),
            "_correct": (predicted == target).sum(),
        }
        if penalised:
            log["_penalty"] = prediction.penalty.detach().sum()
        if not model.training:
            log.update(count_classes(predicted, target, self.task.labels))
        return loss, len(target), log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        log_loss(logging_outputs)
        log_sums(logging_outputs, ("_correct", "_decisions"))
        log_share("accuracy", "_correct", "_decisions")
        if any("_penalty" in log for log in logging_outputs):
            log_sums(logging_outputs, ("_penalty",))
            metrics.log_derived("penalty", lambda meters: round(meters["_penalty"].sum / meters["_decisions"].sum, 4))
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
    have = task.predicts if isinstance(task, TaskOfSentences) else None
    if have != predicts:
        wanted = criterions.get(str(have))
        raise ValueError(
            f"--criterion {criterion} is for tasks that predict a {predicts.rstrip('s')}, but this one predicts "
            f"{have or 'none'}; use "
            + (f"--criterion {wanted}." if wanted else "it with --task muse_sentence_classification and its kin.")
        )
