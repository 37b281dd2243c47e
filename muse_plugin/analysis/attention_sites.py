"""Where a model attends: every module with heads, in this package's models and in fairseq's own Transformer."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Optional

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from muse_plugin.analysis.layers import iterate_layers
from muse_plugin.modules.attends import (
    ATTENDED,
    BACKWARD,
    CROSS,
    FORWARD,
    SELF,
    Attends,
    AttentionWeights,
    ask_module,
    watch_attention,
)
from muse_plugin.modules.attention import padding_bias, weigh
from muse_plugin.modules.branch import split_heads

# Self-attention of the encoder, of the decoder, attention of the decoder to the encoder, and the two directions of the
# Distance-based Self-Attention Network.
ENCODER, DECODER = "encoder", "decoder"
SIDES = (ENCODER, DECODER, CROSS, FORWARD, BACKWARD)


class Site(NamedTuple):
    """A module that attends.

    Attributes:
        side: one of ``SIDES``.
        layer: number of its layer, from 1 at the bottom.
        heads: number of heads H.
        module: the module.
    """

    side: str
    layer: int
    heads: int
    module: nn.Module


def find_sites(model: nn.Module) -> list[Site]:
    """Finds all attention of a model with an ``encoder`` and perhaps a ``decoder``.

    Args:
        model: of translation or of sentences.

    Returns:
        The sites in the order of ``SIDES``, from the bottom; none if no module says that it attends.

    Raises:
        ValueError: if a module attends to what is unknown.
    """
    found = []
    for stack, number, layer in iterate_layers(model):
        for module in layer.modules():
            attended = _read_attended(module)
            if attended is not None:
                side = stack if attended == SELF else attended
                found.append(Site(side, number, module.num_heads, module))
    return sorted(found, key=lambda site: SIDES.index(site.side))  # stable: layers stay in order


def _read_attended(module: Any) -> Optional[str]:
    """What a module attends to, one of ``ATTENDED``; None if it does not attend, or does not say so."""
    if isinstance(module, Attends):
        if module.attends_to not in ATTENDED:
            raise ValueError(
                f"attends_to must be one of {', '.join(ATTENDED)}, but {type(module).__name__} has "
                f"{module.attends_to!r}; name what its words look at."
            )
        return module.attends_to
    if isinstance(module, MultiheadAttention) and (module.self_attention or module.encoder_decoder_attention):
        return SELF if module.self_attention else CROSS
    return None


def watch_sites(
    sites: Sequence[Site], receive: Callable[[int, AttentionWeights], None]
) -> AbstractContextManager[None]:
    """Computes attention weights while a model runs, and hands them over; see ``watch_attention``.

    Args:
        sites: of ``find_sites``.
        receive: called with the place in ``sites`` and the weights.
    """
    return watch_attention([site.module for site in sites], receive, _weigh)


def _weigh(module: nn.Module, *args: Any, **named: Any) -> AttentionWeights:
    return (_weigh_fairseq if isinstance(module, MultiheadAttention) else ask_module)(module, *args, **named)


def _weigh_fairseq(
    module: Any,
    query: Tensor,
    key: Optional[Tensor] = None,
    value: Optional[Tensor] = None,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    **_: Any,
) -> AttentionWeights:
    """The weights of fairseq's attention outside step-by-step decoding; states are (T, B, C), as there."""
    if module.bias_k is not None or module.add_zero_attn:
        raise NotImplementedError(
            "attention weights of fairseq's MultiheadAttention are shown for real keys only, but this model has "
            "add_bias_kv or add_zero_attn; analyze another model."
        )
    heads = module.num_heads
    queries = split_heads(module.q_proj(query).transpose(0, 1), heads)
    keys = split_heads(module.k_proj(query if module.self_attention else key).transpose(0, 1), heads)
    bias = None if key_padding_mask is None else padding_bias(key_padding_mask.bool(), queries.dtype)
    if attn_mask is not None:
        hidden = attn_mask.to(queries.dtype).clamp(min=torch.finfo(queries.dtype).min / 2)
        if attn_mask.dtype == torch.bool:
            hidden = torch.zeros_like(hidden).masked_fill(attn_mask, torch.finfo(queries.dtype).min / 2)
        bias = hidden if bias is None else bias + hidden
    return AttentionWeights(weigh(queries, keys, bias), None if key_padding_mask is None else key_padding_mask.bool())
