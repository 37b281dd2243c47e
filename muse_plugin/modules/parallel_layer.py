"""The MUSE layer: parallel branches between one input projection and one output projection.

Source: Zhao et al. 2019 (arXiv:1911.09483), section 2. All branches read the same input; their results are added to
it in one residual sum, followed by one layer norm. A branch is a class in ``attention.py``, ``gated_conv.py`` or
``feed_forward.py``; ``branch.py`` says what a branch is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from muse_plugin.modules.branch import Branch, LayerContext, Projection
from muse_plugin.modules.inference_form import InferenceForm
from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.retained_dropout import RetainsDropout
from muse_plugin.ops.dropout import dropout
from muse_plugin.ops.linear import linear
from muse_plugin.ops.packed_linear import PackedLinear
from muse_plugin.ops.split import split

# Bytes of projections that are computed at a time in the inference form on a CPU.
_CPU_CHUNK = 1 << 25
# Of rows of the input projection in the inference form: GPU kernels read slices of such products without a copy.
_ROW_MULTIPLE = 8


class ParallelLayer(InferenceForm, RetainsDropout):
    """Runs branches side by side: x <- LayerNorm(x + sum of branches(x)), or x + sum of branches(LayerNorm(x)).

    The matrices that branches read their input through are in ONE parameter, ``in_proj_weight`` (rows
    [W^Q; W^K; W^V; W^Q_cross; W_1] for the published decoder layer), those that they write through in ONE,
    ``out_proj_weight`` (columns [W^O | W^out | W^O_cross | W_2]). Where training noise differs between branches, the
    same parameters are multiplied slice by slice.

    Args:
        embed_dim: width C.
        branches: the parallel branches by name; branches of one group are next to each other.
        branch_dropout: probability in [0, 1) of dropping a channel of a group's output, before the sum.
        input_dropout: probability in [0, 1) of dropping a channel of the input, for slices marked noisy only (the
            published model: self-attention and convolution).
        normalize_before: layer norm on the input of the branches instead of on the sum.
        input_init: if given, A of the input projection's first bound sqrt(6 / ((1 + A) C)).
        output_init: if given, A of the output projection's, sqrt(6 / ((1 + A) columns)).

    Raises:
        ValueError: if no branch reads the input projection, or if two ask for slices of one name and different kinds.
    """

    _recomputes = _offloads = False

    def __init__(
        self,
        embed_dim: int,
        branches: Mapping[str, Branch],
        *,
        branch_dropout: float = 0.0,
        input_dropout: float = 0.0,
        normalize_before: bool = False,
        input_init: float | None = None,
        output_init: float | None = None,
    ) -> None:
        super().__init__()
        if not any(branch.projections for branch in branches.values()):
            raise ValueError(
                "a parallel layer needs at least one branch that reads its input projection, but got "
                f"{', '.join(branches) or 'none'}; add e.g. ffn."
            )
        self.embed_dim = embed_dim
        self.branch_dropout = branch_dropout
        self.input_dropout = input_dropout
        self.normalize_before = normalize_before
        self.input_init, self.output_init = input_init, output_init
        self.branches = nn.ModuleDict(dict(branches))
        self.projections = _collect(self._branches())
        self.groups = list(dict.fromkeys(branch.group for branch in self._branches()))

        rows = sum(p.size for p in self.projections)
        self.in_proj_weight = nn.Parameter(torch.empty(rows, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(rows))
        self.group_sizes = [sum(b.output_size for b in self._branches() if b.group == group) for group in self.groups]
        self.out_proj_weight = nn.Parameter(torch.empty(embed_dim, sum(self.group_sizes)))
        self.out_proj_bias = nn.Parameter(torch.zeros(len(self.groups), embed_dim))
        self.layer_norm = nn.LayerNorm(embed_dim)
        self.linear_backend = "auto"  # of PackedLinear, in the inference form
        self._cached = [p.name for p in self.projections if p.cached]
        # Neighbouring slices that are one product, where (input dropout acts, transient slices are alone).
        self._runs = {
            (drops, frees): _group(self.projections, drops, frees) for drops in (False, True) for frees in (False, True)
        }
        self.reset_parameters()

    def prepare_training(self, recompute: bool = False, offload: bool = False) -> None:
        """Sets how training runs from now on. Evaluation and step-by-step decoding stay what they are.

        Args:
            recompute: activation checkpointing: keep the input only, and compute the layer again for the gradients.
            offload: keep that input in the memory of the CPU.
        """
        self._recomputes, self._offloads = recompute, offload

    def reset_parameters(self) -> None:
        """Draws both projections slice by slice, with the bounds of the published program; biases are zero.

        Input slices: uniform(+-1/sqrt(C)), which is PyTorch's default for a linear layer. A bound of sqrt(6/C) for
        W^Q, W^K, W^V, as in the program's first upload, makes training diverge.

        With ``input_init`` and ``output_init`` the bounds are those of the authors' speed model (arXiv:1911.09483,
        Table 3; ``bm_in_a``, ``bm_out_a`` of their command): Kaiming's for a leaky ReLU of slope sqrt(A). There
        the output columns of all branches but cross-attention are one matrix, and biases start in PyTorch's range.
        """
        bound = 1.0 / math.sqrt(self.embed_dim) if self.input_init is None else _bound(self.input_init, self.embed_dim)
        nn.init.uniform_(self.in_proj_weight, -bound, bound)
        nn.init.zeros_(self.in_proj_bias)
        nn.init.zeros_(self.out_proj_bias)
        gains = {branch.group: branch.output_gain for branch in self._branches()}
        apart = {branch.group for branch in self._branches() if not branch.joined_output}
        sizes = dict(zip(self.groups, self.group_sizes, strict=True))
        joined = sum(size for group, size in sizes.items() if group not in apart)
        with torch.no_grad():
            for group, columns in zip(self.groups, split(self.out_proj_weight, self.group_sizes, dim=1), strict=True):
                bound = gains[group] / math.sqrt(sizes[group])
                if self.output_init is not None:
                    bound = _bound(self.output_init, sizes[group] if group in apart else joined)
                columns.uniform_(-bound, bound)

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """Applies the layer.

        Args:
            x: shape (T, B, C); in step-by-step decoding T may be any number of new tokens.
            context: see ``LayerContext``; cross-attention leaves its weights there when asked.

        Returns:
            The new x, shape (T, B, C).
        """
        if context.cache is None and not context.need_weights:
            if self._recomputes and self.training and torch.is_grad_enabled():
                with save_on_cpu() if self._offloads else nullcontext():
                    return checkpoint(self._compute, x, context, use_reentrant=False)
            chunk = x.shape[1] if context.encoder_out is not None else self._count_sentences_at_once(x)
            if chunk < x.shape[1]:
                parts = [slice(start, start + chunk) for start in range(0, x.shape[1], chunk)]
                return torch.cat([self._compute(x[:, own].contiguous(), context.take(own)) for own in parts], dim=1)
        return self._compute(x, context)

    def _compute(self, x: Tensor, context: LayerContext) -> Tensor:
        residual = x
        if self.normalize_before:
            x = self.layer_norm(x)
        projected = self._project_in(x, context.cache)
        outputs = [branch(projected, context).transpose(0, 1) for branch in self._branches()]
        x = residual + self._project_out(outputs)
        return x if self.normalize_before else self.layer_norm(x)

    def _count_sentences_at_once(self, x: Tensor) -> int:
        """In the inference form, a CPU is quicker with parts of a large batch, whose tensors fit into its caches.

        Who watches what is inside by hooks sees the whole batch.
        """
        if self.packed is None or x.device.type != "cpu":
            return x.shape[1]
        size: int = x.shape[0] * sum(self.packed.sizes.values()) * x.element_size()
        count = max(1, _CPU_CHUNK // max(1, size))
        if count < x.shape[1] and any(m._forward_hooks or m._forward_pre_hooks for m in self.modules()):
            return x.shape[1]
        return count

    def _project_in(self, x: Tensor, cache: LayerCache | None) -> dict[str, Tensor]:
        """One product for all branches; several where training separates them. Each slice is (B, T or S, size)."""
        if self.packed is not None:
            return self.packed.project_in(x, cache)
        drops = self.drops and self.input_dropout > 0
        noisy = dropout(x, self.input_dropout, drops)
        # On a GPU, the calls of one more product cost more than the memory that it frees.
        frees = self.training and torch.is_grad_enabled() and x.device.type == "cpu"
        runs = self._runs[drops, frees]
        rows = [sum(p.size for p in run) for run in runs]
        weights, biases = split(self.in_proj_weight, rows), split(self.in_proj_bias, rows)
        projected = {"input": noisy.transpose(0, 1)}
        for run, weight, bias in zip(runs, weights, biases, strict=True):
            product = linear(noisy if run[0].noisy else x, weight, bias)
            slices = split(product, [p.size for p in run], dim=-1)
            projected.update((p.name, part.transpose(0, 1)) for p, part in zip(run, slices, strict=True))
        if cache is not None:
            for name in self._cached:
                projected[name] = cache.extend(name, projected[name])
        return projected

    def _project_out(self, outputs: list[Tensor]) -> Tensor:
        """One product for all branches; one per branch where each group has its own dropout mask."""
        if self.packed is not None:
            return self.packed.out_proj(torch.cat(outputs, dim=-1))
        if not (self.drops and self.branch_dropout > 0):
            return linear(torch.cat(outputs, dim=-1), self.out_proj_weight, self.out_proj_bias.sum(0))
        total = None
        branches = self._branches()
        columns = split(self.out_proj_weight, [branch.output_size for branch in branches], dim=1)
        for group, bias in zip(self.groups, self.out_proj_bias, strict=True):
            own = [i for i, branch in enumerate(branches) if branch.group == group]
            result = dropout(_join([outputs[i] for i in own], [columns[i] for i in own], bias), self.branch_dropout)
            total = result if total is None else total + result
        assert total is not None
        return total

    def parameters_after(self, path: Sequence[str]) -> list[nn.Parameter]:
        """The parameters that the branch ``path`` leads to, ["branches", its name, ...], does not depend on."""
        parts = [branch for name, branch in self.branches.items() if name != path[1]]
        if not self.normalize_before:
            parts.append(self.layer_norm)
        later = [self.out_proj_weight, self.out_proj_bias, *(p for part in parts for p in part.parameters())]
        if not self.branches[path[1]].projections:  # it reads the layer's input itself
            later += [self.in_proj_weight, self.in_proj_bias]
        return later

    def make_generation_fast_(self, **options: Any) -> None:
        """Makes the form for inference, which has no dropout; where dropout stays on, the layer runs as it is written.

        Args:
            **options: see ``RetainsDropout.choose_dropout``.
        """
        parts = [module for module in self.modules() if isinstance(module, RetainsDropout)]
        for part in parts:
            part.choose_dropout(**options)
        if not any(part.retains_dropout for part in parts):
            super().make_generation_fast_()

    def pack(self) -> _PackedProjections:
        """See ``InferenceForm``; also folds what branches can fold into the input projection."""
        return _PackedProjections(self)

    def __prepare_scriptable__(self) -> ParallelLayer:
        """torch.jit.script asks this first; its own message would name a type in the middle of the layer."""
        raise NotImplementedError(
            "torch.jit.script cannot compile a parallel layer: its branches share slices of one projection by name and "
            "keep their history in Python objects, which TorchScript has no types for; run the model from Python, e.g. "
            "loaded by MuseModel.from_pretrained."
        )

    def _branches(self) -> list[Branch]:
        return list(self.branches.values())  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        """Sizes for ``print(model)``."""
        rows = ", ".join(f"{p.name} {p.size}" for p in self.projections)
        columns = ", ".join(f"{g} {s}" for g, s in zip(self.groups, self.group_sizes, strict=True))
        return f"embed_dim={self.embed_dim}, in_proj=[{rows}], out_proj=[{columns}]"


class _PackedProjections:
    """The projections of a layer in the form for inference, as copies: one product in, one product out."""

    def __init__(self, layer: ParallelLayer) -> None:
        sizes = [p.size for p in layer.projections]
        weights = torch.split(layer.in_proj_weight.float(), sizes)
        biases = torch.split(layer.in_proj_bias.float(), sizes)
        names = [p.name for p in layer.projections]
        rows = dict(zip(names, zip(weights, biases, strict=True), strict=True))
        # Cached slices first and side by side, so that a step is one write into the history.
        self.cached = list(layer._cached)
        order = self.cached + [name for name in names if name not in self.cached]
        parts = {name: rows[name] for name in order}
        for branch in layer._branches():
            parts.update(branch.fold(rows))
        spare = -sum(len(bias) for _, bias in parts.values()) % _ROW_MULTIPLE
        parts["spare"] = weights[0].new_zeros(spare, layer.embed_dim), biases[0].new_zeros(spare)
        dtype, backend = layer.in_proj_weight.dtype, layer.linear_backend
        weight, bias = (torch.cat([part[i] for part in parts.values()]).to(dtype) for i in range(2))
        self.in_proj = PackedLinear(weight, bias, backend)
        self.out_proj = PackedLinear(layer.out_proj_weight, layer.out_proj_bias.sum(0), backend)
        self.sizes = {name: part[0].shape[0] for name, part in parts.items()}
        self.cached_size = sum(self.sizes[name] for name in self.cached)

    def project_in(self, x: Tensor, cache: LayerCache | None) -> dict[str, Tensor]:
        """See ``ParallelLayer._project_in``; also has the folded slices."""
        product = self.in_proj(x).transpose(0, 1)  # (B, T, all sizes)
        slices = torch.split(product, list(self.sizes.values()), dim=-1)
        projected = dict(zip(self.sizes, slices, strict=True))
        projected["input"] = x.transpose(0, 1)
        if cache is not None and self.cached:
            history = cache.extend("+".join(self.cached), product[..., : self.cached_size])
            parts = torch.split(history, [self.sizes[name] for name in self.cached], dim=-1)
            projected.update(zip(self.cached, parts, strict=True))
        return projected


def _bound(a: float, inputs: int) -> float:
    return math.sqrt(6.0 / ((1.0 + a) * inputs))


def _join(parts: list[Tensor], weights: list[Tensor], bias: Tensor) -> Tensor:
    """One product per part instead of one of their concatenation: the gradient keeps the parts, not a copy of them."""
    total = linear(parts[0], weights[0], bias)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + linear(part, weight)
    return total


def _group(projections: list[Projection], drops: bool, frees: bool) -> list[list[Projection]]:
    keys = [(p.noisy and drops, p.transient and frees) for p in projections]
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    return [projections[i:j] for i, j in zip(starts, [*starts[1:], len(keys)], strict=True)]


def _collect(branches: list[Branch]) -> list[Projection]:
    """The slices all branches ask for, each name once, noisy ones first."""
    found: dict[str, Projection] = {}
    for branch in branches:
        for projection in branch.projections:
            known = found.setdefault(projection.name, projection)
            if known != projection:
                raise ValueError(f"branches that share a slice must agree on it, but got {known} and {projection}.")
    order = [branch.group for branch in branches]
    if any(order[i] != order[i - 1] and order[i] in order[:i] for i in range(1, len(order))):
        raise ValueError(f"branches of one group must be next to each other, but got the groups {order}.")
    return sorted(found.values(), key=lambda p: not p.noisy)
