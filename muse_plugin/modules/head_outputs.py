"""What each head of an encoder says, before the output projection mixes the heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from muse_plugin.modules.attention import SelfAttention
from muse_plugin.modules.bert_encoder import BertLayer
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer


class HeadSource(NamedTuple):
    """Where the outputs of one layer's heads, side by side, can be seen.

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


def find_head_sources(encoder: nn.Module) -> list[HeadSource]:
    """Finds the self-attention of an encoder, from the bottom.

    Args:
        encoder: of MUSE, the Transformer, the Multi-Scale Transformer or BERT.

    Returns:
        One entry per layer with self-attention; none for an encoder without heads.
    """
    found = []
    for module in encoder.modules():
        if isinstance(module, SelfAttention):
            found.append(HeadSource(module, False, module.num_heads, module.output_size // module.num_heads))
        elif isinstance(module, (MultiScaleLayer, BertLayer)):
            width = module.out_proj.in_features
            found.append(HeadSource(module.out_proj, True, module.num_heads, width // module.num_heads))
    return found


@contextmanager
def record_heads(sources: list[HeadSource]) -> Iterator[dict[int, Tensor]]:
    """Keeps the outputs of heads while the encoder runs; gradients flow through them.

    Args:
        sources: of ``find_head_sources``, those that are wanted.

    Yields:
        Outputs by their place in ``sources``, each of shape (B, T, H * D), head by head; filled as layers are run.
    """
    outputs: dict[int, Tensor] = {}

    def keep(number: int) -> Any:
        def before(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            outputs[number] = args[0]

        def after(module: nn.Module, args: Any, output: Tensor) -> None:
            outputs[number] = output

        return before if sources[number].is_input else after

    handles = [
        source.module.register_forward_pre_hook(keep(number))
        if source.is_input
        else source.module.register_forward_hook(keep(number))
        for number, source in enumerate(sources)
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
