"""``muse-plugin benchmark conv``: the dynamic convolution, forward and backward, against fairseq's in Python."""

import argparse
import itertools
from collections.abc import Callable, Iterator

import torch
from fairseq.modules.dynamic_convolution import DynamicConv1dTBC
from torch import Tensor, nn

from muse_plugin.benchmark.measurement import Case
from muse_plugin.ops.dynamic_conv import dynamic_conv

FAIRSEQ = "fairseq, Python"
OURS = "muse_plugin"
FLOOR = "floor: one copy of inputs and outputs"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every length with every kernel."""
    torch.manual_seed(args.seed)
    for length, sizes in itertools.product(args.lengths, args.kernels):
        problem = _Problem(args, length, sizes)
        runs: dict[str, Callable[[], object]] = {FAIRSEQ: problem.run_fairseq, OURS: problem.run_ours}
        if args.device.type != "cpu":
            runs[FLOOR] = problem.make_floor()
        case = {"length": length, "kernel": "+".join(map(str, sizes))}
        yield Case(case, runs.items(), problem.shape[0] * problem.shape[1], warmups=3)


class _FixedLogits(nn.Module):
    """Stands for the layer that predicts the kernels, which is no part of the comparison."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits
        self.out_features = -1

    def forward(self, _: Tensor) -> Tensor:
        """Returns the logits."""
        return self.logits


class _Problem:
    """Inputs of one shape, and both ways to convolve and differentiate them."""

    def __init__(self, args: argparse.Namespace, length: int, sizes: list[int]) -> None:
        self.args, self.sizes = args, sizes
        self.shape = (length, max(1, args.tokens // length), args.heads)
        like = {"device": args.device, "dtype": args.dtype}
        batch, width = self.shape[1], args.heads * args.channels
        self.values = torch.randn(length, batch, width, **like, requires_grad=True)
        self.logits = [torch.randn(length, batch, args.heads * size, **like, requires_grad=True) for size in sizes]
        parts = [x.detach().view(*self.shape, -1) for x in self.logits]
        self.taps = torch.cat(parts, dim=-1).requires_grad_()
        self.gate = torch.rand(len(sizes), device=args.device, requires_grad=True)
        self.grad = torch.randn(length, batch, width, **like)
        self.convs = []
        for size, logits in zip(sizes, self.logits, strict=True):
            conv = DynamicConv1dTBC(
                width, size, size // 2, args.heads, weight_softmax=True, weight_dropout=args.tap_dropout
            )
            conv.weight_linear = _FixedLogits(logits)
            self.convs.append(conv)

    def run_fairseq(self) -> None:
        """One convolution per size."""
        leaves = [self.values, *self.logits]
        if len(self.convs) == 1:
            out = self.convs[0](self.values)
        else:
            gate = self.gate.to(self.values.dtype)
            out = sum(conv(self.values) * weight for conv, weight in zip(self.convs, gate, strict=True))
            leaves.append(self.gate)
        torch.autograd.grad(out, leaves, self.grad)

    def run_ours(self) -> None:
        """One convolution for all sizes."""
        gate = self.gate if len(self.sizes) > 1 else None
        out = dynamic_conv(
            self.values.view(*self.shape, -1).permute(1, 2, 0, 3),
            self.taps.permute(1, 2, 0, 3),
            padding_left=[size // 2 for size in self.sizes],
            kernel_sizes=self.sizes,
            gate=gate,
            normalize=True,
            dropout=self.args.tap_dropout,
            backend=self.args.backend,
        )
        leaves = [self.values, self.taps] if gate is None else [self.values, self.taps, gate]
        torch.autograd.grad(out.permute(2, 0, 1, 3).flatten(2), leaves, self.grad)

    def make_floor(self) -> Callable[[], object]:
        """A copy that moves as many bytes as reading every input and writing every output once.

        Forward moves values, taps and result; backward the gradient of the result, values, taps, and two gradients.
        """
        count = 5 * self.values.numel() + 3 * self.taps.numel()
        source = torch.zeros(count // 2, device=self.values.device, dtype=self.values.dtype)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
