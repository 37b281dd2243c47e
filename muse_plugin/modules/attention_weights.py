"""What each head of an encoder looks at: the weights of self-attention, for figures and numbers about them.

A fused kernel never makes these matrices. Here they are computed once more, beside it, from the same queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention import SelfAttention, attend, padding_bias
from muse_plugin.modules.bert_encoder import BertLayer
from muse_plugin.modules.branch import LayerContext, split_heads
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer
from muse_plugin.ops.window_attention import Windows, window_attention


def find_attention(encoder: nn.Module) -> list[nn.Module]:
    """The modules of an encoder that attend, from the bottom; in the order of ``find_head_sources``."""
    return [module for module in encoder.modules() if isinstance(module, (SelfAttention, MultiScaleLayer, BertLayer))]


@contextmanager
def record_attention(modules: list[nn.Module]) -> Iterator[dict[int, Tensor]]:
    """Computes attention weights while the encoder runs; in evaluation mode, without gradients.

    Args:
        modules: of ``find_attention``, those that are wanted.

    Yields:
        Weights by their place in ``modules``, each of shape (B, H, T, S), float32 or float64, rows (queries) with a sum
        of 1, or of 0 where a word sees none; filled as layers are run.
    """
    weights: dict[int, Tensor] = {}

    def keep(number: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            with torch.no_grad():
                weights[number] = _WEIGHTS[_kind(module)](module, *args, **named)

        return hook

    handles = [
        module.register_forward_pre_hook(keep(number), with_kwargs=True) for number, module in enumerate(modules)
    ]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


def _kind(module: nn.Module) -> type:
    return next(kind for kind in _WEIGHTS if isinstance(module, kind))


def _of_branch(module: SelfAttention, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
    value = split_heads(projected["value"], module.num_heads)
    width = value.shape[-1]
    query, key = (split_heads(projected[name], projected[name].shape[-1] // width) for name in ("query", "key"))
    if module.bias is None:
        bias = None if context.key_padding_mask is None else padding_bias(context.key_padding_mask, query.dtype)
        return _weigh(attend(query, key, value, bias=bias, causal=context.causal, need_weights=True)[1])
    return _within(query, key, value, module.describe(module.bias, context, key), context.key_padding_mask)


def _of_multi_scale(
    module: MultiScaleLayer, x: Tensor, lengths: Tensor, key_padding_mask: Optional[Tensor] = None
) -> Tensor:
    query, key, value = module.project(x)
    return _within(query, key, value, module.windows(lengths), key_padding_mask)


def _of_bert(module: BertLayer, x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    query, key, value = (split_heads(part, module.num_heads) for part in module.in_proj(x).chunk(3, dim=-1))
    return _weigh(attend(query, key, value, bias=bias, need_weights=True)[1])


def _within(query: Tensor, key: Tensor, value: Tensor, windows: Windows, mask: Optional[Tensor]) -> Tensor:
    units = torch.eye(value.shape[2], dtype=value.dtype, device=value.device).expand(*value.shape[:3], -1)
    return _weigh(window_attention(query, key, units, windows, mask, backend="reference"))


def _weigh(weights: Optional[Tensor]) -> Tensor:
    assert weights is not None
    return weights.to(torch.promote_types(weights.dtype, torch.float32))


_WEIGHTS: dict[type, Callable[..., Tensor]] = {
    SelfAttention: _of_branch,
    MultiScaleLayer: _of_multi_scale,
    BertLayer: _of_bert,
}
