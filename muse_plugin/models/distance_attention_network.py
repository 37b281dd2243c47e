"""Distance-based Self-Attention Network: sentence vectors from attention to earlier and to later words.

Source: Im and Cho 2017, "Distance-based Self-Attention Network for Natural Language Inference", arXiv:1712.02047. The
mechanisms are in ``modules/distance_attention.py`` and ``modules/source_to_token.py``. What the paper leaves open:
layer norms are separate for each projection; those of queries, keys and values are as wide as a head.
"""

from argparse import Namespace
from dataclasses import dataclass

import torch

from muse_plugin.contracts.flag import flag, size, with_defaults
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_config import SentenceModelConfig, find_undivided_heads
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.distance_attention import DistanceAttentionBlock
from muse_plugin.modules.two_directions import TwoDirections

_HIGHEST_ALPHA = torch.finfo(torch.float32).max


@dataclass
@with_defaults(
    input_projection="needed",
    embedding_dropout=0.0,
    pooling="source_to_token_max",
    projection_norms="all",
    classifier_hidden_dim=300,
    classifier_activation="relu",
    classifier_dropout=0.0,
)
class DistanceAttentionNetworkConfig(SentenceModelConfig):
    """Flags of the Distance-based Self-Attention Network. Defaults: the paper's setting (SNLI, MultiNLI)."""

    encoder_attention_heads: int = size(5, "number of attention heads in either direction")
    encoder_ffn_embed_dim: int = size(1200, "hidden width of the feed-forward network in either direction")
    distance_alpha: float = flag(
        1.5, "what a logit loses per word of distance (Eq. 7), in all heads and not trained; 0 for no distance mask"
    )
    no_block_norms: bool = flag(
        False, "leave out the layer norms on the sums in either direction, too; see --projection-norms for the others"
    )


@register("distance_attention_network", DistanceAttentionNetworkConfig)
class DistanceAttentionNetworkModel(SentenceModel):
    """Distance-based Self-Attention Network (arXiv:1712.02047) for sentences, pairs and tags."""

    encoder_flags = ("projection_norms",)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        faults = super().find_faults(cfg) + find_undivided_heads(cfg)
        if not 0 <= cfg.distance_alpha <= _HIGHEST_ALPHA:
            faults.append(
                f"--distance-alpha must be a finite number of at least 0, but got {cfg.distance_alpha}; 0 switches the "
                "distance mask off."
            )
        return faults

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> TwoDirections:
        """See ``SentenceModel.build_encoder``."""
        sizes = cfg.encoder_embed_dim, cfg.encoder_attention_heads, cfg.encoder_ffn_embed_dim
        rest = cfg.distance_alpha, cfg.dropout, str(cfg.projection_norms) == "all", not cfg.no_block_norms
        return TwoDirections(*(DistanceAttentionBlock(*sizes, way, *rest) for way in ("forward", "backward")))
