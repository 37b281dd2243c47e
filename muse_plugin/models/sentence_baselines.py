"""Encoders to compare with, on the trunk of ``sentence_model.py``: bidirectional GRU, convolution, average.

The Transformer is in ``sentence_transformer.py``.
"""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor, nn

from muse_plugin.contracts.flag import fault_of, flag, size, with_defaults
from muse_plugin.models.registration import register
from muse_plugin.models.sentence_config import SentenceModelConfig
from muse_plugin.models.sentence_model import SentenceModel
from muse_plugin.modules.recurrent_encoder import BiGRU
from muse_plugin.modules.text_convolution import TextConvolution


@dataclass
class SentenceBiGRUConfig(SentenceModelConfig):
    """Flags of the bidirectional GRU."""

    encoder_layers: int = size(1, "number of layers")
    encoder_hidden_size: int = size(150, "width of a state in one direction")


@register("sentence_bigru", SentenceBiGRUConfig)
class SentenceBiGRUModel(SentenceModel):
    """A bidirectional GRU over the sentence, with a maximum over its states."""

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> BiGRU:
        """See ``SentenceModel.build_encoder``."""
        return BiGRU(cfg.encoder_embed_dim, cfg.encoder_hidden_size, cfg.encoder_layers, cfg.dropout)


@dataclass
class SentenceCNNConfig(SentenceModelConfig):
    """Flags of the convolutional network."""

    encoder_filter_widths: str = flag("3,4,5", "widths of the filters in words, comma-separated")
    encoder_filters: int = size(100, "number of filters of each width")


@register("sentence_cnn", SentenceCNNConfig)
class SentenceCNNModel(SentenceModel):
    """Filters of several widths and a maximum over words (Kim 2014, arXiv:1408.5882)."""

    unread_flags = ("dropout",)

    @classmethod
    def find_faults(cls, cfg: Namespace) -> list[str]:
        """See ``SentenceModel.find_faults``."""
        return super().find_faults(cfg) + fault_of(_filter_widths, cfg)

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> TextConvolution:
        """See ``SentenceModel.build_encoder``."""
        return TextConvolution(cfg.encoder_embed_dim, _filter_widths(cfg), cfg.encoder_filters)


@dataclass
@with_defaults(pooling="mean")
class SentenceAverageConfig(SentenceModelConfig):
    """Flags of the average of word vectors."""


class Unchanged(nn.Module):
    """No encoder: states are the embedded words."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor, lengths: Tensor, key_padding_mask: Optional[Tensor] = None) -> Tensor:
        """Returns ``x``."""
        return x


@register("sentence_average", SentenceAverageConfig)
class SentenceAverageModel(SentenceModel):
    """The average of the embedded words."""

    unread_flags = ("dropout",)

    @classmethod
    def build_encoder(cls, cfg: Namespace) -> Unchanged:
        """See ``SentenceModel.build_encoder``."""
        return Unchanged(cfg.encoder_embed_dim)


def _filter_widths(cfg: Any) -> list[int]:
    entries = [entry.strip() for entry in cfg.encoder_filter_widths.split(",")]
    if not all(entry.isascii() and entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            "--encoder-filter-widths must list whole numbers of at least 1, e.g. 3,4,5, but got "
            f"{cfg.encoder_filter_widths!r}."
        )
    return [int(entry) for entry in entries]
