"""``muse-plugin benchmark attention --windows``: encoders of windowed attention, forward, against fairseq's.

The sizes are those of Figure 4 in Guo et al. 2020 (arXiv:1912.00544): three layers of width 300 with ten heads, batches
of 128 sentences.
"""

import argparse
import copy
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from muse_plugin.benchmark.measurement import Case
from muse_plugin.models.attention_bias_flags import plan_biases
from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerConfig
from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.parallel_layer import ParallelLayer

LENGTHS = (22, 50, 109, 201, 400, 800)
FAIRSEQ = "fairseq Transformer layers"
DENSE = "windows, dense masks"
OURS = "windows"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every list of scales and length."""
    for scales in args.scales:
        torch.manual_seed(args.seed)
        encoders = _build_encoders(args, scales)
        for length in args.lengths or LENGTHS:
            x = torch.randn(length, args.sentences, args.embed_dim, device=args.device, dtype=args.dtype)
            runs = {name: partial(encoder, x) for name, encoder in encoders.items()}
            yield Case({"scales": scales, "length": length}, runs.items(), length * args.sentences)


def _build_encoders(args: argparse.Namespace, scales: str) -> dict[str, Callable[[Tensor], Tensor]]:
    flags = MultiScaleTransformerConfig(
        encoder_attention_scales=scales, encoder_layers=args.layers, encoder_attention_heads=args.window_heads
    )
    biases = [plan.build() for plan in plan_biases(flags, "encoder") if plan is not None]
    branches = [SelfAttention(args.embed_dim, args.window_heads, bias=bias) for bias in biases]
    ours = [ParallelLayer(args.embed_dim, {"self_attention": branch}) for branch in branches]
    theirs = TransformerConfig.from_namespace(
        Namespace(
            encoder_embed_dim=args.embed_dim,
            encoder_ffn_embed_dim=4 * args.embed_dim,
            encoder_attention_heads=args.window_heads,
        )
    )
    layers = [TransformerEncoderLayerBase(theirs) for _ in range(args.layers)]
    for layer in (*ours, *layers):
        layer.to(args.device, args.dtype).eval()
    for layer in ours:
        layer.make_generation_fast_()
    encoders = {FAIRSEQ: _stack(layers)}
    if not args.without_dense:
        dense = copy.deepcopy(ours)
        for layer in dense:
            layer.branches["self_attention"].window_backend = "dense"
        encoders[DENSE] = _stack(dense)
    encoders[OURS] = _stack(ours)
    return encoders


def _stack(layers: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """Layers one after the other: fairseq's, which take a padding mask and return states, or ours."""

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in layers:
                x = layer(x, LayerContext(len(x)) if isinstance(layer, ParallelLayer) else None)
        return x

    return run
