"""BERT's encoder: embedded word pieces, layers with their norms after the residual sums.

Source: Devlin et al. 2019, arXiv:1810.04805. Parameters are read from files by ``pretrained/bert_weights.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.attends import SELF, AttentionWeights, HeadSource
from muse_plugin.modules.attention import attend, padding_bias, weigh
from muse_plugin.modules.branch import check_heads, merge_heads, split_heads
from muse_plugin.modules.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class BertSizes(NamedTuple):
    """What makes one BERT differ from another; names are those of ``config.json``.

    Attributes:
        vocab_size: number of word pieces.
        hidden_size: width C of the states.
        num_hidden_layers: number of layers.
        num_attention_heads: number of heads H of each.
        intermediate_size: hidden width of the feed-forward network.
        max_position_embeddings: longest sentence, in word pieces, [CLS] and [SEP] among them.
        type_vocab_size: number of segments; only the first is used, since every sentence is read alone.
        hidden_act: a key of ``ACTIVATIONS``.
        hidden_dropout_prob: probability in [0, 1) of dropping a channel of what is added to a residual.
        attention_probs_dropout_prob: probability in [0, 1) of dropping an attention weight.
        layer_norm_eps: added to the variance in layer norms.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12


class BertLayer(nn.Module):
    """x <- LayerNorm(x + attention(x)); x <- LayerNorm(x + feed-forward(x)).

    Args:
        sizes: see ``BertSizes``.

    Raises:
        ValueError: if the width is not divisible by the number of heads.
    """

    attends_to = SELF

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        check_heads(width, sizes.num_attention_heads, "attention")
        self.num_heads = sizes.num_attention_heads
        self.activation = ACTIVATIONS[sizes.hidden_act]
        self.attention_dropout = sizes.attention_probs_dropout_prob
        self.in_proj = Linear(width, 3 * width)  # rows: queries, keys, values
        self.out_proj = Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.fc1 = Linear(width, sizes.intermediate_size)
        self.fc2 = Linear(sizes.intermediate_size, width)
        self.output_norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.dropout = nn.Dropout(sizes.hidden_dropout_prob)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Applies the layer to states (B, T, C); ``bias`` is added to the logits, see ``attend``."""
        query, key, value = self._project(x)
        dropout = self.attention_dropout if self.training else 0.0
        heads, _ = attend(query, key, value, bias=bias, dropout=dropout)
        x = self.attention_norm(x + self.dropout(self.out_proj(merge_heads(heads))))
        return self.output_norm(x + self.dropout(self.fc2(self.activation(self.fc1(x)))))

    def _project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, each (B, H, T, D)."""
        return [split_heads(part, self.num_heads) for part in self.in_proj(x).chunk(3, dim=-1)]

    def weigh_attention(self, x: Tensor, bias: Tensor | None = None) -> AttentionWeights:
        """See ``Attends.weigh_attention``."""
        query, key, _ = self._project(x)
        return AttentionWeights(weigh(query, key, bias), None if bias is None else bias[:, 0, 0] < 0)

    def find_heads(self) -> HeadSource:
        """See ``Attends.find_heads``."""
        return HeadSource(self.out_proj, True, self.num_heads, self.out_proj.in_features // self.num_heads)


class BertEncoder(nn.Module):
    """Word pieces to states.

    Args:
        sizes: see ``BertSizes``.

    Raises:
        ValueError: if the width is not divisible by the number of heads.
    """

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.output_size = sizes.hidden_size
        self.words = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.positions = nn.Embedding(sizes.max_position_embeddings, sizes.hidden_size)
        self.segments = nn.Embedding(sizes.type_vocab_size, sizes.hidden_size)
        self.embedding_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.dropout = nn.Dropout(sizes.hidden_dropout_prob)
        self.layers = nn.ModuleList(BertLayer(sizes) for _ in range(sizes.num_hidden_layers))
        self.apply(_initialise)

    def forward(self, pieces: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Encodes sentences that begin with [CLS] and end with [SEP].

        Args:
            pieces: BERT's own ids, shape (B, T); any valid id at padding.
            key_padding_mask: bool, shape (B, T), true at padding; None if there is none.

        Returns:
            States, shape (B, T, C); those at padding are finite and otherwise unspecified.

        Raises:
            ValueError: if T exceeds the table of positions.
        """
        length = pieces.shape[1]
        if length > self.sizes.max_position_embeddings:
            raise ValueError(
                f"this BERT reads at most {self.sizes.max_position_embeddings} word pieces, [CLS] and [SEP] among "
                f"them, but got {length}; read fewer words."
            )
        x: Tensor = self.words(pieces) + self.positions.weight[:length] + self.segments.weight[0]
        x = self.dropout(self.embedding_norm(x))
        bias = None if key_padding_mask is None else padding_bias(key_padding_mask, x.dtype)
        for layer in self.layers:
            x = layer(x, bias)
        return x


def _initialise(module: nn.Module) -> None:
    """As BERT starts its own training."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
