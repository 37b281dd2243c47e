"""Inputs for tests of the dynamic convolution, the definition number by number, and the rule for back ends."""

from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import Tensor

from muse_plugin.ops.dynamic_conv import dynamic_conv

# What an error may be beyond twice the error of the reference in the same dtype.
ATOL = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass
class Case:
    """A call of ``dynamic_conv``; see there. Tensors are laid out in memory as the layers of the model have them."""

    sizes: list[int]
    causal: bool = True
    batch: int = 2
    heads: int = 2
    length: int = 13
    history: int = 0
    channels: int = 5
    dtype: torch.dtype = torch.float32
    gate: bool = False
    normalize: bool = True
    mask: bool = False
    dropout: float = 0.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def padding_left(self) -> list[int]:
        return [size - 1 if self.causal else size // 2 for size in self.sizes]

    def make(self) -> tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        """Draws values, taps, gate and mask."""
        positions = self.history + self.length
        like = {"dtype": self.dtype, "device": self.device}
        # One buffer, of which values are a slice: time first, no axis contiguous but the last.
        buffer = torch.randn(positions, self.batch, 2 * self.heads * self.channels, **like)
        values = buffer[..., self.heads * self.channels :].unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
        taps = torch.randn(self.length, self.batch, self.heads, sum(self.sizes), **like).permute(1, 2, 0, 3)
        gate = torch.rand(len(self.sizes), device=self.device) if self.gate else None
        mask = None
        if self.mask:
            mask = torch.rand(self.batch, positions, device=self.device) < 0.3
            mask[0, -1] = True
            mask[-1] = True  # nothing but padding
        return values, taps, gate, mask

    def run(self, backend: str, values: Tensor, taps: Tensor, gate: Optional[Tensor], mask: Optional[Tensor]) -> Tensor:
        """Calls the operation."""
        return dynamic_conv(
            values,
            taps,
            padding_left=self.padding_left,
            kernel_sizes=self.sizes,
            gate=gate,
            normalize=self.normalize,
            key_padding_mask=mask,
            dropout=self.dropout,
            backend=backend,
        )


def differentiate(case: Case, backend: str, inputs: tuple, dtype: Optional[torch.dtype] = None) -> list[Tensor]:
    """Returns the result and the gradients of values, taps and gate, all in float64; ``dtype`` converts the inputs."""
    *tensors, mask = inputs
    leaves = [None if x is None else x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]
    torch.manual_seed(5)  # of the dropout
    out = case.run(backend, *leaves, mask)
    torch.manual_seed(6)
    weights = torch.randn(out.shape, dtype=torch.float64, device="cpu").to(case.dtype).to(out)
    gradients = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], weights)
    return [x.double() for x in (out, *gradients)]


def check(case: Case, backend: str) -> None:
    """Asserts that result and gradients err at most twice as much as the reference does, compared with float64."""
    inputs = case.make()
    exact = differentiate(case, "reference", inputs, torch.float64)
    reference = differentiate(case, "reference", inputs)
    actual = differentiate(case, backend, inputs)
    for name, e, r, a in zip(("result", "values", "taps", "gate"), exact, reference, actual, strict=False):
        assert torch.isfinite(a).all(), f"{name} of {case} with {backend} is not finite"
        # Of sums, which the reference may be lucky in.
        rounding = 2 * torch.finfo(torch.promote_types(case.dtype, torch.float32)).eps * e.abs().max()
        error, allowed = (a - e).abs().max(), 2 * (r - e).abs().max() + ATOL[case.dtype] + rounding
        assert error <= allowed, f"{name} of {case} with {backend}: error {error:.3g}, allowed {allowed:.3g}"


def slow_dynamic_conv(values, taps, padding_left, sizes=None, gate=None, mask=None):
    """The docstring's formula, one number at a time, for taps that are weights."""
    batch, heads, positions, channels = values.shape
    length = taps.shape[2]
    sizes = [taps.shape[3]] if sizes is None else sizes
    padding_left = [padding_left] if isinstance(padding_left, int) else padding_left
    out = torch.zeros(batch, heads, length, channels, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                for i, size in enumerate(sizes):
                    for j in range(size):
                        source = positions - length + t + j - padding_left[i]
                        if 0 <= source < positions and not (mask is not None and mask[b, source]):
                            weight = taps[b, h, t, sum(sizes[:i]) + j].double() * (1 if gate is None else gate[i])
                            out[b, h, t] += weight * values[b, h, source].double()
    return out
