"""Says what a module that attends tells about itself, and records it while a model runs: weights, outputs of heads.

A fused kernel never makes the weights. Here they are computed once more, next to it, from the same queries and keys.
A module is found by its methods alone: a new attention is one file, and figures, numbers and head-wise match know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from muse_plugin.ops.window_attention import Windows, window_attention

# What a word may look at: its own sentence (in a decoder, as far as it is written), the encoder's, or one side of it.
SELF, CROSS, FORWARD, BACKWARD = ATTENDED = ("self", "cross", "forward", "backward")


class AttentionWeights(NamedTuple):
    """What the heads of one module look at in a batch.

    Attributes:
        weights: shape (B, H, T, S), float32 or float64; rows (queries) with a sum of 1, or of 0 where a word sees none.
        key_padding_mask: bool, shape (B, S), true at padding; None if the module was told of none.
    """

    weights: Tensor
    key_padding_mask: Tensor | None


class HeadSource(NamedTuple):
    """Where the outputs of one module's heads, side by side, can be seen.

    Attributes:
        module: the heads are what this module returns, or what it is given.
        is_input: the latter.
        num_heads: number of heads H.
        head_dim: width D of each.
    """

    module: nn.Module
    is_input: bool
    num_heads: int
    head_dim: int


@runtime_checkable
class Attends(Protocol):
    """A module that attends; it need not inherit from this class.

    Attributes:
        num_heads: number of heads H.
        attends_to: one of ``ATTENDED``: "self", "cross", "forward" (earlier words) or "backward" (later words).
    """

    num_heads: int
    attends_to: str

    def weigh_attention(self, *args: Any, **named: Any) -> AttentionWeights:
        """The weights for arguments of ``forward``; the module is not run, and nothing in them is changed."""
        ...

    def find_heads(self) -> HeadSource:
        """Where the outputs of its heads can be seen, before an output projection mixes them."""
        ...


@runtime_checkable
class MasksDistance(Attends, Protocol):
    """A module that attends, whose logits lose something per word of distance; all heads the same."""

    def weigh_without_distance(self, *args: Any, **named: Any) -> AttentionWeights:
        """What ``weigh_attention`` would give if distance cost nothing; the parameters are the same."""
        ...

    def describe_masks(self, lengths: Tensor) -> Windows:
        """Which keys a query may see, and what distance costs, for sentences of these lengths, shape (B,)."""
        ...


def find_attention(root: nn.Module) -> list[nn.Module]:
    """The modules that attend to their own sentence, from the bottom; in the order of ``find_head_sources``."""
    return [module for module in root.modules() if isinstance(module, Attends) and module.attends_to != CROSS]


def find_head_sources(encoder: nn.Module) -> list[HeadSource]:
    """Where the heads of an encoder's self-attention can be seen, from the bottom; none for one without heads."""
    return [module.find_heads() for module in find_attention(encoder)]  # type: ignore[operator]


def ask_module(module: Any, *args: Any, **named: Any) -> AttentionWeights:
    """The weights that a module gives itself; see ``Attends``."""
    return module.weigh_attention(*args, **named)


@contextmanager
def watch_attention(
    modules: Sequence[nn.Module],
    receive: Callable[[int, AttentionWeights], None],
    weigh: Callable[..., AttentionWeights] = ask_module,
) -> Iterator[None]:
    """Computes attention weights while a model runs, and hands them over; in evaluation mode, without gradients.

    Args:
        modules: those that are wanted.
        receive: called with the place in ``modules`` and the weights, whenever one of them runs.
        weigh: gives the weights of a module, from it and what it is called with.
    """

    def show(number: int, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        with torch.no_grad():
            receive(number, weigh(module, *args, **named))

    with ExitStack() as stack:
        for number, module in enumerate(modules):
            stack.callback(module.register_forward_pre_hook(partial(show, number), with_kwargs=True).remove)
        yield


@contextmanager
def record_attention(modules: Sequence[nn.Module]) -> Iterator[dict[int, Tensor]]:
    """Keeps the attention weights of what runs last; see ``watch_attention``.

    Args:
        modules: of ``find_attention``, those that are wanted.

    Yields:
        Weights by their place in ``modules``, see ``AttentionWeights``; filled as layers are run.
    """
    weights: dict[int, Tensor] = {}
    with watch_attention(modules, lambda number, found: weights.__setitem__(number, found.weights)):
        yield weights


@contextmanager
def record_heads(sources: Sequence[HeadSource]) -> Iterator[dict[int, Tensor]]:
    """Keeps the outputs of heads while the encoder runs; gradients flow through them.

    Args:
        sources: of ``find_head_sources``, those that are wanted.

    Yields:
        Outputs by their place in ``sources``, each of shape (B, T, H * D), head by head; filled as layers are run.
    """
    outputs: dict[int, Tensor] = {}

    def keep(number: int, module: nn.Module, args: tuple[Tensor, ...], output: Tensor | None = None) -> None:
        outputs[number] = args[0] if output is None else output

    with ExitStack() as stack:
        for number, (module, is_input, _, _) in enumerate(sources):
            register = module.register_forward_pre_hook if is_input else module.register_forward_hook
            stack.callback(register(partial(keep, number)).remove)
        yield outputs


def weigh_windows(
    query: Tensor, key: Tensor, value: Tensor, windows: Windows, key_padding_mask: Tensor | None
) -> AttentionWeights:
    """The weights of ``window_attention``, whose arguments these are: what it makes of values that are unit vectors."""
    units = torch.eye(value.shape[2], dtype=value.dtype, device=value.device).expand(*value.shape[:3], -1)
    weights = window_attention(query, key, units, windows, key_padding_mask, backend="reference")
    return AttentionWeights(weights.to(torch.promote_types(weights.dtype, torch.float32)), key_padding_mask)
