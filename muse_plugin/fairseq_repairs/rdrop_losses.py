"""Lets training with R-Drop be validated and followed: perplexities are of one pass over a batch, as of other losses.

Validation takes one pass, with the plain loss, on a batch that stays as it was. Training logs the mean of ``nll_loss``
over its two passes; its ``loss`` stays the sum that is trained. The prefix that ``--ignore-prefix-size`` names counts
in neither term.
"""

import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion

from muse_plugin.fairseq_repairs.repair import Repair, replace


def _apply() -> None:
    @replace(RdropLabelSmoothedCrossEntropyCriterion, "forward")
    def forward(original, self, model, sample, reduce=True, net_output=None):
        plain = not model.training and net_output is None
        if self.ignore_prefix_size > 0 and not plain:  # as padding, the prefix counts in neither term
            ignored = torch.arange(sample["target"].size(1), device=sample["target"].device) < self.ignore_prefix_size
            sample = {**sample, "target": sample["target"].masked_fill(ignored, self.padding_idx)}
        name = "rdrop_alpha" if plain else "ignore_prefix_size"  # the former is the criterion's own way not to double
        value = getattr(self, name)
        setattr(self, name, 0)
        try:
            loss, sample_size, log = original(self, model, sample, reduce=reduce, net_output=net_output)
        finally:
            setattr(self, name, value)
        passes = 2 if self.rdrop_alpha > 0 and not plain else 1
        return loss, sample_size, {**log, "nll_loss": log["nll_loss"] / passes}


REPAIR = Repair(
    why="label_smoothed_cross_entropy_with_rdrop doubles batches, those of validation in place, and adds up the losses "
    "of both copies: perplexities are squared, --eval-bleu ends with an IndexError (fairseq issue 5410), and "
    "--ignore-prefix-size with a RuntimeError",
    remedy=_apply,
)
