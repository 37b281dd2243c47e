"""Lets training with R-Drop be validated: one pass with the plain loss, on a batch that stays as it was."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion
from torch import Tensor, nn

from muse_plugin.fairseq_repairs.repair import Repair, replace


class _OneWord(nn.Module):
    """A model that predicts two symbols alike."""

    def forward(self, src_tokens: Tensor) -> Tensor:
        return torch.zeros(*src_tokens.shape, 2)

    def get_normalized_probs(self, net_output: Tensor, log_probs: bool) -> Tensor:
        return net_output.log_softmax(dim=-1) if log_probs else net_output.softmax(dim=-1)

    def get_targets(self, sample: dict, net_output: Tensor) -> Tensor:
        return sample["target"]


def _is_present() -> bool:
    # One sentence of one word, validated: is it still one sentence afterwards?
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1))
    criterion = RdropLabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.0, rdrop_alpha=1.0)
    tokens = torch.zeros(1, 1, dtype=torch.long)
    sample = {"net_input": {"src_tokens": tokens}, "target": tokens, "ntokens": 1}
    criterion(_OneWord().eval(), sample)
    return sample["net_input"]["src_tokens"].shape[0] > 1


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
    name="rdrop-validation",
    why="label_smoothed_cross_entropy_with_rdrop doubles validation batches in place and adds up the losses of both "
    "copies: the perplexity is squared, and --eval-bleu ends with an IndexError (fairseq issue 5410)",
    remedy=_apply,
    probe=_is_present,
)
