"""Runs layers and branches from plain masks."""

from typing import Any, Optional

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention import make_padding
from muse_plugin.modules.attention_bias import Scale
from muse_plugin.modules.branch import LayerContext


def make_context(
    length: int,
    key_padding_mask: Optional[Tensor] = None,
    encoder_padding_mask: Optional[Tensor] = None,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> LayerContext:
    """A context with these masks, for states of that dtype."""
    like = torch.empty(0, dtype=dtype)
    paddings = {"key_padding": key_padding_mask, "encoder_padding": encoder_padding_mask}
    return LayerContext(length, **{name: make_padding(mask, like) for name, mask in paddings.items()}, **options)


def run_layer(
    layer: nn.Module, x: Tensor, key_padding_mask: Optional[Tensor] = None, **options: Any
) -> tuple[Tensor, Optional[Tensor]]:
    """The states that a layer makes of ``x``, and the weights of cross-attention that it leaves."""
    context = make_context(len(x), key_padding_mask, dtype=x.dtype, **options)
    return layer(x, context), context.attention_weights


def scales_of(text: str) -> list[Scale]:
    """Reads 3,N/4,all."""
    parts = text.split(",")
    return [
        Scale() if p == "all" else Scale(divisor=int(p[2:])) if p.startswith("N/") else Scale(int(p)) for p in parts
    ]
