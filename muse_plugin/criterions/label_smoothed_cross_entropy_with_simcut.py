"""SimCut: predictions from whole sentences and from sentences with a few words cut out are drawn together.

One pass over the model serves both: every sentence is in the batch twice, and in the second copy a forward hook
sets the embeddings of the cut words to zero. Any translation model takes part whose encoder and decoder embed their
tokens with a module called ``embed_tokens``.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
    label_smoothed_nll_loss,
)
from fairseq.logging import metrics
from torch import Tensor, nn

from muse_plugin.contracts.flag import flag
from muse_plugin.criterions.fused_label_smoothed_cross_entropy import find_output_projection, log_losses
from muse_plugin.ops.linear_cross_entropy import linear_cross_entropy

NAME = "label_smoothed_cross_entropy_with_simcut"
_WAY_OUT = "train it with --criterion label_smoothed_cross_entropy"


@dataclass
class SimCutLabelSmoothedCrossEntropyCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of SimCut besides those of label smoothing. Defaults: the authors' recipe for IWSLT'14."""

    simcut_alpha: float = flag(
        3.0,
        "weight of the divergence between the predictions for whole and for cut sentences, not negative; 0 is plain "
        "label-smoothed cross-entropy at its cost (authors' recipe: 3)",
    )
    simcut_p: float = flag(
        0.05,
        "probability of cutting a source or target word, that is of setting its embedding to zero, at least 0 and "
        "below 1 (authors' recipe: 0.05)",
    )


@register_criterion(NAME, dataclass=SimCutLabelSmoothedCrossEntropyCriterionConfig)
class SimCutLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy with SimCut's consistency term.

    ``loss = CE(x, y) + alpha * sum_t KL(f(x, y)_t || f(x_cut, y_cut)_t)``, where ``f(...)_t`` is the distribution over
    the vocabulary that the model predicts at target position t. In ``x_cut`` and ``y_cut`` the embedding of every
    source word, and of every target word that the decoder reads, is zero with probability p, independently of the
    others; its position stays. The cross-entropy is that of the whole sentences alone. The gradient flows through both
    sides of the divergence, which the paper finds to matter in comparison with virtual adversarial training.

    Padding is not cut and does not count. The marks that close a sentence and open the target are not cut either. While
    the model is in evaluation mode there is one pass and the loss is the plain label-smoothed one, so validation
    losses, perplexities and early stopping compare with other criterions.

    Cost: an update computes and stores twice as many sentences as ``--max-tokens`` counts. Where memory is short, halve
    ``--max-tokens`` and double ``--update-freq``. Scores of the vocabulary are computed a few tokens at a time, as by
    ``fused_label_smoothed_cross_entropy`` and under its conditions; elsewhere all at once.

    Source: Gao et al. 2022, Bi-SimCut, arXiv:2206.02368, the loss called SimCut, and the authors' program for fairseq,
    https://github.com/gpengzhi/Bi-SimCut. Differs from that program:

    - It runs encoder and decoder twice. Here one forward takes the doubled batch, so distributed training sees one. The
      two copies' dropout is independent in both; what a model draws once per forward (LayerDrop, dropout on kernels
      that sentences share) is common to the two copies here.
    - It spares the last column of the source and the first of the target. Here padding, beginning-of-sentence and
      end-of-sentence are spared wherever they are: the same for batches as fairseq pads them by default, and
      independent of padding for the others. A language tag counts as a word.
    - It draws cuts with numpy. Here torch's global generator on the model's device does, which fairseq seeds for every
      update, so a resumed run repeats them.
    - It computes the divergence in the dtype of the logits, here it is float32.
    - It counts the divergence also at the positions that ``--ignore-prefix-size`` leaves out of the cross-entropy.
    - Its flags are ``--alpha`` and ``--p`` with default 0, and it does not log the divergence.

    Args:
        task: fairseq's task, for the padding symbol of the target.
        sentence_avg: gradients are divided by sentences instead of target tokens.
        label_smoothing: as in fairseq's criterion, probability in [0, 1).
        ignore_prefix_size: number of target tokens at the front that count in neither term.
        report_accuracy: log the accuracy, in percent, of the predictions for whole sentences.
        simcut_alpha: weight of the divergence, at least 0.
        simcut_p: probability of cutting a word, in [0, 1).

    Raises:
        ValueError: if ``simcut_alpha`` or ``simcut_p`` is out of its range.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        simcut_alpha: float = 3.0,
        simcut_p: float = 0.05,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        faults = []
        if not 0 <= simcut_alpha < math.inf:
            faults.append(f"--simcut-alpha must be a number of at least 0, but got {simcut_alpha}; 3 is usual.")
        if not 0 <= simcut_p < 1:
            faults.append(
                f"--simcut-p must be a probability of at least 0 and below 1, but got {simcut_p}; 0.05 is usual."
            )
        if faults:
            raise ValueError(" ".join(faults))
        self.simcut_alpha = simcut_alpha
        self.simcut_p = simcut_p

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True):
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: encoder-decoder model, possibly wrapped for distributed training.
            sample: fairseq's batch, left unchanged. In ``net_input``, tensors with B rows are doubled for the model.
            reduce: sum over the batch; otherwise loss, nll_loss and simcut_kl are per target position, (B * T, 1), less
                the ignored prefix.

        Returns:
            The loss in nats, summed; its denominator (target tokens, or sentences with ``sentence_avg``, each counted
            once); and what is logged: that of fairseq's criterion (sums in nats; ``nll_loss`` is that of the whole
            sentences), and while training with a positive weight ``simcut_kl``, the divergence before weighting.

        Raises:
            ValueError: if the model embeds its tokens otherwise than with ``embed_tokens``.
            NotImplementedError: if it has an adaptive softmax.
        """
        if self.simcut_alpha == 0 or not model.training:
            return super().forward(model, sample, reduce=reduce)
        target = sample["target"][:, self.ignore_prefix_size :]
        real = target.ne(self.padding_idx)
        projection = _find_projection(model) if reduce else None
        options = {} if projection is None else {"features_only": True}
        with cut_tokens(model, self.simcut_p):
            net_output = model(**_double(sample["net_input"], len(target)), **options)
        if projection is not None:
            states = net_output[0].unflatten(0, (-1, 2))[:, :, self.ignore_prefix_size :]  # (B, 2, T, C)
            pairs = states.transpose(1, 2)[real].flatten(0, 1)
            loss, nll, correct, kl = linear_cross_entropy(
                pairs,
                projection.weight,
                target[real],
                projection.bias,
                self.eps,
                count_correct=self.report_accuracy,
                divergence_weight=self.simcut_alpha,
            )
        else:
            lprobs = model.get_normalized_probs(net_output, log_probs=True)  # (2B, T, V), float32 for any logits
            lprobs = lprobs.unflatten(0, (-1, 2))[:, :, self.ignore_prefix_size :]
            whole, cut = lprobs.unbind(dim=1)  # (B, T, V) each, without a copy
            ce, nll = label_smoothed_nll_loss(whole, target, self.eps, ignore_index=self.padding_idx, reduce=reduce)
            kl = F.kl_div(cut, whole, reduction="none", log_target=True).sum(dim=-1, keepdim=True)  # (B, T, 1)
            kl = kl.masked_fill(~real.unsqueeze(-1), 0.0)
            if reduce:
                kl = kl.sum()
            else:
                ce, nll, kl = (term.reshape(-1, 1) for term in (ce, nll, kl))
            loss = ce + self.simcut_alpha * kl
            correct = (whole.argmax(dim=-1).eq(target) & real).sum() if self.report_accuracy else None

        sample_size, logging_output = log_losses(self, sample, loss, nll, real, correct)
        return loss, sample_size, {**logging_output, "simcut_kl": kl.detach()}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs what fairseq's criterion logs, and ``simcut_kl`` in bits per target token where there is one."""
        super().reduce_metrics(logging_outputs)
        if any("simcut_kl" in log for log in logging_outputs):
            kl = sum(log.get("simcut_kl", 0) for log in logging_outputs)
            ntokens = sum(log.get("ntokens", 0) for log in logging_outputs)
            metrics.log_scalar("simcut_kl", kl / ntokens / math.log(2), ntokens, round=3)


def _find_projection(model: nn.Module) -> nn.Linear | None:
    """The output layer if ``linear_cross_entropy`` can take its place."""
    with suppress(ValueError, NotImplementedError):
        return find_output_projection(model)
    return None


@contextmanager
def cut_tokens(model: nn.Module, p: float) -> Iterator[None]:
    """While open, every odd row that the model embeds loses words: their embeddings are zero, without gradient.

    Args:
        model: model with ``encoder.embed_tokens`` and ``decoder.embed_tokens``, which may be the same module. Their
            input is (2B, length); row 2i + 1 is cut, row 2i stays.
        p: probability of cutting a word. Padding and the marks of beginning and end are no words.

    Raises:
        ValueError: if there are no such modules, or if the model has not called them when this is closed.
        NotImplementedError: if the model has an adaptive softmax.
    """
    spared: dict[nn.Module, set[int]] = {}
    for side in ("encoder", "decoder"):
        part = getattr(model, side, None)
        embed_tokens, dictionary = getattr(part, "embed_tokens", None), getattr(part, "dictionary", None)
        if not isinstance(embed_tokens, nn.Module) or dictionary is None:
            raise ValueError(
                f"--criterion {NAME} sets embeddings of words to zero, for which the model must have "
                f"{side}.embed_tokens and {side}.dictionary, but {type(model).__name__} has not; {_WAY_OUT}."
            )
        spared.setdefault(embed_tokens, set()).update((dictionary.pad(), dictionary.bos(), dictionary.eos()))
    if getattr(model.decoder, "adaptive_softmax", None) is not None:
        raise NotImplementedError(
            f"--criterion {NAME} compares whole distributions, which an adaptive softmax does not compute; drop "
            "--adaptive-softmax-cutoff, or use --criterion adaptive_loss."
        )

    called = set()

    def cut(embed_tokens: nn.Module, inputs: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        called.add(embed_tokens)
        tokens = inputs[0]
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        mask[1::2] = torch.rand(mask[1::2].shape, device=tokens.device, dtype=torch.float32) < p
        for symbol in spared[embed_tokens]:
            mask &= tokens.ne(symbol)
        return embedded.masked_fill(mask.unsqueeze(-1), 0.0)

    handles = [embed_tokens.register_forward_hook(cut) for embed_tokens in spared]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if len(called) < len(spared):
        raise ValueError(
            f"--criterion {NAME} sets embeddings of words to zero when the model calls encoder.embed_tokens and "
            f"decoder.embed_tokens, but {type(model).__name__} did not call both; {_WAY_OUT}."
        )


def _double(net_input: dict[str, Any], batch: int) -> dict[str, Any]:
    """Repeats every row of the tensors that have ``batch`` rows: 0, 0, 1, 1, ...

    Copies are side by side so that a batch sorted by length stays sorted, as fairseq's LSTM needs it.
    """
    return {
        name: value.repeat_interleave(2, dim=0)
        if isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == batch
        else value
        for name, value in net_input.items()
    }
