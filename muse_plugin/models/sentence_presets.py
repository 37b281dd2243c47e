"""Named sizes of sentence models. Each preset holds only what differs from the defaults of its model.

Sources: widths, heads, scales and alpha, arXiv:1912.00544, Tables 1 and 6 and section 5; its dropouts were not
published, and those here are what the same authors used for Star-Transformer (arXiv:1902.09113) in public code.
"""

from collections.abc import Mapping
from typing import Any

from muse_plugin.models.multi_scale_transformer import MultiScaleTransformerModel
from muse_plugin.models.preset import register_preset

_SST = {"embedding_dropout": 0.4, "classifier_dropout": 0.4}
_HIGH_DROPOUT = {"embedding_dropout": 0.5, "classifier_dropout": 0.5}
_SNLI = {"encoder_embed_dim": 600, "encoder_attention_heads": 5, "encoder_head_dim": 64}
_TAGGING = {"encoder_attention_scales": "1,3,5,7,9", "encoder_attention_scale_alpha": 1.0}

PRESETS: dict[str, Mapping[str, Any]] = {
    "multi_scale_transformer_sst": _SST,
    "multi_scale_transformer_mtl16": _HIGH_DROPOUT,
    "multi_scale_transformer_snli": {**_SNLI, **_HIGH_DROPOUT},
    "multi_scale_transformer_tagging": _TAGGING,
}

for _name, _settings in PRESETS.items():
    register_preset(_name, MultiScaleTransformerModel, _settings, globals())
