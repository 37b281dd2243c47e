"""Multi-Scale Transformer: a stack of layers whose heads look at windows of different sizes.

Source: Guo et al. 2020, "Multi-Scale Self-Attention for Text Classification", arXiv:1912.00544. The layer is
``modules/multi_scale_layer.py``; sizes of the paper's tasks are in ``presets.py``.
"""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from muse_plugin.contracts.flag import flag, rate, size, with_defaults
from muse_plugin.models.attention_bias_flags import EncoderAttentionBiasFlags, bias_faults, build_windows, plan_biases
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_config import SentenceModelConfig
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.multi_scale_layer import MultiScaleLayer


@dataclass
@with_defaults(pooling="cls_max", pair_features="difference_twice")
class MultiScaleTransformerConfig(EncoderAttentionBiasFlags, SentenceModelConfig):
    """Flags of the Multi-Scale Transformer. Defaults: the paper's classification setting (SST, MTL-16)."""

    encoder_attention_bias: str = flag(
        "multi-scale", "what heads may look at, see muse_base; none is plain attention, still without positions"
    )
    encoder_layers: int = size(3, "number of layers")
    encoder_attention_heads: int = size(10, "number of attention heads")
    encoder_head_dim: int = size(30, "width of a head; heads times width need not be --encoder-embed-dim")
    attention_dropout: float = rate(0.3, "probability of dropping an attention weight")
    attention_scale: ChoiceEnum(["head", "model"]) = flag(
        "head", "logits are divided by the root of: head, the width of a head; model, --encoder-embed-dim (Eq. 6)"
    )


class MultiScaleEncoder(nn.Module):
    """A stack of multi-scale layers, from the bottom."""

    def __init__(self, layers: list[MultiScaleLayer], output_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.output_size = output_size

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Optional[Tensor] = None) -> Tensor:
        """Encodes states (B, T, C); see ``MultiScaleLayer.forward``."""
        for layer in self.layers:
            x = layer(x, lengths, key_padding_mask)
        return x


@register("multi_scale_transformer", MultiScaleTransformerConfig)
class MultiScaleTransformerModel(SentenceModel):
    """Multi-Scale Transformer (arXiv:1912.00544) for sentences, pairs and tags; without positions."""

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        return super().find_faults(cfg) + bias_faults(cfg)

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> MultiScaleEncoder:
        """See ``SentenceModel.build_encoder``."""
        layers = [
            MultiScaleLayer(
                cfg.encoder_embed_dim,
                cfg.encoder_attention_heads,
                cfg.encoder_head_dim,
                build_windows(plan, cfg.encoder_attention_heads),
                cfg.dropout,
                cfg.attention_dropout,
                scales_by_model=str(cfg.attention_scale) == "model",
            )
            for plan in plan_biases(cfg, "encoder")
        ]
        return MultiScaleEncoder(layers, cfg.encoder_embed_dim)
