"""``muse-plugin benchmark attention``: multi-head self-attention, forward and backward, against fairseq's module."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Optional

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from muse_plugin.benchmark import window_speed
from muse_plugin.benchmark.measurement import Case
from muse_plugin.modules.attention import attend, padding_bias
from muse_plugin.modules.branch import merge_heads, split_heads

LENGTHS = (10, 25, 50, 100, 200, 400, 1000)
FAIRSEQ = "fairseq MultiheadAttention"
EXPLICIT = "explicit softmax"
OURS = "muse_plugin"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every length, with padding and causally."""
    if args.windows:
        yield from window_speed.cases(args)
        return
    torch.manual_seed(args.seed)
    for length in args.lengths or LENGTHS:
        for causal in (False, True):
            batch = max(1, args.tokens // length)
            case = {"length": length, "mask": "causal" if causal else "padding"}
            yield Case(case, _make_runs(args, length, batch, causal).items(), length * batch, warmups=3)


def _make_runs(args: argparse.Namespace, length: int, batch: int, causal: bool) -> dict[str, Callable[[], object]]:
    """Three ways to attend to inputs of one shape and to differentiate them."""
    like = {"device": args.device, "dtype": args.dtype}
    width = args.heads * args.channels
    x = torch.randn(length, batch, width, **like, requires_grad=True)
    grad = torch.randn(length, batch, width, **like)
    module = MultiheadAttention(width, args.heads, self_attention=True).to(**like)
    projections = [module.q_proj, module.k_proj, module.v_proj]
    weight = torch.cat([p.weight for p in projections]).detach().requires_grad_()
    bias = torch.cat([p.bias for p in projections]).detach().requires_grad_()
    padding: Optional[Tensor] = None
    if not causal and batch > 1:
        padding = torch.zeros(batch, length, dtype=torch.bool, device=args.device)
        padding[1:, length - length // 4 :] = True
    future = torch.triu(torch.full((length, length), -torch.inf, **like), 1) if causal else None

    def run_fairseq() -> None:
        """fairseq's module."""
        out, _ = module(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
        torch.autograd.grad(out, [x, *module.parameters()], grad)

    def run_ours(need_weights: bool) -> None:
        """One product for all projections, and attention as the layer computes it."""
        parts: list[Tensor] = list(F.linear(x, weight, bias).transpose(0, 1).chunk(3, dim=-1))
        mask = None if padding is None else padding_bias(padding, x.dtype)
        query, key, value = (split_heads(part, args.heads) for part in parts)
        states, _ = attend(query, key, value, bias=mask, causal=causal, need_weights=need_weights)
        out_proj = module.out_proj
        out = F.linear(merge_heads(states).transpose(0, 1), out_proj.weight, out_proj.bias)
        torch.autograd.grad(out, [x, weight, bias, *out_proj.parameters()], grad)

    return {FAIRSEQ: run_fairseq, EXPLICIT: partial(run_ours, True), OURS: partial(run_ours, False)}
