"""Mean squared error of numbers."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import nn

from muse_plugin.criterions.class_counts import log_sums
from muse_plugin.criterions.sentence_classification import check_task

_SUMS = ("_n", "_x", "_y", "_xx", "_yy", "_xy")


@dataclass
class SentenceRegressionCriterionConfig(FairseqDataclass):
    """No flags."""


@register_criterion("muse_sentence_regression", dataclass=SentenceRegressionCriterionConfig)
class MuseSentenceRegressionCriterion(FairseqCriterion):
    """Mean squared error of one or several numbers per sentence.

    Logs the error per number (``loss`` and ``mse``) and ``pearson``, the correlation of predictions and targets over
    all numbers, in [-1, 1].
    """

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        check_task(task, "number", "muse_sentence_regression")

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: a sentence model.
            sample: see ``SentenceDataset.collater``; numbers, shape (B, D).
            reduce: sum over the batch.

        Returns:
            The squared error, averaged over the numbers of a sentence, summed over sentences or of each; the number of
            sentences; and what is logged.
        """
        predicted = model(**sample["net_input"]).logits.float()
        target = sample["target"].to(predicted)
        loss = (predicted - target).square().mean(dim=1)
        x, y = predicted.detach().double(), target.double()
        sums = (y.new_tensor(y.numel()), x.sum(), y.sum(), x.square().sum(), y.square().sum(), (x * y).sum())
        log = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": len(target),
            **dict(zip(_SUMS, sums, strict=True)),
        }
        return loss.sum() if reduce else loss, len(target), log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        size = sum(float(log.get("sample_size", 0)) for log in logging_outputs)
        error = sum(float(log.get("loss", 0)) for log in logging_outputs) / max(size, 1.0)
        for name in ("loss", "mse"):
            metrics.log_scalar(name, error, size, round=5)
        log_sums(logging_outputs, _SUMS)
        metrics.log_derived("pearson", lambda meters: round(pearson(*(float(meters[key].sum) for key in _SUMS)), 5))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Everything logged is a sum."""
        return True


def pearson(n: float, x: float, y: float, xx: float, yy: float, xy: float) -> float:
    """Pearson's correlation from sums; 0 where one side does not vary."""
    if n == 0:
        return 0.0
    spread = max(xx - x * x / n, 0.0) * max(yy - y * y / n, 0.0)
    return (xy - x * y / n) / spread**0.5 if spread > 0 else 0.0
