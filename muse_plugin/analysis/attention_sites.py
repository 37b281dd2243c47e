"""Where a model attends: every module with heads, in this package's models and in fairseq's own Transformer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Optional

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from muse_plugin.analysis.layers import iterate_layers
from muse_plugin.modules.attention import attend, padding_bias
from muse_plugin.modules.attention_weights import Seen, find_attention, find_cross_attention, watch_attention
from muse_plugin.modules.branch import split_heads
from muse_plugin.modules.distance_attention import MaskedAttention

# Self-attention of the encoder, of the decoder, attention of the decoder to the encoder, and the two directions of the
# Distance-based Self-Attention Network.
ENCODER, DECODER, CROSS, FORWARD, BACKWARD = SIDES = ("encoder", "decoder", "cross", "forward", "backward")


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
        The sites in the order of ``SIDES``, from the bottom; none if the model has no heads.
    """
    found = []
    for side, number, layer in iterate_layers(model):
        found += _find_in_layer(layer, side, number)
    return sorted(found, key=lambda site: SIDES.index(site.side))  # stable: layers stay in order


def _find_in_layer(layer: nn.Module, side: str, number: int) -> list[Site]:
    sites = []
    for module in find_attention(layer):
        own = module.bias.biases[0].directions[0] if isinstance(module, MaskedAttention) else side  # type: ignore
        sites.append(Site(own, number, module.num_heads, module))  # type: ignore[arg-type]
    sites += [Site(CROSS, number, module.num_heads, module) for module in find_cross_attention(layer)]  # type: ignore
    for module in layer.modules():
        if isinstance(module, MultiheadAttention) and (module.self_attention or module.encoder_decoder_attention):
            sites.append(Site(side if module.self_attention else CROSS, number, module.num_heads, module))
    return sites


@contextmanager
def watch_sites(sites: Sequence[Site], receive: Callable[[int, Seen], None]) -> Iterator[None]:
    """Computes attention weights while a model runs, and hands them over; see ``watch_attention``.

    Args:
        sites: of ``find_sites``.
        receive: called with the place in ``sites`` and the weights.

    Yields:
        None.
    """
    own = [number for number, site in enumerate(sites) if not isinstance(site.module, MultiheadAttention)]
    with ExitStack() as stack:
        stack.enter_context(
            watch_attention([sites[number].module for number in own], lambda place, seen: receive(own[place], seen))
        )
        for number, site in enumerate(sites):
            if isinstance(site.module, MultiheadAttention):
                handle = site.module.register_forward_pre_hook(_make_hook(number, receive), with_kwargs=True)
                stack.callback(handle.remove)
        yield


def _make_hook(number: int, receive: Callable[[int, Seen], None]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        with torch.no_grad():
            receive(number, _weigh_fairseq(module, *args, **named))

    return hook


def _weigh_fairseq(
    module: Any,
    query: Tensor,
    key: Optional[Tensor] = None,
    value: Optional[Tensor] = None,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    **_: Any,
) -> Seen:
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
    weights = attend(queries, keys, keys, bias=bias, need_weights=True)[1]
    assert weights is not None
    return Seen(weights, None if key_padding_mask is None else key_padding_mask.bool())
