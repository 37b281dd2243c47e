"""The layers of fairseq's Transformer as parallel layers with one branch at a time, and back.

Both compute the same (arXiv:1706.03762); in one form, what is written for one serves the other.
"""

import copy
from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.branch import Branch
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.staged_layer import StagedLayer

# What later papers added to fairseq's decoder layer; None where a model does without.
_ADDED = ("attn_ln", "c_attn", "ffn_layernorm", "w_resid")


def from_fairseq(layer: nn.Module) -> StagedLayer:
    """Turns a layer of fairseq's Transformer into stages of one branch each, with copies of its parameters.

    Raises:
        NotImplementedError: if it computes something else or lacks cross-attention, with the reason as half a sentence.
    """
    if not isinstance(layer, (TransformerEncoderLayerBase, TransformerDecoderLayerBase)):
        raise NotImplementedError(f"it has layers of the kind {type(layer).__name__}")
    own: Any = layer
    is_decoder = isinstance(layer, TransformerDecoderLayerBase)
    added = [name for name in _ADDED if getattr(own, name, None) is not None]
    if added:
        raise NotImplementedError(f"its layers have {', '.join(added)}")
    if is_decoder and (own.cross_self_attention or own.encoder_attn is None):
        raise NotImplementedError("its decoder has no cross-attention of its own")
    stages = [_take_self_attention(own.self_attn)]
    norms = [own.self_attn_layer_norm, own.final_layer_norm]
    if is_decoder:
        stages.append(_take_cross_attention(own.encoder_attn))
        norms.insert(1, own.encoder_attn_layer_norm)
    ffn = FeedForward(own.fc1.in_features, own.fc1.out_features, own.activation_fn)
    stages.append(_fill("ffn", ffn, [own.fc1], own.fc2))
    for stage, norm in zip(stages, norms, strict=True):
        stage.normalize_before = own.normalize_before
        stage.layer_norm = copy.deepcopy(norm)
    return StagedLayer(stages)


def _take_self_attention(attention: Any) -> ParallelLayer:
    _check_attention(attention)
    branch = SelfAttention(attention.embed_dim, attention.num_heads)
    return _fill("self_attention", branch, [attention.q_proj, attention.k_proj, attention.v_proj], attention.out_proj)


def _take_cross_attention(attention: Any) -> ParallelLayer:
    _check_attention(attention)
    branch = CrossAttention(attention.embed_dim, attention.num_heads, attention.kdim)
    weight, bias = _stack([attention.k_proj, attention.v_proj])
    branch.key_value_proj.weight, branch.key_value_proj.bias = nn.Parameter(weight), nn.Parameter(bias)
    return _fill("cross_attention", branch, [attention.q_proj], attention.out_proj)


def _check_attention(attention: Any) -> None:
    if attention.bias_k is not None or attention.add_zero_attn or attention.kdim != attention.vdim:
        raise NotImplementedError("its attention has keys and values besides those of the sentence")


def _fill(name: str, branch: Branch, inputs: list[Any], output: Any) -> ParallelLayer:
    """A layer of one branch with the parameters of linear layers."""
    stage = ParallelLayer(output.out_features, {name: branch})
    weight, bias = _stack(inputs)
    stage.in_proj_weight, stage.in_proj_bias = nn.Parameter(weight), nn.Parameter(bias)
    stage.out_proj_weight = nn.Parameter(output.weight.detach().clone())
    stage.out_proj_bias = nn.Parameter(_bias_of(output)[None].clone())
    return stage


def _stack(linears: list[Any]) -> tuple[Tensor, Tensor]:
    return torch.cat([x.weight.detach() for x in linears]), torch.cat([_bias_of(x) for x in linears])


def _bias_of(linear: Any) -> Tensor:
    weight: Tensor = linear.weight.detach()
    return weight.new_zeros(weight.shape[0]) if linear.bias is None else linear.bias.detach()


def name_as_fairseq(layer: StagedLayer) -> dict[str, Tensor]:
    """The parameters of a plain Transformer's layer under the names that fairseq's own layer has for them.

    Args:
        layer: stages of one branch each: self-attention, in a decoder cross-attention, feed-forward.
    """
    named: dict[str, Tensor] = {}

    def put(name: str, weight: Tensor, bias: Tensor) -> None:
        named[f"{name}.weight"], named[f"{name}.bias"] = weight.detach(), bias.detach()

    for stage in layer.stages:
        assert isinstance(stage, ParallelLayer)
        ((kind, branch),) = stage.branches.items()
        weight, bias = stage.in_proj_weight, stage.in_proj_bias
        if kind == "ffn":
            put("fc1", weight, bias)
            output, norm = "fc2", "final_layer_norm"
        else:
            prefix = "self_attn" if kind == "self_attention" else "encoder_attn"
            weights, biases = weight.chunk(3), bias.chunk(3)
            if isinstance(branch, CrossAttention):  # which may read states of another width
                states = branch.key_value_proj
                weights, biases = (weight, *states.weight.chunk(2)), (bias, *states.bias.chunk(2))
            for letter, rows, part in zip("qkv", weights, biases, strict=True):
                put(f"{prefix}.{letter}_proj", rows, part)
            output, norm = f"{prefix}.out_proj", f"{prefix}_layer_norm"
        put(output, stage.out_proj_weight, stage.out_proj_bias.sum(0))
        put(norm, stage.layer_norm.weight, stage.layer_norm.bias)
    return named
