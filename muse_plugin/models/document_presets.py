"""The networks that LAMA is compared with, ``--arch NAME_documents``, with its word vectors and classifier.

Source: Mehta et al., arXiv:1912.00835: vectors of 100, a GRU of 50 in either direction, filters of 3, 4 and 5 words, a
Transformer of one layer with 8 heads and width 512, a hidden layer of 512 with dropout 0.4. What it leaves open: hops
and hidden width of structured self-attention (those of its own paper), the Transformer's feed-forward width (2,048) and
dropout (0.1), how its states become one vector (their mean).
"""

from collections.abc import Mapping
from typing import Any

from muse_plugin.models.low_rank_attention_classifier import LamaEncoderConfig
from muse_plugin.models.preset import register_preset
from muse_plugin.models.sentence_baselines import (
    SentenceAverageModel,
    SentenceBiGRUModel,
    SentenceCNNModel,
    SentenceStructuredAttentionModel,
)
from muse_plugin.models.sentence_transformer import SentenceTransformerModel

_OF_LAMA = (
    "word_embed_dim",
    "encoder_embed_dim",
    "input_projection",
    "embedding_dropout",
    "dropout",
    "classifier_hidden_dim",
    "classifier_activation",
    "classifier_dropout",
    "classifier_input_dropout",
)
_SHARED = {name: getattr(LamaEncoderConfig, name) for name in _OF_LAMA}
_GRU = {**_SHARED, "encoder_hidden_size": 50}
_TRANSFORMER = {
    **_SHARED,
    "encoder_embed_dim": 512,
    "encoder_layers": 1,
    "encoder_attention_heads": 8,
    "encoder_ffn_embed_dim": 2048,
    "dropout": 0.1,
    "pooling": "mean",
}

DOCUMENT_PRESETS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "sentence_structured_attention_documents": (SentenceStructuredAttentionModel, _GRU),
    "sentence_bigru_documents": (SentenceBiGRUModel, _GRU),
    "sentence_cnn_documents": (SentenceCNNModel, _SHARED),
    "sentence_transformer_documents": (SentenceTransformerModel, _TRANSFORMER),
    "sentence_average_documents": (SentenceAverageModel, _SHARED),
}

for _name, (_base, _settings) in DOCUMENT_PRESETS.items():
    register_preset(_name, _base, _settings, globals())
