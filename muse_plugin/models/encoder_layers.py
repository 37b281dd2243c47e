"""Layers of sentence models as encoder layers of a translation model: ``--encoder-layer-type``.

Sources: Guo et al. 2020, arXiv:1912.00544 (``multi_scale``) and Im and Cho 2017, arXiv:1712.02047 (``distance``), which
have no translation. What they leave open for it: the distance network's two directions are brought back to the width of
the layer by a linear map with a layer norm, see ``modules/two_directions.py``. Everything around the layers stays.
"""

from typing import Any, Optional

from muse_plugin.contracts.flag import fault_of, naming
from muse_plugin.models.attention_bias_flags import BiasPlan, build_windows, find_idle_bias_flags
from muse_plugin.models.sentence_config import find_undivided_heads, find_without_effect
from muse_plugin.modules.attention_bias import DistancePenalty
from muse_plugin.modules.distance_attention import DistanceAttentionBlock
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer
from muse_plugin.modules.sentence_layer import SentenceLayer
from muse_plugin.modules.two_directions import MergedDirections, TwoDirections

PARALLEL, MULTI_SCALE, DISTANCE = ENCODER_LAYERS = ("parallel", "multi_scale", "distance")
# What the branches of a parallel layer read.
BRANCH_FLAGS = ("branches", "kernel_sizes", "conv_type", "conv_heads", "conv_projection", "ffn_projection")


def find_layer_type(cfg: Any, side: str) -> str:
    """What the layers of a side are, see ``ENCODER_LAYERS``; models of sentences have no such flag."""
    return str(getattr(cfg, f"{side}_layer_type", PARALLEL))


def build_sentence_layer(cfg: Any, bias: Optional[BiasPlan]) -> SentenceLayer:
    """Builds one layer of the encoder, for a type other than "parallel".

    Args:
        cfg: fairseq's nested config with our flags, checked.
        bias: what the attention of "multi_scale" may look at; None for everything.
    """
    own = cfg.encoder
    if own.layer_type == MULTI_SCALE:
        head_dim = own.head_dim or own.embed_dim // own.attention_heads
        windows = build_windows(bias, own.attention_heads)
        return SentenceLayer(
            MultiScaleLayer(
                own.embed_dim, own.attention_heads, head_dim, windows, cfg.branch_dropout, cfg.attention_dropout
            )
        )
    sizes = own.embed_dim, own.attention_heads, own.ffn_embed_dim
    blocks = (
        DistanceAttentionBlock(*sizes, direction, own.distance_alpha, cfg.branch_dropout)
        for direction in ("forward", "backward")
    )
    return SentenceLayer(MergedDirections(TwoDirections(*blocks), own.embed_dim))


def encoder_layer_faults(cfg: Any, config_class: Any) -> list[str]:
    """One sentence for each flag that does not go with ``--encoder-layer-type``; ``config_class`` has the defaults."""
    kind = find_layer_type(cfg, "encoder")
    idle = [] if kind == MULTI_SCALE else ["encoder_head_dim"]
    faults = []
    if kind != PARALLEL:
        idle += [f"encoder_{name}" for name in BRANCH_FLAGS] + ["encoder_normalize_before"]
        if cfg.encoder_attention_heads < 1:
            faults.append(f"--encoder-attention-heads must be at least 1, but got {cfg.encoder_attention_heads}.")
    if kind == DISTANCE:
        faults += find_undivided_heads(cfg) + fault_of(_check_alpha, cfg.encoder_distance_alpha)
        if cfg.encoder_attention_bias.strip() != "none":
            faults.append(
                "--encoder-layer-type distance has masks of its own, but got --encoder-attention-bias "
                f"{cfg.encoder_attention_bias}; drop one of them."
            )
        else:
            idle += [name for name in find_idle_bias_flags(cfg, "encoder") if name != "encoder_distance_alpha"]
    elif kind == MULTI_SCALE:
        if cfg.encoder_head_dim is None:
            faults += find_undivided_heads(cfg)
        elif cfg.encoder_head_dim < 1:
            faults.append(f"--encoder-head-dim must be at least 1, but got {cfg.encoder_head_dim}.")
    return faults + find_without_effect(cfg, config_class, idle, f"with --encoder-layer-type {kind}")


def _check_alpha(alpha: float) -> None:
    with naming("--encoder-distance-alpha"):
        DistancePenalty([alpha])
