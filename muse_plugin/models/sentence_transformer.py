"""The Transformer and MUSE encoders for sentences, on the trunk of ``sentence_model.py``."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.modules import PositionalEmbedding
from torch import Tensor, nn

from muse_plugin.contracts.flag import fault_of, flag, naming, rate, size, with_defaults
from muse_plugin.models.attention_bias_flags import EncoderAttentionBiasFlags, bias_faults, find_bias_without_attention
from muse_plugin.models.layer_builder import BranchOptions, branch_names, build_layer
from muse_plugin.models.muse_config import CONV_BACKEND_HELP, layer_plans, read_kernel_sizes, read_stages
from muse_plugin.models.muse_faults import find_backend_faults
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_config import SentenceModelConfig, find_undivided_heads
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.attention import make_padding
from muse_plugin.modules.branch import LayerContext
from muse_plugin.ops.dynamic_conv import BACKENDS

# fairseq's positions are counted from the ids: 0 stands for padding, 1 for any word.
_NO_WORD = 0
_LONGEST_LEARNED = 1024


@dataclass
@with_defaults(pooling="cls_max")
class SentenceTransformerConfig(EncoderAttentionBiasFlags, SentenceModelConfig):
    """Flags of the Transformer encoder, and of MUSE's."""

    encoder_layers: int = size(3, "number of layers")
    encoder_attention_heads: int = size(10, "number of attention heads")
    encoder_ffn_embed_dim: int = size(600, "hidden width of the feed-forward branch")
    encoder_branches: str = flag(
        "self_attention/ffn",
        f"branches of a layer out of {', '.join(branch_names('sentence'))}: commas between parallel ones, slashes "
        "between those that follow each other",
    )
    encoder_kernel_sizes: str = flag("3,15", "kernel sizes of conv, odd, in words, see muse_base")
    attention_dropout: float = rate(0.1, "probability of dropping an attention weight")
    activation_dropout: float = rate(0.0, "probability of dropping a hidden unit of the feed-forward branch")
    weight_dropout: float = rate(0.1, "probability of dropping a weight of a kernel of conv")
    conv_backend: ChoiceEnum(list(BACKENDS)) = flag("auto", CONV_BACKEND_HELP)
    encoder_normalize_before: bool = flag(False, "layer norm before the branches instead of after the residual sum")
    encoder_positions: ChoiceEnum(["sinusoidal", "learned", "none"]) = flag(
        "sinusoidal", f"positions added to the embedded words; learned ones end at word {_LONGEST_LEARNED}"
    )
    no_layernorm_embedding: bool = flag(
        False, "no layer norm on the embedded words, without which positions may outweigh pretrained vectors"
    )


class TransformerStates(nn.Module):
    """Layer norm on the input, positions, then layers of this package (``ParallelLayer``, ``StagedLayer``).

    Args:
        layers: from the bottom.
        output_size: width C.
        positions: fairseq's position embedding for ids 0 (padding) and 1 (word), or None.
        dropout: probability in [0, 1) of dropping a channel of the sum, training only.
        norms_input: have the layer norm on the input.
        norms_output: have one on the result, for layers that normalise before their branches.
    """

    def __init__(
        self,
        layers: list[nn.Module],
        output_size: int,
        positions: Optional[nn.Module],
        dropout: float,
        norms_input: bool,
        norms_output: bool,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.positions = positions
        self.input_norm = nn.LayerNorm(output_size) if norms_input else None
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(layers)
        self.output_norm = nn.LayerNorm(output_size) if norms_output else None

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Optional[Tensor] = None) -> Tensor:
        """Encodes states (B, T, C); lengths on the CPU, shape (B,); mask true at padding, shape (B, T).

        Raises:
            ValueError: if a sentence is longer than the table of learned positions.
        """
        if self.input_norm is not None:
            x = self.input_norm(x)
        if self.positions is not None:
            longest = int(lengths.max())
            if isinstance(self.positions, nn.Embedding) and longest > _LONGEST_LEARNED:
                raise ValueError(
                    f"--encoder-positions learned is for at most {_LONGEST_LEARNED} words (a classification token is "
                    f"one), but got {longest}; use --encoder-positions sinusoidal or a smaller --max-words."
                )
            words = torch.ones(x.shape[:2], dtype=torch.int64, device=x.device)
            if key_padding_mask is not None:
                words = words.masked_fill(key_padding_mask, _NO_WORD)
            x = x + self.positions(words)
        x = self.dropout(x)
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)
        context = LayerContext(len(x), make_padding(key_padding_mask, x), lengths=lengths)
        for layer in self.layers:
            x = layer(x, context)
        x = x.transpose(0, 1)
        return x if self.output_norm is None else self.output_norm(x)


@register("sentence_transformer", SentenceTransformerConfig)
class SentenceTransformerModel(SentenceModel):
    """The Transformer encoder (arXiv:1706.03762) for sentences: positions, attention, feed-forward."""

    @property
    def longest_text(self) -> Optional[int]:
        """The most words of a text; None if there is no limit."""
        if not isinstance(self.encoder.positions, nn.Embedding):
            return None
        return _LONGEST_LEARNED - (self.cls is not None)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        faults = super().find_faults(cfg) + find_undivided_heads(cfg) + bias_faults(cfg)
        unread = fault_of(read_stages, cfg, "encoder", "sentence")
        if not unread:
            branches = [name for stage in read_stages(cfg, "encoder", "sentence") for name in stage]
            faults += find_bias_without_attention(cfg, "encoder", branches)
        faults += unread + fault_of(read_kernel_sizes, cfg, "encoder")
        return faults or find_backend_faults(cfg, {"encoder": "sentence"})

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> TransformerStates:
        """See ``SentenceModel.build_encoder``."""
        width = cfg.encoder_embed_dim
        options = BranchOptions(
            width,
            cfg.encoder_attention_heads,
            cfg.encoder_ffn_embed_dim,
            for_conv={"causal": False, "weight_dropout": cfg.weight_dropout},
            for_layer={"branch_dropout": cfg.dropout, "normalize_before": cfg.encoder_normalize_before},
            attention_dropout=cfg.attention_dropout,
            activation_dropout=cfg.activation_dropout,
            conv_backend=str(cfg.conv_backend),
        )
        with naming("--encoder-branches"):
            layers = [build_layer(options, plan) for plan in layer_plans(cfg, "encoder", "sentence")]
        positions = None
        if str(cfg.encoder_positions) != "none":
            positions = PositionalEmbedding(
                _LONGEST_LEARNED, width, _NO_WORD, learned=str(cfg.encoder_positions) == "learned"
            )
        return TransformerStates(
            layers,
            width,
            positions,
            cfg.dropout,
            norms_input=not cfg.no_layernorm_embedding,
            norms_output=cfg.encoder_normalize_before,
        )
