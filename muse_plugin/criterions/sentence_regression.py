"""Mean squared error of numbers."""

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from muse_plugin.criterions.class_counts import log_sums
from muse_plugin.criterions.sentence_criterion import SentenceCriterion, sum_losses

_SUMS = ("_n", "_x", "_y", "_xx", "_yy", "_xy")


@register_criterion("muse_sentence_regression", dataclass=FairseqDataclass)
class MuseSentenceRegressionCriterion(SentenceCriterion):
    """Mean squared error of one or several numbers per sentence.

    Logs the error per number (``loss`` and ``mse``) and ``pearson``, the correlation of predictions and targets over
    all numbers, in [-1, 1].
    """

    predicts = "number"

    def measure(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """See ``SentenceCriterion``; the loss is the squared error, averaged over the numbers of a sentence."""
        predicted = model(**sample["net_input"]).logits.float()
        target = sample["target"].to(predicted)
        x, y = predicted.detach().double(), target.double()
        sums = (y.new_tensor(y.numel()), x.sum(), y.sum(), x.square().sum(), y.square().sum(), (x * y).sum())
        return (predicted - target).square().mean(dim=1), len(target), dict(zip(_SUMS, sums, strict=True))

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs measures over batches and processes."""
        total, size = sum_losses(logging_outputs)
        for name in ("loss", "mse"):
            metrics.log_scalar(name, total / max(size, 1.0), size, round=5)
        log_sums(logging_outputs, _SUMS)
        metrics.log_derived("pearson", lambda meters: round(pearson(*(float(meters[key].sum) for key in _SUMS)), 5))


def pearson(n: float, x: float, y: float, xx: float, yy: float, xy: float) -> float:
    """Pearson's correlation from sums; 0 where one side does not vary."""
    if n == 0:
        return 0.0
    spread = max(xx - x * x / n, 0.0) * max(yy - y * y / n, 0.0)
    return (xy - x * y / n) / spread**0.5 if spread > 0 else 0.0
