"""``muse-plugin benchmark attention``: multi-head self-attention, forward and backward, against fairseq's module."""

import argparse
from collections.abc import Iterator
from functools import partial

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
            problem = _Problem(args, length, causal)
            runs = {
                FAIRSEQ: problem.run_fairseq,
                EXPLICIT: partial(problem.run_ours, need_weights=True),
                OURS: partial(problem.run_ours, need_weights=False),
            }
            case = {"length": length, "mask": "causal" if causal else "padding"}
            yield Case(case, runs.items(), length * problem.batch, warmups=3)


class _Problem:
    """Inputs of one shape, and three ways to attend."""

    def __init__(self, args: argparse.Namespace, length: int, causal: bool) -> None:
        like = {"device": args.device, "dtype": args.dtype}
        width, self.batch, self.heads = args.heads * args.channels, max(1, args.tokens // length), args.heads
        self.causal = causal
        self.x = torch.randn(length, self.batch, width, **like, requires_grad=True)
        self.grad = torch.randn(length, self.batch, width, **like)
        self.module = MultiheadAttention(width, args.heads, self_attention=True).to(**like)
        names = ("q_proj", "k_proj", "v_proj")
        projections = [getattr(self.module, name) for name in names]
        self.weight = torch.cat([p.weight for p in projections]).detach().requires_grad_()
        self.bias = torch.cat([p.bias for p in projections]).detach().requires_grad_()
        self.padding = None
        if not causal and self.batch > 1:
            self.padding = torch.zeros(self.batch, length, dtype=torch.bool, device=args.device)
            self.padding[1:, length - length // 4 :] = True
        self.future = torch.triu(torch.full((length, length), -torch.inf, **like), 1) if causal else None

    def run_fairseq(self) -> None:
        """fairseq's module."""
        out, _ = self.module(
            self.x, self.x, self.x, key_padding_mask=self.padding, attn_mask=self.future, need_weights=False
        )
        torch.autograd.grad(out, [self.x, *self.module.parameters()], self.grad)

    def run_ours(self, need_weights: bool) -> None:
        """One product for all projections, and attention as the layer computes it."""
        out_proj = self.module.out_proj
        parts: list[Tensor] = list(F.linear(self.x, self.weight, self.bias).transpose(0, 1).chunk(3, dim=-1))
        bias = None if self.padding is None else padding_bias(self.padding, self.x.dtype)
        query, key, value = (split_heads(part, self.heads) for part in parts)
        states, _ = attend(query, key, value, bias=bias, causal=self.causal, need_weights=need_weights)
        out = F.linear(merge_heads(states).transpose(0, 1), out_proj.weight, out_proj.bias)
        torch.autograd.grad(out, [self.x, self.weight, self.bias, *out_proj.parameters()], self.grad)
