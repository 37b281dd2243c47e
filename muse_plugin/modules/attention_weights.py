"""What each head of an encoder or decoder looks at: the weights of attention, for figures and numbers about them.

A fused kernel never makes these matrices. Here they are computed once more, beside it, from the same queries and keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention import CrossAttention, SelfAttention, attend, padding_bias
from muse_plugin.modules.attention_bias import DistancePenalty, SummedBias
from muse_plugin.modules.bert_encoder import BertLayer
from muse_plugin.modules.branch import LayerContext, split_heads
from muse_plugin.modules.distance_attention import MaskedAttention
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer
from muse_plugin.ops.window_attention import Windows, window_attention


class Seen(NamedTuple):
    """What the heads of one module look at in a batch.

    Attributes:
        weights: shape (B, H, T, S), float32 or float64; rows (queries) with a sum of 1, or of 0 where a word sees none.
        key_padding_mask: bool, shape (B, S), true at padding; None if the module was told of none.
    """

    weights: Tensor
    key_padding_mask: Optional[Tensor]


def find_attention(root: nn.Module) -> list[nn.Module]:
    """The modules that attend to their own sentence, from the bottom; in the order of ``find_head_sources``."""
    kinds = (SelfAttention, MultiScaleLayer, BertLayer, MaskedAttention)
    return [module for module in root.modules() if isinstance(module, kinds)]


def find_cross_attention(root: nn.Module) -> list[nn.Module]:
    """The modules of a decoder that attend to the encoder's states, from the bottom."""
    return [module for module in root.modules() if isinstance(module, CrossAttention)]


@contextmanager
def watch_attention(modules: Sequence[nn.Module], receive: Callable[[int, Seen], None]) -> Iterator[None]:
    """Computes attention weights while a model runs, and hands them over; in evaluation mode, without gradients.

    Args:
        modules: of ``find_attention`` and ``find_cross_attention``, those that are wanted.
        receive: called with the place in ``modules`` and the weights, whenever one of them runs.

    Yields:
        None.
    """

    def show(number: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            with torch.no_grad():
                receive(number, _WEIGHTS[_kind(module)](module, *args, **named))

        return hook

    handles = [
        module.register_forward_pre_hook(show(number), with_kwargs=True) for number, module in enumerate(modules)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def record_attention(modules: Sequence[nn.Module]) -> Iterator[dict[int, Tensor]]:
    """Keeps the attention weights of what runs last; see ``watch_attention``.

    Args:
        modules: those that are wanted.

    Yields:
        Weights by their place in ``modules``, see ``Seen``; filled as layers are run.
    """
    weights: dict[int, Tensor] = {}

    def keep(number: int, seen: Seen) -> None:
        weights[number] = seen.weights

    with watch_attention(modules, keep):
        yield weights


def weigh_masked(
    module: MaskedAttention,
    x: Tensor,
    lengths: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    with_distance: bool = True,
) -> Seen:
    """What one direction of the Distance-based Self-Attention Network looks at.

    Args:
        module: the attention, which is not run.
        x: see ``MaskedAttention.forward``, as are ``lengths`` and ``key_padding_mask``.
        lengths: number of real words, shape (B,), int64.
        key_padding_mask: bool, shape (B, S), true at padding; None if there is none.
        with_distance: false to leave the distance mask out, as if alpha were 0; the parameters are the same.

    Returns:
        The weights.
    """
    parts = module.in_proj(x).view(*x.shape[:2], 3, module.num_heads, -1).unbind(2)
    if module.in_norms is not None:
        parts = [norm(part) for norm, part in zip(module.in_norms, parts, strict=True)]
    query, key, value = (part.transpose(1, 2) for part in parts)  # (B, H, T, D)
    bias = module.bias
    if not with_distance:
        bias = SummedBias([part for part in bias.biases if not isinstance(part, DistancePenalty)])  # type: ignore[misc]
    return _within(query, key, value, bias(lengths), key_padding_mask)


def _kind(module: nn.Module) -> type:
    return next(kind for kind in _WEIGHTS if isinstance(module, kind))


def _of_branch(module: SelfAttention, projected: Mapping[str, Tensor], context: LayerContext) -> Seen:
    value = split_heads(projected["value"], module.num_heads)
    width = value.shape[-1]
    query, key = (split_heads(projected[name], projected[name].shape[-1] // width) for name in ("query", "key"))
    mask = context.key_padding_mask
    if module.bias is None:
        bias = None if mask is None else padding_bias(mask, query.dtype)
        return Seen(_weigh(attend(query, key, value, bias=bias, causal=context.causal, need_weights=True)[1]), mask)
    return _within(query, key, value, module.describe(module.bias, context, key), mask)


def _of_cross(module: CrossAttention, projected: Mapping[str, Tensor], context: LayerContext) -> Seen:
    asked = dataclasses.replace(context, need_weights=True, attention_weights=None)
    module.forward(projected, asked)
    weights = _weigh(asked.attention_weights).transpose(0, 1)  # (B, H, T, S)
    mask = context.encoder_padding_mask
    if mask is not None:  # rows of a beam share a sentence
        mask = mask.repeat_interleave(weights.shape[0] // mask.shape[0], dim=0)
    return Seen(weights, mask)


def _of_multi_scale(
    module: MultiScaleLayer, x: Tensor, lengths: Tensor, key_padding_mask: Optional[Tensor] = None
) -> Seen:
    query, key, value = module.project(x)
    return _within(query, key, value, module.windows(lengths), key_padding_mask)


def _of_bert(module: BertLayer, x: Tensor, bias: Optional[Tensor] = None) -> Seen:
    query, key, value = (split_heads(part, module.num_heads) for part in module.in_proj(x).chunk(3, dim=-1))
    mask = None if bias is None else bias[:, 0, 0] < 0
    return Seen(_weigh(attend(query, key, value, bias=bias, need_weights=True)[1]), mask)


def _within(query: Tensor, key: Tensor, value: Tensor, windows: Windows, mask: Optional[Tensor]) -> Seen:
    units = torch.eye(value.shape[2], dtype=value.dtype, device=value.device).expand(*value.shape[:3], -1)
    return Seen(_weigh(window_attention(query, key, units, windows, mask, backend="reference")), mask)


def _weigh(weights: Optional[Tensor]) -> Tensor:
    assert weights is not None
    return weights.to(torch.promote_types(weights.dtype, torch.float32))


_WEIGHTS: dict[type, Callable[..., Seen]] = {
    SelfAttention: _of_branch,
    CrossAttention: _of_cross,
    MultiScaleLayer: _of_multi_scale,
    BertLayer: _of_bert,
    MaskedAttention: weigh_masked,
}
