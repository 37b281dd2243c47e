"""Named sizes: ``--arch NAME``. Each preset holds only what differs from the defaults of its model.

Sources: arXiv:1911.09483 (sizes, dropout) and the authors' published commands and logs (attention and input dropout).
A preset fills only flags that the user left unset, on the command line as in hydra (``+model._name=NAME``).
"""

from collections.abc import Mapping
from typing import Any

from muse_plugin.models.muse import MuseModel, MuseSimpleModel, PlainTransformerModel
from muse_plugin.models.preset import register_preset


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
_DISTANCE = {"encoder_attention_bias": "distance,bidirectional-split"}
# Four heads, and sentences of a dozen words: N/16 and N/8 would be single words.
_TINY_WINDOWS = {"encoder_attention_bias": "multi-scale", "encoder_attention_scales": "3,N/4,N/2,all"}

PRESETS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "muse_base": ("muse", _BASE),
    "muse_large": ("muse", _LARGE),
    "muse_tiny": ("muse", _TINY),
    "muse_iwslt_de_en": ("muse", _IWSLT_DE_EN),
    "muse_iwslt_en_vi": ("muse", _IWSLT_EN_VI),
    "muse_wmt_en_de": ("muse", _WMT_EN_DE),
    "muse_wmt_en_fr": ("muse", _WMT_EN_FR),
    "muse_simple_base": ("muse_simple", _BASE),
    "muse_simple_large": ("muse_simple", _LARGE),
    "muse_simple_tiny": ("muse_simple", _TINY),
    "muse_simple_6l": ("muse_simple", _SIX_LAYERS),
    "muse_simple_iwslt_de_en": ("muse_simple", _IWSLT_DE_EN),
    "muse_simple_iwslt_en_vi": ("muse_simple", _IWSLT_EN_VI),
    "muse_simple_wmt_en_de": ("muse_simple", _WMT_EN_DE),
    "muse_simple_wmt_en_fr": ("muse_simple", _WMT_EN_FR),
    "muse_multi_scale_iwslt_de_en": ("muse", {**_IWSLT_DE_EN, **_WINDOWS}),
    "muse_distance_iwslt_de_en": ("muse", {**_IWSLT_DE_EN, **_DISTANCE}),
    "muse_multi_scale_tiny": ("muse", {**_TINY, **_TINY_WINDOWS}),
    "muse_distance_tiny": ("muse", {**_TINY, **_DISTANCE}),
    "plain_transformer_tiny": ("plain_transformer", _TINY),
    "plain_transformer_iwslt_de_en": ("plain_transformer", _IWSLT_DE_EN),
    "transformer_multi_scale_iwslt_de_en": ("plain_transformer", {**_IWSLT_DE_EN, **_WINDOWS}),
    "transformer_distance_iwslt_de_en": ("plain_transformer", {**_IWSLT_DE_EN, **_DISTANCE}),
    "transformer_multi_scale_tiny": ("plain_transformer", {**_TINY, **_TINY_WINDOWS}),
    "transformer_distance_tiny": ("plain_transformer", {**_TINY, **_DISTANCE}),
}


_MODELS = {"muse": MuseModel, "muse_simple": MuseSimpleModel, "plain_transformer": PlainTransformerModel}
for _name, (_model, _settings) in PRESETS.items():
    register_preset(_name, _MODELS[_model], _settings, globals())
