"""Training a parallel layer through torch.compile, without the layer, its parameters or checkpoints knowing of it.

Layers with the same configuration share compiled code; ``ParallelLayer.prepare_training`` says when it runs.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import shutil
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from muse_plugin.modules.branch import LayerContext

# The compiler behind torch.compile; tests take quicker ones.
COMPILER = "inductor"
# Beyond torch's limit of 8 a layer would run uncompiled. It takes batches with and without padding, each for sums of up
# to 4096 terms and of more, where bias, layer norm and each kernel size have sums of their own.
_RECOMPILE_LIMIT = 32


class NoCompilerError(RuntimeError):
    """There is nothing on this machine that makes code for a device."""


def compute_layer(layer: Any, x: Tensor, context: LayerContext) -> Tensor:
    """What is compiled: ``ParallelLayer.compute``, without history."""
    return layer.compute(x, context)


@functools.cache
def compile_for(name: str, device: str, compiler: str) -> Callable[..., Tensor]:
    """Compiles ``compute_layer`` for all layers of one name.

    Args:
        name: layers of other classes have other names: torch limits recompilations per code object.
        device: kind of device, such as "cpu".
        compiler: a back end of torch.compile.

    Raises:
        NoCompilerError: if there is no compiler for this device.
    """
    if compiler == "inductor":
        check_compiler(device)
    own = FunctionType(compute_layer.__code__.replace(), globals(), f"train_{device}")
    # Its own random numbers are slow to make on a CPU; PyTorch's are also those that dropout draws without compiling.
    options: dict[str, Any] | None = {"fallback_random": True} if compiler == "inductor" and device == "cpu" else None
    limit: dict[str, Any] = {}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        limit["recompile_limit"] = _RECOMPILE_LIMIT
    return torch.compile(own, dynamic=True, backend=compiler, options=options, **limit)


def check_compiler(device: str) -> None:
    """Says in one sentence what torch.compile would say in a hundred lines.

    Raises:
        NoCompilerError: if it cannot make code for this device.
    """
    if device == "cpu":
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        if shutil.which(compiler) is None:
            raise NoCompilerError(
                f"torch.compile needs a C++ compiler, but {compiler!r} cannot be found; install one (on Debian: "
                "apt install g++), name yours in the environment variable CXX, or train without it."
            )
    elif device == "cuda" and importlib.util.find_spec("triton") is None:
        raise NoCompilerError(
            "torch.compile needs Triton on a GPU, but it cannot be found; run pip install triton, or train without it."
        )
