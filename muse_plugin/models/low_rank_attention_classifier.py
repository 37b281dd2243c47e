"""LAMA: documents in one vector by a bidirectional GRU and low-rank multi-head attention.

Source: Mehta et al., arXiv:1912.00835. The attention is in ``modules/low_rank_attention.py``; the networks that the
paper compares with are in ``document_presets.py``. What the paper leaves open: 15 heads (best on two of its data sets),
the activation of the classifier (ReLU), whether the learned context or the mean serves the model without a GRU.
"""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.models import register_model

from muse_plugin.models.flag import flag as _flag
from muse_plugin.models.preset import register_preset
from muse_plugin.models.sentence_baselines import SentenceBiGRUModel, Unchanged
from muse_plugin.models.sentence_config import (
    ClassifierActivation,
    InputProjection,
    Pooling,
    SentenceModelConfig,
    classifier_activation_flag,
    classifier_dropout_flag,
    classifier_hidden_flag,
    classifier_input_dropout_flag,
    dropout_flag,
    embedding_dropout_flag,
    input_projection_flag,
    pooling_flag,
)
from muse_plugin.models.sentence_model import SentenceModel


@dataclass
class LamaEncoderConfig(SentenceModelConfig):
    """Flags of LAMA without a GRU. Defaults: the paper's setting."""

    word_embed_dim: int = _flag(100, "width of a word's vector")
    encoder_embed_dim: int = _flag(100, "width of what the encoder reads")
    input_projection: InputProjection = input_projection_flag("needed")  # type: ignore[valid-type]
    embedding_dropout: float = embedding_dropout_flag(0.0)
    dropout: float = dropout_flag(0.0)
    pooling: Pooling = pooling_flag("low_rank_attention")  # type: ignore[valid-type]
    classifier_hidden_dim: int = classifier_hidden_flag(512)
    classifier_activation: ClassifierActivation = classifier_activation_flag("relu")  # type: ignore[valid-type]
    classifier_dropout: float = classifier_dropout_flag(0.4)
    classifier_input_dropout: float = classifier_input_dropout_flag(0.0)


@dataclass
class LamaConfig(LamaEncoderConfig):
    """Flags of LAMA. Defaults: the paper's setting."""

    encoder_layers: int = _flag(1, "number of layers of the GRU")
    encoder_hidden_size: int = _flag(50, "width of a state of the GRU in one direction")


@register_model("lama", dataclass=LamaConfig)
class LamaModel(SentenceBiGRUModel):
    """LAMA (arXiv:1912.00835): a bidirectional GRU, and heads that compare its states with a learned context."""

    config_class = LamaConfig
    flags_class = LamaConfig


@register_model("lama_encoder", dataclass=LamaEncoderConfig)
class LamaEncoderModel(SentenceModel):
    """LAMA without a GRU (arXiv:1912.00835, "LE"): heads look at the embedded words themselves."""

    config_class = LamaEncoderConfig
    flags_class = LamaEncoderConfig

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> Unchanged:
        """See ``SentenceModel.build_encoder``."""
        return Unchanged(cfg.encoder_embed_dim)


# LAMA+ctx: the context is the mean of the document's words.
register_preset("lama_context", LamaModel, {"pooling_context": "mean"}, globals())
