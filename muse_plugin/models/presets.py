"""Models that differ from another in the defaults of flags alone, and named sizes: ``--arch NAME``.

Each entry holds only what differs. It fills flags that the user left unset, on the command line as in hydra
(``+model._name=NAME``). Sources: arXiv:1911.09483 (sizes, dropout) and the authors' published commands and logs
(attention and input dropout); arXiv:1912.00544, Tables 1 and 6 and section 5 (widths, heads, scales, alpha), whose
dropouts were not published: those here are what the same authors used for Star-Transformer (arXiv:1902.09113) in public
code; arXiv:1912.00835 (documents).
"""

from collections.abc import Mapping
from typing import Any

# Their models are registered first.
from muse_plugin.models import head_wise_match_trained, muse, sentence_baselines  # noqa: F401
from muse_plugin.models.registration import register_preset


def _both(**sizes: Any) -> dict[str, Any]:
    """The same sizes for encoder and decoder."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}


_BASE = _both(embed_dim=384, ffn_embed_dim=768, layers=12, attention_heads=4)
_LARGE = _both(embed_dim=768, ffn_embed_dim=3072, layers=12, attention_heads=16)
_TINY = _both(embed_dim=128, ffn_embed_dim=256, layers=4, attention_heads=4)
_SIX_LAYERS = _both(embed_dim=512, ffn_embed_dim=1024, layers=6, attention_heads=4)
_IWSLT_DE_EN = {**_BASE, "dropout": 0.4}
_IWSLT_EN_VI = {**_BASE, "dropout": 0.3}
_WMT = {**_LARGE, "attention_dropout": 0.1, "input_dropout": 0.1, "share_all_embeddings": True}
_WMT_EN_DE = {**_WMT, "dropout": 0.3}
_WMT_EN_FR = {**_WMT, "dropout": 0.1}

# Limited self-attention in the encoder. For the larger ones scales, alpha and width of a head are as published
# (arXiv:1912.00544: 10 heads of 30 channels; arXiv:1712.02047); the convolution keeps its four kernels per position.
_WINDOWS = {"encoder_attention_bias": "multi-scale", "encoder_attention_heads": 12, "encoder_conv_heads": 4}
_LARGE_WINDOWS = {"encoder_attention_bias": "multi-scale"}  # 16 heads
_DISTANCE = {"encoder_attention_bias": "distance,bidirectional-split"}
# Four heads, and sentences of a dozen words: N/16 and N/8 would be single words.
_TINY_WINDOWS = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3,N/4,N/2,all"}

# The layers of the two papers themselves as encoders, in front of the Transformer's decoder. Neither paper translates;
# sizes are those with as many weights in the encoder as the plain Transformer of the same ending has.
_NO_POSITIONS = {"encoder_positions": "none"}  # in both papers, masks tell near from far
_MULTI_SCALE_LAYERS = {"encoder_layer_type": "multi_scale", "encoder_attention_bias": "multi-scale", **_NO_POSITIONS}
_DISTANCE_LAYERS = {"encoder_layer_type": "distance", **_NO_POSITIONS}


def _multi_scale_encoder(size: Mapping[str, Any], heads: int, head_dim: int, **settings: Any) -> dict[str, Any]:
    heads_of_encoder = {"encoder_attention_heads": heads, "encoder_head_dim": head_dim}
    return {**size, **_MULTI_SCALE_LAYERS, **heads_of_encoder, **settings}


def _distance_encoder(size: Mapping[str, Any], layers: int, ffn: int) -> dict[str, Any]:
    return {**size, **_DISTANCE_LAYERS, "encoder_layers": layers, "encoder_ffn_embed_dim": ffn}


# LAMA (arXiv:1912.00835). What the paper leaves open: 15 heads (best on two of its data sets), the activation of the
# classifier (ReLU), whether the learned context or the mean serves the model without a GRU.
_DOCUMENTS = {
    "word_embed_dim": 100,
    "encoder_embed_dim": 100,
    "input_projection": "needed",
    "embedding_dropout": 0.0,
    "dropout": 0.0,
    "classifier_hidden_dim": 512,
    "classifier_activation": "relu",
    "classifier_dropout": 0.4,
    "classifier_input_dropout": 0.0,
}
_LAMA = {**_DOCUMENTS, "pooling": "low_rank_attention"}

# By name: the model that they differ from, and in what.
DERIVED: dict[str, tuple[str, Mapping[str, Any]]] = {
    # MUSE-simple (arXiv:1911.09483): MUSE without the convolution branch.
    "muse_simple": (
        "muse",
        {"encoder_branches": "self_attention,ffn", "decoder_branches": "self_attention,cross_attention,ffn"},
    ),
    # The Transformer (arXiv:1706.03762) from the parts of MUSE: one branch at a time, each with its own layer norm. It
    # differs from MUSE-simple by the order of computation only, so that the effect of a change can be told apart from
    # the effect of parallel branches.
    "plain_transformer": (
        "muse",
        {"encoder_branches": "self_attention/ffn", "decoder_branches": "self_attention/cross_attention/ffn"},
    ),
    # MUSE's encoder (arXiv:1911.09483) for sentences: attention, dynamic convolution, feed-forward next to each other.
    "sentence_muse": ("sentence_transformer", {"encoder_branches": "self_attention,conv,ffn"}),
    "head_wise_match_muse": ("head_wise_match_transformer", {"encoder_branches": "self_attention,conv,ffn"}),
    # Structured self-attention (arXiv:1703.03130), on a bidirectional GRU instead of the paper's LSTM. Its penalty is
    # --disagreement penal of --criterion muse_sentence_classification.
    "sentence_structured_attention": ("sentence_bigru", {"pooling": "structured_attention", "pooling_heads": 30}),
    # A bidirectional GRU, and heads that compare its states with a learned context.
    "lama": ("sentence_bigru", {**_LAMA, "encoder_hidden_size": 50}),
    # LAMA without a GRU ("LE"): heads look at the embedded words themselves.
    "lama_encoder": ("sentence_average", _LAMA),
}

_SST = {"embedding_dropout": 0.4, "classifier_dropout": 0.4}
_HIGH_DROPOUT = {"embedding_dropout": 0.5, "classifier_dropout": 0.5}
_SNLI = {"encoder_embed_dim": 600, "encoder_attention_heads": 5, "encoder_head_dim": 64}
_TAGGING = {"encoder_attention_scales": "1,3,5,7,9", "encoder_attention_scale_alpha": 1.0}


# The networks that LAMA is compared with, with its word vectors and classifier: vectors of 100, a GRU of 50 in either
# direction, filters of 3, 4 and 5 words, a Transformer of one layer with 8 heads and width 512, a hidden layer of 512
# with dropout 0.4. What its paper leaves open: hops and hidden width of structured self-attention (those of its own
# paper), the Transformer's feed-forward width (2,048) and dropout (0.1), how its states become one vector (their mean).
_GRU = {**_DOCUMENTS, "encoder_hidden_size": 50}
_ONE_LAYER = {
    **_DOCUMENTS,
    "encoder_embed_dim": 512,
    "encoder_layers": 1,
    "encoder_attention_heads": 8,
    "encoder_ffn_embed_dim": 2048,
    "dropout": 0.1,
    "pooling": "mean",
}

_SIZES = {
    "base": _BASE,
    "large": _LARGE,
    "tiny": _TINY,
    "iwslt_de_en": _IWSLT_DE_EN,
    "iwslt_en_vi": _IWSLT_EN_VI,
    "wmt_en_de": _WMT_EN_DE,
    "wmt_en_fr": _WMT_EN_FR,
}
_BIASES = {
    "multi_scale_iwslt_de_en": {**_IWSLT_DE_EN, **_WINDOWS},
    "distance_iwslt_de_en": {**_IWSLT_DE_EN, **_DISTANCE},
    "multi_scale_wmt_en_de": {**_WMT_EN_DE, **_LARGE_WINDOWS},
    "distance_wmt_en_de": {**_WMT_EN_DE, **_DISTANCE},
    "multi_scale_tiny": {**_TINY, **_TINY_WINDOWS},
    "distance_tiny": {**_TINY, **_DISTANCE},
}
_ENCODERS = {
    "multi_scale_encoder_tiny": _multi_scale_encoder(_TINY, 8, 32, encoder_attention_scales="1,3,N/4,N/2,all"),
    "multi_scale_encoder_iwslt_de_en": _multi_scale_encoder(_IWSLT_DE_EN, 24, 32),
    "multi_scale_encoder_wmt_en_de": _multi_scale_encoder(_WMT_EN_DE, 36, 64),
    "distance_encoder_tiny": _distance_encoder(_TINY, 2, 64),
    "distance_encoder_iwslt_de_en": _distance_encoder(_IWSLT_DE_EN, 4, 960),
    "distance_encoder_wmt_en_de": _distance_encoder(_WMT_EN_DE, 6, 1920),
}

PRESETS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{f"{model}_{size}": (model, settings) for model in ("muse", "muse_simple") for size, settings in _SIZES.items()},
    # Table 3 of arXiv:1911.09483: sizes and initialisation of the authors' command (--bm_in_a 3 --bm_out_a 0).
    "muse_simple_6l": ("muse_simple", {**_SIX_LAYERS, "input_init": 3.0, "output_init": 0.0}),
    "plain_transformer_tiny": ("plain_transformer", _TINY),
    "plain_transformer_iwslt_de_en": ("plain_transformer", _IWSLT_DE_EN),
    **{f"muse_{name}": ("muse", settings) for name, settings in _BIASES.items()},
    **{f"transformer_{name}": ("plain_transformer", settings) for name, settings in _BIASES.items()},
    **{name: ("plain_transformer", settings) for name, settings in _ENCODERS.items()},
    "multi_scale_transformer_sst": ("multi_scale_transformer", _SST),
    "multi_scale_transformer_mtl16": ("multi_scale_transformer", _HIGH_DROPOUT),
    "multi_scale_transformer_snli": ("multi_scale_transformer", {**_SNLI, **_HIGH_DROPOUT}),
    "multi_scale_transformer_tagging": ("multi_scale_transformer", _TAGGING),
    "lama_context": ("lama", {"pooling_context": "mean"}),  # LAMA+ctx: the context is the mean of the document's words
    "sentence_structured_attention_documents": ("sentence_structured_attention", _GRU),
    "sentence_bigru_documents": ("sentence_bigru", _GRU),
    "sentence_cnn_documents": ("sentence_cnn", _DOCUMENTS),
    "sentence_transformer_documents": ("sentence_transformer", _ONE_LAYER),
    "sentence_average_documents": ("sentence_average", _DOCUMENTS),
}

for _name, (_base, _settings) in DERIVED.items():
    register_preset(_name, _base, _settings, globals(), "Model")
for _name, (_base, _settings) in PRESETS.items():
    register_preset(_name, _base, _settings, globals())
