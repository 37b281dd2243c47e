"""Lets training with R-Drop be validated: one pass with the plain loss, on a batch that stays as it was."""

from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(RdropLabelSmoothedCrossEntropyCriterion, "forward")
    def forward(original, self, model, sample, reduce=True, net_output=None):
        if model.training or net_output is not None:
            return original(self, model, sample, reduce=reduce, net_output=net_output)
        alpha, self.rdrop_alpha = self.rdrop_alpha, 0.0  # the criterion's own way of not doubling the batch
        try:
            return original(self, model, sample, reduce=reduce)
        finally:
            self.rdrop_alpha = alpha


REPAIR = Repair(
    why="label_smoothed_cross_entropy_with_rdrop doubles validation batches in place and adds up the losses of both "
    "copies: the perplexity is squared, and --eval-bleu ends with an IndexError (fairseq issue 5410)",
    remedy=_apply,
)
