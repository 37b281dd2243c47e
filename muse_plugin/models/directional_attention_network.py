"""DiSAN, Directional Self-Attention Network: the network that ``distance_attention_network.py`` is compared with.

Source: Shen et al. 2018, arXiv:1709.04696; sizes are those of its SNLI setting. The mechanisms are in
``modules/directional_attention.py`` and ``modules/source_to_token.py``. Differs from the paper: no dropout within the
pooling, and no average of the weights over updates.
"""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.models import register_model

from muse_plugin.models.distance_attention_network import TwoDirections
from muse_plugin.models.sentence_config import (
    ClassifierActivation,
    InputProjection,
    PairFeatures,
    Pooling,
    SentenceModelConfig,
    classifier_activation_flag,
    classifier_dropout_flag,
    classifier_hidden_flag,
    dropout_flag,
    embedding_dropout_flag,
    input_projection_flag,
    pair_features_flag,
    pooling_flag,
)
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.directional_attention import DirectionalAttention


@dataclass
class DirectionalAttentionNetworkConfig(SentenceModelConfig):
    """Flags of DiSAN. Defaults: the paper's setting for SNLI."""

    input_projection: InputProjection = input_projection_flag("needed")  # type: ignore[valid-type]
    embedding_dropout: float = embedding_dropout_flag(0.25)
    dropout: float = dropout_flag(0.25)
    pooling: Pooling = pooling_flag("source_to_token")  # type: ignore[valid-type]
    pair_features: PairFeatures = pair_features_flag("signed_product")  # type: ignore[valid-type]
    classifier_hidden_dim: int = classifier_hidden_flag(300)
    classifier_activation: ClassifierActivation = classifier_activation_flag("elu")  # type: ignore[valid-type]
    classifier_dropout: float = classifier_dropout_flag(0.25)


@register_model("directional_attention_network", dataclass=DirectionalAttentionNetworkConfig)
class DirectionalAttentionNetworkModel(SentenceModel):
    """DiSAN (arXiv:1709.04696) for sentences, pairs and tags."""

    config_class = DirectionalAttentionNetworkConfig
    flags_class = DirectionalAttentionNetworkConfig

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> TwoDirections:
        """See ``SentenceModel.build_encoder``."""
        width = cfg.encoder_embed_dim
        return TwoDirections(
            DirectionalAttention(width, width, "forward", dropout=cfg.dropout),
            DirectionalAttention(width, width, "backward", dropout=cfg.dropout),
        )
