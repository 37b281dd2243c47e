"""The MUSE layer as its equations are in the paper, one operation after the other: what fusing is measured against.

Source: arXiv:1911.09483, section 2. Every matrix is a product of its own, every kernel size a convolution of its own
from shifted copies, attention an explicit softmax with masks made in every layer. The parameters are those of the
fused layer, so that both can be compared number by number.
"""

import functools
import math
import operator
from typing import Optional

import torch
import torch.nn.functional as F
from fairseq.models import FairseqEncoderDecoderModel
from torch import Tensor, nn

from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.branch import LayerContext, merge_heads, split_heads
from muse_plugin.modules.gated_conv import DynamicConv
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.ops.dynamic_conv import dynamic_conv


class UnfusedLayer(nn.Module):
    """A parallel layer of the published branches, computed plainly on its parameters; for whole sentences."""

    def __init__(self, layer: ParallelLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """See ``ParallelLayer.forward``; leaves no attention weights."""
        layer, padding = self.layer, context.key_padding_mask
        residual = x
        if layer.normalize_before:
            x = layer.layer_norm(x)
        noisy = F.dropout(x, layer.input_dropout, self.training)
        sizes = [p.size for p in layer.projections]
        matrices = zip(layer.in_proj_weight.split(sizes), layer.in_proj_bias.split(sizes), strict=True)
        slices = {p.name: (noisy if p.noisy else x, *both) for p, both in zip(layer.projections, matrices, strict=True)}

        def project(name: str) -> Tensor:
            return F.linear(*slices[name]).transpose(0, 1)  # (B, T, size)

        sums: dict[str, Tensor] = {}
        columns = layer.out_proj_weight.split([branch.output_size for branch in layer._branches()], dim=1)
        for branch, weight in zip(layer.branches.values(), columns, strict=True):
            if isinstance(branch, SelfAttention):
                states = _attend(branch, project("query"), project("key"), project("value"), padding, context.causal)
            elif isinstance(branch, DynamicConv):
                states = _convolve(branch, project(branch.projections[0].name), padding)
            elif isinstance(branch, CrossAttention):
                assert context.encoder_out is not None
                weights = branch.key_value_proj.weight.chunk(2), branch.key_value_proj.bias.chunk(2)
                key, value = (
                    F.linear(context.encoder_out, w, b).transpose(0, 1) for w, b in zip(*weights, strict=True)
                )
                states = _attend(branch, project("encoder_query"), key, value, context.encoder_padding_mask, False)
            else:
                states = branch.activation(project(branch.projections[0].name))
                states = F.dropout(states, branch.activation_dropout, self.training)
            result = F.linear(states, weight).transpose(0, 1)
            sums[branch.group] = sums[branch.group] + result if branch.group in sums else result
        for group, bias in zip(layer.groups, layer.out_proj_bias, strict=True):
            residual = residual + F.dropout(sums[group] + bias, layer.branch_dropout, self.training)
        if not layer.normalize_before:
            residual = layer.layer_norm(residual)
        return residual


def _attend(
    branch: "SelfAttention | CrossAttention",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Optional[Tensor],
    causal: bool,
) -> Tensor:
    query, key, value = (split_heads(x, branch.num_heads) for x in (query, key, value))
    logits = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    if causal:
        future = torch.ones(logits.shape[2:], dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(future, -torch.inf)
    if padding is not None:
        logits = logits.masked_fill(padding[:, None, None], torch.finfo(logits.dtype).min / 2)
    weights = torch.softmax(logits, dim=-1, dtype=torch.float32).to(value.dtype)
    return merge_heads(F.dropout(weights, branch.dropout, branch.training) @ value)


def _convolve(branch: DynamicConv, values: Tensor, padding: Optional[Tensor]) -> Tensor:
    gate = branch.gate_weights().to(values.dtype)
    heads = split_heads(values, branch.num_heads)
    rows = [branch.num_heads * size for size in branch.kernel_sizes]
    results = []
    for i, weight in enumerate(torch.split(branch.kernel_weight, rows)):
        size = branch.kernel_sizes[i]
        taps = torch.softmax(split_heads(F.linear(values, weight), branch.num_heads), dim=-1)
        result = dynamic_conv(
            heads,
            F.dropout(taps, branch.weight_dropout, branch.training),
            padding_left=size - 1 if branch.causal else size // 2,
            key_padding_mask=padding if branch.mask_padding else None,
            backend="reference",
        )
        results.append(merge_heads(result) * gate[i])
    return functools.reduce(operator.add, results)


def unfuse_(model: FairseqEncoderDecoderModel) -> FairseqEncoderDecoderModel:
    """Replaces every parallel layer of a model by its unfused form; the parameters stay the same objects."""
    for side in (model.encoder, model.decoder):
        side.layers = nn.ModuleList(UnfusedLayer(layer) for layer in side.layers)
    return model
