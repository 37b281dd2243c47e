"""One step of a decoder as a function of tensors: what it remembers goes in and out, and nothing depends on numbers.

``static_decoding.py`` runs it with histories of a fixed size; ``onnx/graphs.py`` shares its embedding and its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

import torch.nn.functional as F
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn

from muse_plugin.modules.attention import CrossAttention
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.layer_cache import Histories, NamedCache
from muse_plugin.modules.padding_mask import Padding
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.staged_layer import StagedLayer


class Embedding(nn.Module):
    """Tokens and positions to the input of the layers, as fairseq's encoder or decoder ``side`` embeds them."""

    def __init__(self, side: Any) -> None:
        super().__init__()
        self.tokens = side.embed_tokens
        self.scale = float(side.embed_scale)
        self.norm = side.layernorm_embedding
        self.positions: Optional[Tensor]
        self.register_buffer("positions", _make_position_table(side))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embeds tokens (B, T) at positions, counted from fairseq's padding index + 1, broadcastable to (B, T)."""
        x = self.scale * self.tokens(tokens)
        if self.positions is not None:
            x = x + F.embedding(positions, self.positions)
        return x if self.norm is None else self.norm(x)


def _make_position_table(side: Any) -> Optional[Tensor]:
    """The embedding of every position that a sentence may have, shape (positions, C); None without positions."""
    embed: Any = side.embed_positions
    if embed is None:
        return None
    if isinstance(embed, SinusoidalPositionalEmbedding):
        longest = getattr(side, "max_source_positions", None) or side.max_target_positions
        rows = longest + embed.padding_idx + 1
        table: Tensor = SinusoidalPositionalEmbedding.get_embedding(rows, embed.embedding_dim, embed.padding_idx)
        return table.to(side.embed_tokens.weight)
    return embed.weight.detach()


class DecoderStep(nn.Module):
    """The last token of each hypothesis to the state that the output layer reads, by the modules of a decoder."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.embedding = Embedding(decoder)
        self.layers = decoder.layers
        self.norm = decoder.layer_norm
        self.project = decoder.project_out_dim
        self.first_position = decoder.padding_idx + 1

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        histories: Histories,
        encoded: Mapping[str, Tensor],
        encoder_padding: Optional[Padding] = None,
        key_padding: Optional[Padding] = None,
        lengths: Optional[Tensor] = None,
    ) -> Tensor:
        """Computes a step.

        Args:
            tokens: int64, shape (R,); R / N neighbours share one of N sentences.
            position: how many tokens are before them, int64, one number.
            histories: of all layers; extended.
            encoded: see ``NamedCache``.
            encoder_padding: of the sources.
            key_padding: of the histories.
            lengths: see ``LayerContext``.

        Returns:
            Shape (R, C).
        """
        x = self.embedding(tokens.unsqueeze(1), position.reshape(1, 1) + self.first_position).transpose(0, 1)
        for number, layer in enumerate(self.layers):
            cache = NamedCache(str(number), histories, encoded)
            context = LayerContext(1, key_padding, None, encoder_padding, causal=True, lengths=lengths, cache=cache)
            x = layer(x, context)
        x = x.transpose(0, 1).squeeze(1)
        if self.norm is not None:
            x = self.norm(x)
        return x if self.project is None else self.project(x)


def list_stages(layers: nn.ModuleList) -> Iterator[tuple[str, ParallelLayer]]:
    """Every parallel layer with the name that ``NamedCache`` has for it: "layer", or "layer.stage"."""
    for number, layer in enumerate(layers):
        stages: Any = layer.stages if isinstance(layer, StagedLayer) else [layer]
        for place, stage in enumerate(stages):
            yield f"{number}.{place}" if isinstance(layer, StagedLayer) else str(number), stage


def find_cross_attention(layers: nn.ModuleList) -> Iterator[tuple[str, CrossAttention]]:
    """Every cross-attention with the name of its layer."""
    for name, stage in list_stages(layers):
        for branch in stage.branches.values():
            if isinstance(branch, CrossAttention):
                yield name, branch
