"""Output projection and label-smoothed cross-entropy in one operation that never holds all scores.

With N tokens and V words, the scores are the largest tensor of a training step: N x V, in float32, several times over.
Here they exist for a few rows at a time. Forward computes the gradient of these rows on the spot, so that backward has
nothing left to do but to multiply by the gradient of the loss.

Meaning, for one token with scores z and target y (Szegedy et al. 2016, arXiv:1512.00567, in fairseq's form):
``nll = logsumexp(z) - z_y``, ``smooth = sum_v (logsumexp(z) - z_v)``,
``loss = (1 - eps - eps / (V - 1)) * nll + eps / (V - 1) * smooth``. Of pairs, with p and q the probabilities that both
states of a token give, the loss is that of p, plus a weight times ``KL(p || q) = sum_v p_v (log p_v - log q_v)``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from muse_plugin.ops.linear import add_weight_gradient, linear

# Scores held at a time. On the CPU they should stay near its cores: 8 MiB was fastest of 2 to 32 for 6,632 and 9,712
# words; below 128 rows, adding to the weight's gradient costs more than it saves. A GPU wants products that fill it.
_CPU_SCORES = 1 << 21
_GPU_SCORES = 1 << 25
_FEWEST_ROWS = 128


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    chunk_size: int | None = None,
    count_correct: bool = False,
    divergence_weight: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums the loss over tokens; scores are ``features W^T + bias``.

    Products run in the dtype of ``features`` (autocast's, where it is on), everything else in float32.

    Args:
        features: shape (N, C), or of pairs (2N, C), whose rows 2n and 2n + 1 are the states of token n; padding is left
            out by the caller.
        weight: W, shape (V, C).
        target: word numbers, shape (N,).
        bias: shape (V,), or None.
        label_smoothing: eps in [0, 1).
        chunk_size: rows whose scores are held at a time, of pairs rounded up to whole ones; chosen by V and device if
            None.
        count_correct: also count tokens whose target has the highest score; costs a pass over the scores.
        divergence_weight: what the divergence of pairs weighs in the loss; None for single states.

    Returns:
        The loss (nats, scalar float32; differentiable once); without gradients, and of pairs those of the first states,
        the negative log-likelihood (nats, scalar float32) and the number of tokens whose target has the highest score
        (scalar int64; 0 if not counted); and the divergence before it is weighted (nats, scalar float32, no gradient).

    Raises:
        ValueError: if shapes do not fit or ``label_smoothing`` is outside [0, 1).
    """
    rows, name = (len(target), "N") if divergence_weight is None else (2 * len(target), "2N")
    if features.dim() != 2 or weight.dim() != 2 or target.dim() != 1 or features.shape != (rows, weight.shape[1]):
        raise ValueError(
            f"features must have shape ({name}, C), weight (V, C) and target (N,), "
            f"but got {tuple(features.shape)}, {tuple(weight.shape)} and {tuple(target.shape)}."
        )
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must lie in [0, 1), but got {label_smoothing}.")
    if chunk_size is None:
        budget = _CPU_SCORES if features.device.type == "cpu" else _GPU_SCORES
        chunk_size = max(_FEWEST_ROWS, budget // max(1, len(weight)))
    if divergence_weight is not None:
        chunk_size += chunk_size % 2  # pairs stay together
    kind = features.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
    if not torch.is_grad_enabled():  # ctx.needs_input_grad says nothing of that
        features, weight, bias = features.detach(), weight.detach(), None if bias is None else bias.detach()
    options = label_smoothing, chunk_size, count_correct, divergence_weight, dtype
    with torch.autocast(kind, enabled=False):
        return _LinearCrossEntropy.apply(features, weight, bias, target, *options)  # type: ignore[no-untyped-call]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        chunk_size: int,
        count_correct: bool,
        divergence_weight: float | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count, words = len(target), len(weight)
        copies = 1 if divergence_weight is None else 2  # states of a token; the cross-entropy is that of the first
        full = torch.promote_types(dtype, torch.float32)  # float64 stays what it is
        spread = smoothing / (words - 1) if words > 1 else 0.0
        needs = ctx.needs_input_grad[:3]
        matrix = weight.to(dtype)
        grad_features = torch.empty(features.shape, dtype=full, device=features.device) if needs[0] else None
        grad_weight = torch.zeros(weight.shape, dtype=full, device=weight.device) if needs[1] and count == 0 else None
        grad_bias = torch.zeros(words, dtype=full, device=weight.device) if needs[2] else None
        nll, normaliser_sum, divergence = (features.new_zeros((), dtype=full) for _ in range(3))
        correct = torch.zeros((), dtype=torch.int64, device=features.device)
        for start in range(0, len(features), chunk_size):
            rows = features[start : start + chunk_size].to(dtype)
            wanted = target[start // copies : (start + chunk_size) // copies].unsqueeze(1)
            scores = linear(rows, matrix, None if bias is None else bias.to(dtype)).to(full)
            log_ratio = None if divergence_weight is None else scores[::2] - scores[1::2]
            at_target, highest = scores[::copies].gather(1, wanted), scores.amax(dim=1, keepdim=True)
            # In place, and the exponentials once: what logsumexp allocates costs more than what it computes.
            exponentials = scores.sub_(highest).exp_()
            sums = exponentials.sum(dim=1, keepdim=True)
            normaliser = highest + sums.log()
            if count_correct:
                correct += (highest[::copies] == at_target).sum()
            nll += (normaliser[::copies] - at_target).sum()
            normaliser_sum += normaliser[::copies].sum()
            if not any(needs) and log_ratio is None:
                continue
            # d loss / d scores = softmax - (1 - eps - spread) [at the target] - spread; the last term comes below.
            grad = exponentials.div_(sums)
            if log_ratio is not None:
                divergence += _diverge(
                    grad, log_ratio.sub_(normaliser[::2] - normaliser[1::2]), divergence_weight or 0.0
                )
            grad[::copies].scatter_add_(1, wanted, grad.new_full((1, 1), smoothing + spread - 1.0).expand_as(wanted))
            product = grad.to(dtype)
            if grad_features is not None:
                grad_features[start : start + chunk_size] = linear(product, matrix.t())
            if needs[1]:
                grad_weight = add_weight_gradient(grad_weight, product, rows, full)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        loss = (1.0 - smoothing - spread) * nll
        if smoothing > 0:
            # What smoothing adds is the same for every word: sums over words and tokens separate, and cost nothing.
            word_sum, token_sum = matrix.sum(0, dtype=full), features[::copies].to(dtype).sum(0, dtype=full)
            score_sum = word_sum @ token_sum
            if bias is not None:
                score_sum = score_sum + count * bias.to(dtype).sum(dtype=full)
            loss = loss + spread * (words * normaliser_sum - score_sum)
            if grad_features is not None:
                grad_features[::copies] -= spread * word_sum
            if grad_weight is not None:
                grad_weight -= spread * token_sum
            if grad_bias is not None:
                grad_bias -= spread * count
        if divergence_weight is not None:
            loss = loss + divergence_weight * divergence
        ctx.grads = [grad_features, grad_weight, grad_bias]
        ctx.dtypes = [features.dtype, weight.dtype, None if bias is None else bias.dtype]
        ctx.mark_non_differentiable(nll, correct, divergence)
        return loss, nll, correct, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        grads = [
            None if grad is None else (grad * grad_loss).to(dtype)
            for grad, dtype in zip(ctx.grads, ctx.dtypes, strict=True)
        ]
        return (*grads, None, None, None, None, None, None)


def _diverge(probabilities: Tensor, log_ratio: Tensor, weight: float) -> Tensor:
    """The sum of KL(p || q), whose gradient by the scores is p (log p - log q - KL) for p and q - p for q.

    Args:
        probabilities: p and q in turn, shape (2N, V); to p the weighted gradient is added, in place of q it is put.
        log_ratio: log p - log q, shape (N, V); overwritten.
        weight: of the divergence.
    """
    p, q = probabilities[::2], probabilities[1::2]
    divergence = torch.linalg.vecdot(p, log_ratio).unsqueeze(1)
    q.sub_(p).mul_(weight)
    p.mul_(log_ratio.sub_(divergence).mul_(weight).add_(1.0))
    return divergence.sum()
