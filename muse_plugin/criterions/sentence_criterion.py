"""What the losses of sentence models share: the check of the task, fairseq's calls, and what every batch logs."""

import math
from typing import Any

from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from torch import Tensor, nn

from muse_plugin.contracts.sentences import CRITERIONS, TaskOfSentences
from muse_plugin.criterions.class_counts import log_share, log_sums


class SentenceCriterion(FairseqCriterion):
    """A loss of one kind of prediction, which its class computes in ``measure``.

    Attributes:
        predicts: what the task must predict: "label", "number" or "tags".

    Raises:
        ValueError: if the task predicts something else.
    """

    predicts: str

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        have = task.predicts if isinstance(task, TaskOfSentences) else None
        if have != self.predicts:
            wanted = CRITERIONS.get(str(have))
            raise ValueError(
                f"--criterion {CRITERIONS[self.predicts]} is for tasks that predict a {self.predicts.rstrip('s')}, "
                f"but this one predicts {have or 'none'}; use "
                + (
                    f"--criterion {wanted}."
                    if wanted
                    else "it with --task muse_sentence_classification or a related one."
                )
            )

    def measure(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """Computes the losses of a batch.

        Args:
            model: a sentence model.
            sample: see ``SentenceDataset.collater``; its target is labels, shape (B,), numbers, shape (B, D), or tags,
                shape (B, T), -1 at padding.

        Returns:
            The loss of each sentence, shape (B,); the number of decisions (sentences, or words that are tagged); and
            what is logged besides.
        """
        raise NotImplementedError

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Computes the loss of a batch; called by fairseq.

        Returns:
            The loss, summed, or with ``reduce`` false of each sentence; the number of decisions; and what is logged.
        """
        losses, decisions, counts = self.measure(model, sample)
        log = {
            "loss": losses.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": decisions,
            **counts,
        }
        return losses.sum() if reduce else losses, decisions, log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs the loss in bits per decision and the accuracy in percent, over batches and processes."""
        total, size = sum_losses(logging_outputs)
        metrics.log_scalar("loss", total / max(size, 1.0) / math.log(2), size, round=4)
        for log in logging_outputs:
            log.setdefault("_decisions", log.get("sample_size", 0))
        log_sums(logging_outputs, ("_correct", "_decisions"))
        log_share("accuracy", "_correct", "_decisions")

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Everything logged is a sum."""
        return True


def sum_losses(logging_outputs: list[dict[str, Any]]) -> tuple[float, float]:
    """The loss of all batches and the number of their decisions."""
    total, size = (sum(float(log.get(key, 0)) for log in logging_outputs) for key in ("loss", "sample_size"))
    return total, size
