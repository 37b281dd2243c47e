"""``muse-plugin benchmark conv``: the dynamic convolution, forward and backward, against fairseq's in Python."""

import argparse
import itertools
import os
from collections.abc import Callable, Iterator

import torch
from fairseq.modules.dynamic_convolution import DynamicConv1dTBC
from torch import Tensor, nn

from muse_plugin.benchmark.measurement import Case
from muse_plugin.ops.dynamic_conv import can_run, dynamic_conv

FAIRSEQ = "fairseq, Python"
OURS = "muse_plugin"
FLOOR = "floor: one copy of inputs and outputs"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yields every length with every kernel."""
    is_interpreted = args.backend == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    if not is_interpreted and not can_run(args.backend, torch.empty(0, device=args.device, dtype=args.dtype)):
        raise ValueError(f"--backend must run on --device {args.device}, but got {args.backend}; use auto.")
    torch.manual_seed(args.seed)
    for length, sizes in itertools.product(args.lengths, args.kernels):
        batch = max(1, args.tokens // length)
        case = {"length": length, "kernel": "+".join(map(str, sizes))}
        yield Case(case, _make_runs(args, length, batch, sizes).items(), length * batch, warmups=3)


class _FixedLogits(nn.Module):
    """Stands for the layer that predicts the kernels, which is no part of the comparison."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits
        self.out_features = -1

    def forward(self, _: Tensor) -> Tensor:
        """Returns the logits."""
        return self.logits


def _make_runs(args: argparse.Namespace, length: int, batch: int, sizes: list[int]) -> dict[str, Callable[[], object]]:
    """Both ways to convolve inputs of one shape and to differentiate them; on a GPU also what a copy of them takes."""
    like = {"device": args.device, "dtype": args.dtype}
    shape, width = (length, batch, args.heads), args.heads * args.channels
    values = torch.randn(length, batch, width, **like, requires_grad=True)
    logits = [torch.randn(length, batch, args.heads * size, **like, requires_grad=True) for size in sizes]
    taps = torch.cat([x.detach().view(*shape, -1) for x in logits], dim=-1).requires_grad_()
    gate = torch.rand(len(sizes), device=args.device, requires_grad=True) if len(sizes) > 1 else None
    grad = torch.randn(length, batch, width, **like)
    convs = []
    for size, own in zip(sizes, logits, strict=True):
        conv = DynamicConv1dTBC(
            width, size, size // 2, args.heads, weight_softmax=True, weight_dropout=args.tap_dropout
        )
        conv.weight_linear = _FixedLogits(own)
        convs.append(conv)
    mixed = [] if gate is None else [gate]

    def run_fairseq() -> None:
        """One convolution per size."""
        if gate is None:
            out = convs[0](values)
        else:
            weights = gate.to(values.dtype)
            out = sum(conv(values) * weight for conv, weight in zip(convs, weights, strict=True))
        torch.autograd.grad(out, [values, *logits, *mixed], grad)

    def run_ours() -> None:
        """One convolution for all sizes."""
        out = dynamic_conv(
            values.view(*shape, -1).permute(1, 2, 0, 3),
            taps.permute(1, 2, 0, 3),
            padding_left=[size // 2 for size in sizes],
            kernel_sizes=sizes,
            gate=gate,
            normalize=True,
            dropout=args.tap_dropout,
            backend=args.backend,
        )
        torch.autograd.grad(out.permute(2, 0, 1, 3).flatten(2), [values, taps, *mixed], grad)

    runs: dict[str, Callable[[], object]] = {FAIRSEQ: run_fairseq, OURS: run_ours}
    if args.device.type != "cpu":
        # As many bytes as reading every input and writing every output once: forward moves values, taps and result;
        # backward the gradient of the result, values, taps, and two gradients.
        source = torch.zeros((5 * values.numel() + 3 * taps.numel()) // 2, **like)
        target = torch.empty_like(source)
        runs[FLOOR] = lambda: torch.neg(source, out=target)  # a plain copy is at other speeds for other sizes
        runs = {name: _capture(run) for name, run in runs.items()}
    return runs


def _capture(run: Callable[[], object]) -> Callable[[], object]:
    """The same work as a CUDA graph, whose time is that of its kernels and not of starting them from Python."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
