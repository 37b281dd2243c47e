"""Label-smoothed cross-entropy that computes the scores of the vocabulary a few tokens at a time.

The same loss as fairseq's ``label_smoothed_cross_entropy``; ``ops/linear_cross_entropy.py`` says how.
"""

import inspect
from typing import Any, Optional

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn

from muse_plugin.ops.linear_cross_entropy import linear_cross_entropy

NAME = "fused_label_smoothed_cross_entropy"


@register_criterion(NAME, dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class FusedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross-entropy without the (tokens x vocabulary) matrix.

    The model computes its states (``features_only``); the criterion multiplies them with the weight of
    ``decoder.output_projection``, leaving padding out. Losses and gradients agree with fairseq's criterion to float32
    rounding; flags, logging and meaning are the same, so that runs can be compared (fairseq resumes none with another
    criterion). In float16 without label smoothing, words with probabilities below about 3e-8 get no gradient of the
    output layer, which is rounded before the loss is scaled.

    Works with every encoder-decoder model of fairseq whose output layer is a linear ``decoder.output_projection``:
    all of this plugin's, and fairseq's Transformer. Not with an adaptive softmax, and not with
    ``--ddp-backend fully_sharded``, which hides the weight outside the model's own forward.
    """

    def forward(self, model: nn.Module, sample: dict[str, Any], reduce: bool = True):
        """Computes the loss of a batch; called by fairseq.

        Args:
            model: encoder-decoder model, possibly wrapped for distributed training.
            sample: fairseq's batch.
            reduce: sum over the batch; per-token losses are left to fairseq's own form.

        Returns:
            The loss in nats, summed; its denominator (target tokens, or sentences with ``sentence_avg``); and what
            fairseq's criterion logs.

        Raises:
            ValueError: if the model has no linear output projection.
            NotImplementedError: see ``find_output_projection``.
        """
        if not reduce:
            return super().forward(model, sample, reduce=False)
        projection = find_output_projection(model)
        features = model(**sample["net_input"], features_only=True)[0]  # (B, T, C)
        target = sample["target"]
        if self.ignore_prefix_size > 0:
            features, target = features[:, self.ignore_prefix_size :], target[:, self.ignore_prefix_size :]
        real = target.ne(self.padding_idx)
        loss, nll, correct, _ = linear_cross_entropy(
            features[real],
            projection.weight,
            target[real],
            projection.bias,
            self.eps,
            count_correct=self.report_accuracy,
        )
        return loss, *log_losses(self, sample, loss, nll, real, correct)


def log_losses(
    criterion: LabelSmoothedCrossEntropyCriterion,
    sample: dict[str, Any],
    loss: Tensor,
    nll: Tensor,
    real: Tensor,
    correct: Optional[Tensor],
) -> tuple[int, dict[str, Any]]:
    """The denominator of a loss, and what fairseq's criterion logs of it.

    Args:
        criterion: whose flags count.
        sample: fairseq's batch.
        loss: nats.
        nll: negative log-likelihood, nats.
        real: which target positions count.
        correct: how many of them are predicted; only read with ``--report-accuracy``.
    """
    sentences = sample["target"].size(0)
    sample_size = sentences if criterion.sentence_avg else sample["ntokens"]
    logged = {"loss": loss.detach(), "nll_loss": nll.detach(), "ntokens": sample["ntokens"]}
    logged |= {"nsentences": sentences, "sample_size": sample_size}
    if criterion.report_accuracy:
        assert correct is not None, "accuracy is counted where it is logged"
        logged |= {"n_correct": correct.item(), "total": real.sum().item()}
    return sample_size, logged


def find_output_projection(model: nn.Module) -> nn.Linear:
    """The linear layer that turns the decoder's states into scores.

    Raises:
        ValueError: if there is none, the scores need more than it, or the model cannot stop before it.
        NotImplementedError: if the model is sharded, has an adaptive softmax, or looks for unused parameters.
    """
    decoder = getattr(model, "decoder", None)
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise NotImplementedError(
            f"--criterion {NAME} does not know the adaptive softmax; drop --adaptive-softmax-cutoff, or use "
            "--criterion adaptive_loss."
        )
    projection: Optional[nn.Module] = getattr(decoder, "output_projection", None)
    weight: Optional[Tensor] = getattr(projection, "weight", None)
    if not isinstance(projection, nn.Linear) or weight is None:
        raise ValueError(
            f"--criterion {NAME} needs a model whose decoder.output_projection is linear, but "
            f"{type(model).__name__} has {type(projection).__name__}; use --criterion label_smoothed_cross_entropy."
        )
    scores = getattr(decoder, "output_layer", projection.forward)
    read = [own.name for own in inspect.signature(scores).parameters.values() if own.kind is not own.VAR_KEYWORD]
    if len(read) > 1:  # a pointer generator, say
        raise ValueError(
            f"--criterion {NAME} needs a model whose scores come from the decoder's states alone, but output_layer of "
            f"{type(decoder).__name__} also reads {', '.join(read[1:])}; use --criterion label_smoothed_cross_entropy."
        )
    inner, wrappers = model, []  # of distributed training
    while isinstance(getattr(inner, "module", None), nn.Module):
        wrappers.append(inner)
        inner = inner.module
    if weight.dim() != 2 or any(type(one).__name__ == "FullyShardedDataParallel" for one in wrappers):
        raise NotImplementedError(
            f"--criterion {NAME} reads the output weight outside the model, where --ddp-backend fully_sharded does not "
            "show it; use --criterion label_smoothed_cross_entropy or another --ddp-backend."
        )
    finds_unused = any(getattr(one, "find_unused_parameters", False) for one in wrappers)
    if finds_unused and weight is not decoder.embed_tokens.weight:
        raise NotImplementedError(
            f"--criterion {NAME} reads the output weight outside the model, where --find-unused-parameters takes it "
            "for unused; drop that flag, or add --share-decoder-input-output-embed."
        )
    if "features_only" not in inspect.signature(inner.forward).parameters:
        raise ValueError(
            f"--criterion {NAME} needs a model that can stop before its output layer (features_only), which "
            f"{type(inner).__name__} cannot; use --criterion label_smoothed_cross_entropy."
        )
    return projection
