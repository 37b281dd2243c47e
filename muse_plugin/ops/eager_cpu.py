"""Where the remedies for slow operations of PyTorch on a CPU apply."""

import torch
from torch import Tensor


def runs_eagerly_on_cpu(x: Tensor) -> bool:
    """Whether operations on ``x`` run on a CPU at once; false within torch.compile and while a graph is traced."""
    is_traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return x.device.type == "cpu" and not is_traced and not torch.compiler.is_compiling()
