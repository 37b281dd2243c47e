"""Builds the layers of every model that is made of branches, for translation and for sentences.

``BRANCHES`` names the branches and says how each is built: a new one is a class (see ``modules/branch.py``) and a line
there. A model fills ``BranchOptions`` from its flags and calls ``build_layer`` once per layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from muse_plugin.models.attention_bias_flags import BiasPlan
from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.attention_bias import AttentionBias
from muse_plugin.modules.branch import Branch
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.gated_conv import DynamicConv, LightweightConv, StaticConv
from muse_plugin.modules.long_short_range import LongShortRange
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.staged_layer import StagedLayer


@dataclass
class LayerPlan:
    """What one layer consists of.

    Attributes:
        stages: names of parallel branches, in the order of the fused projections, for each of the stages in turn.
        kernel_sizes: of its convolution; empty where there is none.
        bias: what its self-attention may look at; None for everything.
    """

    stages: list[list[str]]
    kernel_sizes: tuple[int, ...]
    bias: Optional[BiasPlan] = None

    def build_bias(self) -> Optional[AttentionBias]:
        """Builds what self-attention may look at, None if that is everything."""
        return None if self.bias is None else self.bias.build()


@dataclass(frozen=True)
class BranchOptions:
    """What the layers of one encoder or decoder have in common; probabilities are in [0, 1), for training only.

    Attributes:
        embed_dim: width C.
        attention_heads: heads of self- and cross-attention.
        ffn_embed_dim: hidden width of the feed-forward branch.
        for_conv: further arguments of every convolution, see ``GatedConv``.
        for_layer: further arguments of every layer, see ``ParallelLayer``.
        encoder_dim: width of the encoder states that cross-attention reads; None in an encoder.
        attention_dropout: probability of dropping an attention weight.
        activation_dropout: probability of dropping a hidden unit of the feed-forward branch.
        activation: of the feed-forward branch.
        ffn_reads: see ``FeedForward`` (``reads``).
        conv_type: dynamic, lightweight, depthwise or standard.
        conv_heads: kernels per position; None for as many as there are attention heads.
        conv_backend: of dynamic and lightweight convolutions, see ``ops/dynamic_conv.py``.
        linear_backend: of ``PackedLinear``, in the inference form.
    """

    embed_dim: int
    attention_heads: int
    ffn_embed_dim: int
    for_conv: Mapping[str, Any]
    for_layer: Mapping[str, Any]
    encoder_dim: Optional[int] = None
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: Callable[[Tensor], Tensor] = torch.relu
    ffn_reads: Optional[str] = None
    conv_type: str = "dynamic"
    conv_heads: Optional[int] = None
    conv_backend: str = "auto"
    linear_backend: str = "auto"

    @property
    def kernels(self) -> int:
        """Kernels per position."""
        return self.attention_heads if self.conv_heads is None else self.conv_heads


def _self_attention(own: BranchOptions, plan: LayerPlan) -> Branch:
    return SelfAttention(own.embed_dim, own.attention_heads, own.attention_dropout, plan.build_bias())


def _conv(own: BranchOptions, plan: LayerPlan) -> Branch:
    if own.conv_type in ("depthwise", "standard"):
        return StaticConv(own.embed_dim, plan.kernel_sizes, depthwise=own.conv_type == "depthwise", **own.for_conv)
    head_conv = DynamicConv if own.conv_type == "dynamic" else LightweightConv
    conv = head_conv(own.embed_dim, own.kernels, plan.kernel_sizes, **own.for_conv)
    conv.backend = own.conv_backend
    return conv


def _long_short_range(own: BranchOptions, plan: LayerPlan) -> Branch:
    sizes = own.embed_dim, own.attention_heads, own.kernels, plan.kernel_sizes
    branch = LongShortRange(*sizes, own.attention_dropout, plan.build_bias(), **own.for_conv)
    branch.conv.backend = own.conv_backend
    return branch


def _cross_attention(own: BranchOptions, plan: LayerPlan) -> Branch:
    return CrossAttention(own.embed_dim, own.attention_heads, own.encoder_dim, own.attention_dropout)


def _ffn(own: BranchOptions, plan: LayerPlan) -> Branch:
    return FeedForward(own.embed_dim, own.ffn_embed_dim, own.activation, own.activation_dropout, own.ffn_reads)


class BranchKind(NamedTuple):
    """A line of ``BRANCHES``.

    Attributes:
        build: makes the branch from the options of its side and the plan of its layer.
        places: where it can be: words out of encoder, decoder (both of translation) and sentence.
    """

    build: Callable[[BranchOptions, LayerPlan], Branch]
    places: str


# By the name that users give; in this order the branches of a stage are in its projections.
BRANCHES: dict[str, BranchKind] = {
    "self_attention": BranchKind(_self_attention, "encoder decoder sentence"),
    "conv": BranchKind(_conv, "encoder decoder sentence"),
    "long_short_range": BranchKind(_long_short_range, "encoder decoder"),
    "cross_attention": BranchKind(_cross_attention, "decoder"),
    "ffn": BranchKind(_ffn, "encoder decoder sentence"),
}


def branch_names(place: str) -> list[str]:
    """The branches that can be in an "encoder", a "decoder" or the encoder of a "sentence" model, in order."""
    return [name for name, kind in BRANCHES.items() if place in kind.places.split()]


def build_layer(options: BranchOptions, plan: LayerPlan) -> ParallelLayer | StagedLayer:
    """Builds one layer: its stages one after the other, in each the branches side by side."""
    stages = []
    for names in plan.stages:
        branches = {name: BRANCHES[name].build(options, plan) for name in names}
        stage = ParallelLayer(options.embed_dim, branches, **options.for_layer)
        stage.linear_backend = options.linear_backend
        stages.append(stage)
    return stages[0] if len(stages) == 1 else StagedLayer(stages)
