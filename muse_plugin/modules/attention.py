"""Multi-head scaled dot-product attention.

``SelfAttention`` and ``CrossAttention`` are branches of the parallel layer (``parallel_layer.py``): their query, key
and value matrices, and W^O, are slices of the layer's fused projections.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from muse_plugin.modules.attends import CROSS, SELF, AttentionWeights, HeadSource, weigh_windows
from muse_plugin.modules.attention_bias import AttentionBias, count_identity_heads
from muse_plugin.modules.branch import Branch, LayerContext, Projection, check_heads, merge_heads, split_heads
from muse_plugin.modules.linear import Linear
from muse_plugin.modules.padding_mask import Padding
from muse_plugin.ops.dropout import dropout as drop
from muse_plugin.ops.eager_cpu import runs_eagerly_on_cpu
from muse_plugin.ops.fused_attention import fused_attention
from muse_plugin.ops.softmax import SIMD_WIDTH, softmax
from muse_plugin.ops.window_attention import Windows, window_attention

# Where PyTorch's kernel gains nothing by never holding the weights (training, one thread, AVX-512, torch 2.13).
_NARROW_HEAD, _FEW_KEYS = 32, 64


def padding_bias(key_padding_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turns a padding mask into an additive bias.

    The bias at padding is half the lowest finite number, not -inf: ignored next to any real key, and a row of
    nothing but padding stays finite.

    Args:
        key_padding_mask: bool, shape (B, S), true at padding.
        dtype: dtype of the logits.

    Returns:
        Tensor of shape (B, 1, 1, S).
    """
    bias = torch.zeros(key_padding_mask.shape, dtype=dtype, device=key_padding_mask.device)
    return bias.masked_fill_(key_padding_mask, torch.finfo(dtype).min / 2)[:, None, None]


def make_padding(mask: Tensor | None, x: Tensor) -> Padding | None:
    """The padding of a batch for all layers that read ``x``; None if ``mask``, bool (B, S), is."""
    if mask is None:
        return None
    # Queries and keys projected from x have autocast's dtype, where it is on.
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    return Padding(mask, padding_bias(mask, dtype))


def _bias_of(padding: Padding | None, dtype: torch.dtype) -> Tensor | None:
    """The ready-made bias if it has the right dtype, else that of the mask."""
    if padding is None or padding.bias.dtype == dtype:
        return None if padding is None else padding.bias
    return padding_bias(padding.mask, dtype)


def causal_bias(length: int, keys: int, like: Tensor) -> Tensor:
    """Additive bias (length, keys) that hides the future from the last ``length`` of ``keys`` positions."""
    hidden = torch.full((length, keys), torch.finfo(like.dtype).min / 2, dtype=like.dtype, device=like.device)
    return hidden.triu_(keys - length + 1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K^T / sqrt(D) + bias) V, per head (arXiv:1706.03762, Eq. 1).

    Args:
        query: shape (B, H, T, D).
        key: shape (B, H, S, D).
        value: shape (B, H, S, D).
        bias: added to the logits; broadcastable to (B, H, T, S).
        causal: query t sees keys up to S - T + t only.
        dropout: probability of dropping an attention weight; the caller passes 0 outside training.
        need_weights: also return the weights (before dropout); slower, since nothing is fused.

    Returns:
        The output, shape (B, H, T, D), and the weights, shape (B, H, T, S) in float32 or float64, or None.
    """
    length, keys = query.shape[2], key.shape[2]
    if length <= 1:
        causal = False  # there is no future
    fused = not need_weights and not _is_quicker_unfused(query, keys, dropout)
    simple_causal = causal and length == keys and bias is None and fused
    if causal and not simple_causal:
        future = causal_bias(length, keys, query)
        bias = future if bias is None else bias + future
    if fused:
        return fused_attention(query, key, value, bias=bias, dropout=dropout, causal=simple_causal), None
    logits = torch.matmul(query * (1.0 / math.sqrt(query.shape[-1])), key.transpose(-2, -1))
    if bias is not None:
        logits = logits + bias
    weights = softmax(logits)
    noisy = drop(weights, dropout)
    return torch.matmul(noisy.to(value.dtype), value), weights if need_weights else None


def _is_quicker_unfused(query: Tensor, keys: int, dropout: float) -> bool:
    """Whether two products and a softmax take less time than PyTorch's kernel, which has no dropout on a CPU."""
    length, channels = query.shape[2:]
    if query.dtype != torch.float32 or length == 1 or not runs_eagerly_on_cpu(query):
        return False
    return dropout > 0 or keys < SIMD_WIDTH or (channels <= _NARROW_HEAD and keys <= _FEW_KEYS)


def weigh(query: Tensor, key: Tensor, bias: Tensor | None = None, causal: bool = False) -> Tensor:
    """The weights of ``attend`` alone, shape (B, H, T, S); arguments as there."""
    weights = attend(query, key, key, bias=bias, causal=causal, need_weights=True)[1]
    assert weights is not None
    return weights


class _Attention(Branch):
    """What both branches have in common."""

    output_gain = math.sqrt(3.0)

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads, "attention")
        self.num_heads = num_heads
        self.dropout = dropout
        self.output_size = embed_dim

    def find_heads(self) -> HeadSource:
        """See ``Attends.find_heads``."""
        return HeadSource(self, False, self.num_heads, self.output_size // self.num_heads)

    def extra_repr(self) -> str:
        """Sizes for ``print(model)``."""
        return f"num_heads={self.num_heads}, dropout={self.dropout}"


class SelfAttention(_Attention):
    """Self-attention branch: W^Q, W^K, W^V are slices "query", "key", "value" of the layer's input projection.

    Args:
        embed_dim: width C; divisible by ``num_heads``.
        num_heads: number of heads H.
        dropout: probability in [0, 1) of dropping an attention weight, training only.
        bias: what heads may look at and what distance costs; None for plain attention.

    Raises:
        ValueError: if ``embed_dim`` is not divisible by ``num_heads``.
    """

    group = "self"
    attends_to = SELF

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: AttentionBias | None = None) -> None:
        super().__init__(embed_dim, num_heads, dropout)
        self.bias = bias
        self.window_backend = "auto"  # of window_attention
        self.projections = (
            Projection("query", embed_dim, noisy=True),
            Projection("key", embed_dim, noisy=True, cached=True),
            Projection("value", embed_dim, noisy=True, cached=True),
        )

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``; keys at padding are ignored."""
        query, key, value = self._split(projected)
        dropout = self.dropout if self.drops else 0.0
        if self.bias is None:
            bias = _bias_of(context.key_padding, query.dtype)
            out, _ = attend(query, key, value, bias=bias, causal=context.causal, dropout=dropout)
            return merge_heads(out)
        windows = self.describe(self.bias, context, key)
        out = window_attention(query, key, value, windows, context.key_padding_mask, dropout, self.window_backend)
        return merge_heads(out)

    def _split(self, projected: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T or S, D)."""
        value = split_heads(projected["value"], self.num_heads)
        # Heads that see nothing but their own word may have neither queries nor keys, see ``fold``.
        width = value.shape[-1]
        query, key = (split_heads(projected[name], projected[name].shape[-1] // width) for name in ("query", "key"))
        return query, key, value

    def weigh_attention(self, projected: Mapping[str, Tensor], context: LayerContext) -> AttentionWeights:
        """See ``Attends.weigh_attention``."""
        query, key, value = self._split(projected)
        mask = context.key_padding_mask
        if self.bias is not None:
            return weigh_windows(query, key, value, self.describe(self.bias, context, key), mask)
        bias = None if mask is None else padding_bias(mask, query.dtype)
        return AttentionWeights(weigh(query, key, bias, context.causal), mask)

    def describe(self, bias: AttentionBias, context: LayerContext, key: Tensor) -> Windows:
        """What heads may see of the sentences in ``context``, whose keys are ``key``, shape (B, H, S, D)."""
        lengths, mask = context.lengths, context.key_padding_mask
        if lengths is None:  # on the CPU: ranges decide how attention is computed
            whole = torch.full((1,), key.shape[2], dtype=torch.int64)
            lengths = whole if mask is None else mask.logical_not().sum(1).cpu()
        windows: Windows = bias(lengths)
        return windows._replace(last=windows.last.clamp(max=0)) if context.causal else windows

    def fold(self, rows: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """See ``Branch.fold``: the first heads that see nothing but their own word need no queries and keys."""
        identity_heads = 0 if self.bias is None else count_identity_heads(self.bias, self.num_heads)
        if identity_heads == 0:
            return {}
        start = identity_heads * (self.output_size // self.num_heads)
        return {name: (rows[name][0][start:], rows[name][1][start:]) for name in ("query", "key")}


class CrossAttention(_Attention):
    """Attention to the encoder's states, parallel to the other branches: its query reads the layer's input.

    The query matrix is the slice "encoder_query" of the layer's input projection; keys and values have a projection
    of their own, [W^K; W^V] stacked, because they read the encoder.

    Args:
        embed_dim: width C; divisible by ``num_heads``.
        num_heads: number of heads H.
        encoder_dim: width of the encoder's states.
        dropout: probability in [0, 1) of dropping an attention weight, training only.

    Raises:
        ValueError: if ``embed_dim`` is not divisible by ``num_heads``.
    """

    group = "cross"
    joined_output = False
    attends_to = CROSS

    def __init__(self, embed_dim: int, num_heads: int, encoder_dim: int, dropout: float = 0.0) -> None:
        super().__init__(embed_dim, num_heads, dropout)
        self.projections = (Projection("encoder_query", embed_dim),)
        self.key_value_proj = Linear(encoder_dim, 2 * embed_dim)
        bound = 1.0 / math.sqrt(encoder_dim)
        nn.init.uniform_(self.key_value_proj.weight, -bound, bound)
        nn.init.zeros_(self.key_value_proj.bias)

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """See ``Branch.forward``; leaves the weights in ``context`` when asked.

        Raises:
            ValueError: if there are no encoder states, or the rows do not divide evenly among their sentences.
        """
        key, value = self._encoder_keys_and_values(context)
        query = projected["encoder_query"]  # (B, T, C)
        batch, length, width = query.shape
        sentences = key.shape[0]
        if batch % sentences != 0:
            raise ValueError(
                f"every sentence must have the same number of rows, but got {batch} rows for {sentences} encoded "
                "sentences; reorder encoder_out together with the decoder's rows."
            )
        # Rows of one sentence (a beam) are further queries to the same keys: nothing is copied per row.
        query = query.reshape(sentences, batch // sentences * length, width)
        out, weights = attend(
            split_heads(query, self.num_heads),
            split_heads(key, self.num_heads),
            split_heads(value, self.num_heads),
            bias=_bias_of(context.encoder_padding, query.dtype),
            dropout=self.dropout if self.drops else 0.0,
            need_weights=context.need_weights,
        )
        if weights is not None:
            weights = weights.transpose(0, 1)  # (H, sentences, B / sentences * T, S)
            context.attention_weights = weights.reshape(self.num_heads, batch, length, -1)
        return merge_heads(out).reshape(batch, length, width)

    def weigh_attention(self, projected: Mapping[str, Tensor], context: LayerContext) -> AttentionWeights:
        """See ``Attends.weigh_attention``; rows of a beam share the padding of their sentence."""
        asked = dataclasses.replace(context, need_weights=True, attention_weights=None)
        self.forward(projected, asked)
        assert asked.attention_weights is not None
        weights = asked.attention_weights.transpose(0, 1)  # (B, H, T, S)
        mask = context.encoder_padding_mask
        return AttentionWeights(weights, None if mask is None else mask.repeat_interleave(len(weights) // len(mask), 0))

    def _encoder_keys_and_values(self, context: LayerContext) -> tuple[Tensor, Tensor]:
        """Keys and values, each (sentences, S, C): projected once per sentence, then kept in the cache."""
        cache = context.cache
        if cache is not None and cache.encoder_key_value is not None:
            return cache.encoder_key_value
        if context.encoder_out is None:
            raise ValueError("cross_attention needs encoder_out, but got None; drop the branch or pass encoder states.")
        # Parted in the layout of the product, or its gradient would be copied once more.
        parts = self.key_value_proj(context.encoder_out).chunk(2, dim=-1)
        key, value = (part.transpose(0, 1) for part in parts)
        if cache is not None:
            cache.encoder_key_value = key, value
        return key, value
