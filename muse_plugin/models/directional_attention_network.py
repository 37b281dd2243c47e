"""DiSAN, Directional Self-Attention Network: the network that ``distance_attention_network.py`` is compared with.

Source: Shen et al. 2018, arXiv:1709.04696; sizes are those of its SNLI setting. The mechanisms are in
``modules/directional_attention.py`` and ``modules/source_to_token.py``. Differs from the paper: no dropout within the
pooling, and no average of the weights over updates.
"""

from argparse import Namespace
from dataclasses import dataclass

from muse_plugin.contracts.flag import with_defaults
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_config import SentenceModelConfig
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.directional_attention import DirectionalAttention
from muse_plugin.modules.two_directions import TwoDirections


@dataclass
@with_defaults(
    input_projection="needed",
    embedding_dropout=0.25,
    dropout=0.25,
    pooling="source_to_token",
    pair_features="signed_product",
    classifier_hidden_dim=300,
    classifier_activation="elu",
    classifier_dropout=0.25,
)
class DirectionalAttentionNetworkConfig(SentenceModelConfig):
    """Flags of DiSAN. Defaults: the paper's setting for SNLI."""


@register("directional_attention_network", DirectionalAttentionNetworkConfig)
class DirectionalAttentionNetworkModel(SentenceModel):
    """DiSAN (arXiv:1709.04696) for sentences, pairs and tags."""

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> TwoDirections:
        """See ``SentenceModel.build_encoder``."""
        width = cfg.encoder_embed_dim
        return TwoDirections(*(DirectionalAttention(width, width, way, cfg.dropout) for way in ("forward", "backward")))
