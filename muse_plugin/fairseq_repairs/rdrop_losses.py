"""Lets training with R-Drop be validated and followed: perplexities are of one pass over a batch, as of other losses.

Validation takes one pass, with the plain loss, on a batch that stays as it was. Training logs the mean of ``nll_loss``
over its two passes; its ``loss`` stays the sum that is trained.
"""

from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(RdropLabelSmoothedCrossEntropyCriterion, "forward")
    def forward(original, self, model, sample, reduce=True, net_output=None):
        if model.training or net_output is not None:
            loss, sample_size, log = original(self, model, sample, reduce=reduce, net_output=net_output)
            return loss, sample_size, {**log, "nll_loss": log["nll_loss"] / (2 if self.rdrop_alpha > 0 else 1)}
        alpha, self.rdrop_alpha = self.rdrop_alpha, 0.0  # the criterion's own way of not doubling the batch
        try:
            return original(self, model, sample, reduce=reduce)
        finally:
            self.rdrop_alpha = alpha


REPAIR = Repair(
    why="label_smoothed_cross_entropy_with_rdrop doubles batches, those of validation in place, and adds up the losses "
    "of both copies: perplexities are squared, and --eval-bleu ends with an IndexError (fairseq issue 5410)",
    remedy=_apply,
)
