"""Long-short range attention: half of the channels attend, the other half convolve. A rival of the MUSE layer.

Source: Wu et al. 2020 (Lite Transformer, arXiv:2004.11886), for the row "long-short range attention" in Table 6 of
arXiv:1911.09483. It is also an example of a branch that keeps input projections of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.attention_bias import AttentionBias
from muse_plugin.modules.branch import Branch, LayerContext
from muse_plugin.modules.gated_conv import DynamicConv
from muse_plugin.modules.linear import Linear


class LongShortRange(Branch):
    """Self-attention on the first half of the channels next to dynamic convolution on the second half.

    Differs from Lite Transformer: no GLU before the convolution, and the halves' outputs meet in the parallel layer's
    output projection, not in two projections of half the width.

    Args:
        embed_dim: width C, even; C / 2 is divisible by ``num_heads`` and by ``conv_heads``.
        num_heads: attention heads.
        conv_heads: kernels per position.
        kernel_sizes: see ``GatedConv``, as are ``options``.
        attention_dropout: probability in [0, 1) of dropping an attention weight, training only.
        bias: what heads may look at, see ``SelfAttention``.
        **options: see ``GatedConv``; ``share_value`` is always false here.

    Raises:
        ValueError: if the width is odd or does not divide into heads.
    """

    group = "self"
    output_gain = math.sqrt(3.0)

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        conv_heads: int,
        kernel_sizes: Sequence[int],
        attention_dropout: float = 0.0,
        bias: AttentionBias | None = None,
        **options: bool | float,
    ) -> None:
        super().__init__()
        if embed_dim % 2 != 0:
            raise ValueError(f"long_short_range needs an even width, but got embed_dim={embed_dim}; use an even one.")
        self.half_dim = embed_dim // 2
        options["share_value"] = False
        self.attention = SelfAttention(self.half_dim, num_heads, attention_dropout, bias)
        self.conv = DynamicConv(self.half_dim, conv_heads, kernel_sizes, **options)
        self.attention_in_proj = _make_linear(self.half_dim, 3 * self.half_dim)
        self.conv_in_proj = _make_linear(self.half_dim, self.half_dim)
        self.output_size = self.half_dim + self.conv.output_size

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``."""
        long_half, short_half = torch.split(projected["input"], self.half_dim, dim=-1)
        query, key, value = self.attention_in_proj(long_half).chunk(3, dim=-1)
        conv_value = self.conv_in_proj(short_half)
        if context.cache is not None:
            key, value = context.cache.extend("long_key", key), context.cache.extend("long_value", value)
            conv_value = context.cache.extend("short_value", conv_value)
        own = {"query": query, "key": key, "value": value, "conv_value": conv_value}
        return torch.cat([self.attention(own, context), self.conv(own, context)], dim=-1)

    def parameters_after(self, path: Sequence[str]) -> list[nn.Parameter]:
        """The parameters that its self-attention does not depend on."""
        return [*self.conv.parameters(), *self.conv_in_proj.parameters()]


def _make_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with the bounds of the parallel layer's input projection and zero bias."""
    linear = Linear(inputs, outputs)
    bound = 1.0 / math.sqrt(inputs)
    nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.zeros_(linear.bias)
    return linear
