"""Layers of a decoder for one token of each row, written so that their graph has few operators.

Parameters are those of the form for inference (``inference_form.py``), and the results are the same; what differs is
where things are in memory. A history is kept by head, (R, H, S, D): one more token is a concatenation, a product reads
it as it is, and nothing is transposed. Branches that are rare are called as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.attention import CrossAttention, SelfAttention
from muse_plugin.modules.branch import Branch, LayerContext, merge_heads, split_heads
from muse_plugin.modules.feed_forward import FeedForward
from muse_plugin.modules.gated_conv import DynamicConv, GatedConv
from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.parallel_layer import ParallelLayer


@dataclass
class StepContext:
    """What all layers of a step read, and the histories that they extend.

    Attributes:
        order: rows of the histories that are continued, int64, shape (R,).
        length: positions with the new one, int64, shape ().
        past: histories by name, each (rows, H, length - 1, D); none in a step without a past.
        encoded: keys (B, H, D, S) and values (B, H, S, D) of each cross-attention; R / B neighbours share a sentence.
        bias: added to logits over the source, shape (B, 1, 1, S).
        present: the histories of this step by name, each (R, H, length, D).
    """

    order: Tensor
    length: Tensor
    past: Mapping[str, Tensor]
    encoded: Mapping[str, Tensor]
    bias: Tensor
    present: dict[str, Tensor] = field(default_factory=dict)

    def extend(self, name: str, new: Tensor) -> Tensor:
        """The history with one position more, (R, H, 1, D)."""
        if name in self.past:
            new = torch.cat([self.past[name].index_select(0, self.order), new], dim=2)
        self.present[name] = new
        return new


class StepLayer(nn.Module):
    """A parallel layer for one token of each row.

    Args:
        name: of the layer, before the names of its histories.
        layer: in its form for inference, with products of the back end "plain".
    """

    def __init__(self, name: str, layer: ParallelLayer) -> None:
        super().__init__()
        self.name, self.normalize_before, self.layer_norm = name, layer.normalize_before, layer.layer_norm
        packed: Any = layer.packed
        self.sizes: dict[str, int] = packed.sizes
        self.branches = nn.ModuleList(_fix_windows(branch) for branch in layer.branches.values())
        self.heads = dict.fromkeys(packed.cached, 1)  # of each history
        scales = {own: torch.ones(size) for own, size in self.sizes.items()}
        for branch in sorted(self.branches, key=lambda own: isinstance(own, SelfAttention)):
            reads = [projection.name for projection in branch.projections]
            if isinstance(branch, DynamicConv) or _is_plain(branch):
                self.heads |= {own: branch.num_heads for own in reads if own in self.heads}
            if _is_plain(branch):
                scales[reads[0]] /= (branch.output_size / branch.num_heads) ** 0.5
        scale = torch.cat([*scales.values()])
        weight, bias = packed.in_proj.parameters()
        self.in_proj = _make_linear(weight * scale[:, None], bias * scale)
        self.out_proj = _make_linear(*packed.out_proj.parameters())

    def forward(self, x: Tensor, context: StepContext) -> Tensor:
        """Computes the layer, shape (R, C)."""
        residual = x
        if self.normalize_before:
            x = self.layer_norm(x)
        new = dict(zip(self.sizes, self.in_proj(x).split([*self.sizes.values()], dim=-1), strict=True))
        kept = {
            own: context.extend(f"{self.name}.{own}", new[own].reshape(-1, heads, 1, self.sizes[own] // heads))
            for own, heads in self.heads.items()
        }
        new["input"] = x
        x = residual + self.out_proj(torch.cat([self._compute(own, new, kept, context) for own in self.branches], -1))
        return x if self.normalize_before else self.layer_norm(x)

    def _compute(
        self, branch: Any, new: Mapping[str, Tensor], kept: Mapping[str, Tensor], context: StepContext
    ) -> Tensor:
        """The result of a branch (R, output size), of new slices (R, size) and histories (R, H, S, D)."""
        if isinstance(branch, FeedForward):
            return branch.activation(new[branch.projections[0].name])
        if isinstance(branch, CrossAttention):
            key, value = (context.encoded[f"encoder_{part}.{self.name}"] for part in ("key", "value"))
            # Rows of one sentence are further queries to the same keys.
            query = new["encoder_query"].reshape(
                key.shape[0], -1, branch.num_heads, self.sizes["encoder_query"] // branch.num_heads
            )
            weights = torch.softmax(torch.matmul(query.transpose(1, 2), key) + context.bias, dim=-1)
            return torch.matmul(weights, value).transpose(1, 2).reshape(-1, branch.output_size)
        if _is_plain(branch):
            query = new["query"].reshape(-1, branch.num_heads, 1, self.sizes["query"] // branch.num_heads)
            weights = torch.softmax(torch.matmul(query, kept["key"].transpose(2, 3)), dim=-1)
            return torch.matmul(weights, kept["value"]).reshape(-1, branch.output_size)
        if isinstance(branch, DynamicConv):
            return _convolve(branch, new[branch.folded_name], kept[branch.projections[0].name], context.length)
        projected = {own: part.unsqueeze(1) for own, part in new.items()}
        projected |= {own: merge_heads(history) for own, history in kept.items()}
        cache = _Cache(self.name, context)
        return branch(projected, LayerContext(1, causal=True, cache=cache)).squeeze(1)


def _is_plain(branch: Branch) -> bool:
    return isinstance(branch, CrossAttention) or (isinstance(branch, SelfAttention) and branch.bias is None)


def _convolve(conv: DynamicConv, logits: Tensor, values: Tensor, length: Tensor) -> Tensor:
    """See ``DynamicConv.forward``: logits (R, H * sizes * K), values (R, heads, S, D)."""
    sizes, largest = len(conv.kernel_sizes), max(conv.kernel_sizes)
    taps = torch.softmax(logits.reshape(-1, conv.num_heads, sizes, largest), dim=-1)
    if conv.gate is not None:
        taps = (taps * conv.gate_weights()[:, None]).sum(dim=2, keepdim=True)
    window = values[:, :, -largest:]
    if window.shape[1] != conv.num_heads:
        window = split_heads(merge_heads(window), conv.num_heads)
    result = torch.matmul(taps[..., -length:], window)  # (R, H, sizes or 1, D)
    if result.shape[2] > 1:
        result = result.transpose(1, 2)
    return result.reshape(-1, conv.output_size)


class _Cache(LayerCache):
    """Histories of a branch that asks for them itself, of one head each."""

    def __init__(self, name: str, context: StepContext) -> None:
        super().__init__()
        self._name, self._context = name, context

    def extend(self, name: str, new: Tensor) -> Tensor:
        """See ``LayerCache.extend``."""
        return self._context.extend(f"{self._name}.{name}", new.unsqueeze(1)).squeeze(1)


class _FixedWindow(nn.Module):
    """A convolution of a step that is given as many positions as its kernel has: zeros before the first token.

    Positions before the sentence count as zero anyway, and so the graph does not depend on how many there are.
    """

    def __init__(self, conv: GatedConv) -> None:
        super().__init__()
        self.conv = conv
        self.size = max(conv.kernel_sizes)
        self.projections = conv.projections

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        name = self.projections[0].name
        window = F.pad(projected[name][:, -self.size :], (0, 0, self.size - 1, 0))[:, -self.size :]
        return self.conv({**projected, name: window}, context)


def _fix_windows(branch: Any) -> Any:
    """The branch with fixed windows for convolutions that are called as they are written."""
    if isinstance(branch, GatedConv):
        return branch if isinstance(branch, DynamicConv) else _FixedWindow(branch)
    for name, child in branch.named_children():
        if isinstance(child, GatedConv):
            setattr(branch, name, _FixedWindow(child))
    return branch


def _make_linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
    return linear
