"""LAMA: documents in one vector by a bidirectional GRU and low-rank multi-head attention.

Source: Mehta et al., arXiv:1912.00835. The attention is in ``modules/low_rank_attention.py``; the networks that the
paper compares with are in ``document_presets.py``. What the paper leaves open: 15 heads (best on two of its data sets),
the activation of the classifier (ReLU), whether the learned context or the mean serves the model without a GRU.
"""

from dataclasses import dataclass

from fairseq.models import register_model

from muse_plugin.contracts.flag import flag, with_defaults
from muse_plugin.models.preset import register_preset
from muse_plugin.models.sentence_baselines import SentenceAverageModel, SentenceBiGRUModel
from muse_plugin.models.sentence_config import SentenceModelConfig


@dataclass
@with_defaults(
    word_embed_dim=100,
    encoder_embed_dim=100,
    input_projection="needed",
    embedding_dropout=0.0,
    dropout=0.0,
    pooling="low_rank_attention",
    classifier_hidden_dim=512,
    classifier_activation="relu",
    classifier_dropout=0.4,
    classifier_input_dropout=0.0,
)
class LamaEncoderConfig(SentenceModelConfig):
    """Flags of LAMA without a GRU. Defaults: the paper's setting."""


@dataclass
class LamaConfig(LamaEncoderConfig):
    """Flags of LAMA. Defaults: the paper's setting."""

    encoder_layers: int = flag(1, "number of layers of the GRU")
    encoder_hidden_size: int = flag(50, "width of a state of the GRU in one direction")


@register_model("lama", dataclass=LamaConfig)
class LamaModel(SentenceBiGRUModel):
    """LAMA (arXiv:1912.00835): a bidirectional GRU, and heads that compare its states with a learned context."""

    config_class = LamaConfig
    flags_class = LamaConfig


@register_model("lama_encoder", dataclass=LamaEncoderConfig)
class LamaEncoderModel(SentenceAverageModel):
    """LAMA without a GRU (arXiv:1912.00835, "LE"): heads look at the embedded words themselves."""

    config_class = LamaEncoderConfig
    flags_class = LamaEncoderConfig


# LAMA+ctx: the context is the mean of the document's words.
register_preset("lama_context", LamaModel, {"pooling_context": "mean"}, globals())
