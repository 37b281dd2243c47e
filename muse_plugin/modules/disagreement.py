"""How alike the heads of a pooling are: penalties, which training may add to its loss so that heads disagree.

Source: Mehta et al., arXiv:1912.00835, where lambda * D is taken off the loss and D is minus what is here: both are
added, lambda = 0.2. ``attention_overlap`` is also the penalty of Lin et al. 2017, arXiv:1703.03130.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from muse_plugin.modules.attention_heads import Heads, in_full_precision

_EPSILON = 1e-8


def overlaps(weights: Tensor) -> Tensor:
    """(A A^T - I)^2, element by element: what each pair of heads adds to ``attention_overlap``.

    Args:
        weights: A, shape (B, m, T).

    Returns:
        Shape (B, m, m), at least float32.
    """
    weights = in_full_precision(weights)
    identity = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    return (torch.bmm(weights, weights.transpose(1, 2)) - identity).square()


def attention_overlap(weights: Tensor) -> Tensor:
    """||A A^T - I||^2, the squared Frobenius norm (-D_penal): 0 if each head looks at one word of its own.

    Args:
        weights: A, shape (B, m, T).

    Returns:
        Shape (B,), at least float32.
    """
    return overlaps(weights).sum(dim=(1, 2))


def vector_similarity(vectors: Tensor) -> Tensor:
    """The mean cosine of all m^2 pairs of heads' vectors, each with itself, too (-D_emb): at most 1.

    It is the squared length of the mean of the vectors at unit length. Vectors of zeros are similar to none.

    Args:
        vectors: S, shape (B, m, C).

    Returns:
        Shape (B,), at least float32.
    """
    vectors = in_full_precision(vectors)
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=_EPSILON)
    mean: Tensor = (vectors / lengths).mean(dim=1)
    return mean.square().sum(dim=-1)


PENALTIES: dict[str, Callable[[Heads], Tensor]] = {
    "penal": lambda heads: attention_overlap(heads.weights),
    "emb": lambda heads: vector_similarity(heads.vectors),
}


def penalize(heads: Heads, kind: str) -> Tensor:
    """The penalty of a name, shape (B,): "penal" (``attention_overlap``) or "emb" (``vector_similarity``).

    Raises:
        ValueError: if the name is unknown.
    """
    if kind not in PENALTIES:
        raise ValueError(f"kind must be one of {', '.join(PENALTIES)}, but got {kind!r}.")
    return PENALTIES[kind](heads)
