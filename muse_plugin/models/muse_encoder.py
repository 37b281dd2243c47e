"""The encoder of MUSE (arXiv:1911.09483)."""

from typing import Any, Dict, List, Optional

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from muse_plugin.models.muse_config import FAIRSEQ
from muse_plugin.models.muse_layers import ParallelLayers
from muse_plugin.modules.attention import make_padding
from muse_plugin.modules.attention_bias import AttentionBias
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.layer_cache import group_rows


class MuseEncoder(ParallelLayers, TransformerEncoderBase):
    """fairseq's encoder (embeddings, positions, LayerDrop, final norm) around layers of this package."""

    def __init__(self, cfg, dictionary, embed_tokens) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        if cfg.encoder.positions == "none":
            self.embed_positions = None
        # fairseq's decoder takes one row of states for every hypothesis.
        self._copies_rows = cfg.decoder.layer_type == FAIRSEQ
        self._needs_lengths = any(isinstance(module, AttentionBias) for module in self.modules())

    def build_encoder_layer(self, cfg) -> nn.Module:
        """Called by the base class once per layer, from the bottom."""
        return self.build_next_layer(cfg, "encoder")

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Any]]:
        """Encodes sentences; masks are made once for all layers.

        Args:
            src_tokens: shape (B, S).
            src_lengths: not used, lengths are counted.
            return_all_hiddens: also return the states between the layers.
            token_embeddings: instead of looking the tokens up, shape (B, S, C).

        Returns:
            fairseq's dict of lists: "encoder_out" (S, B, C), "encoder_padding_mask" (B, S), "encoder_embedding"
            (B, S, C), "encoder_states" (each (S, B, C)), "fc_results", "src_tokens", "src_lengths" (B, 1); and
            "rows_per_sentence", see ``reorder_encoder_out``.
        """
        padding = src_tokens.eq(self.padding_idx)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        tokens = padding.logical_not().sum(dim=1)
        lengths = tokens.cpu() if self._needs_lengths else None
        mask = padding if bool(padding.any()) else None
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0.0)
        x = x.transpose(0, 1)
        context = LayerContext(len(x), make_padding(mask, x), lengths=lengths)
        states: List[Tensor] = [x] if return_all_hiddens else []
        for layer in self.layers:
            x = layer(x, context)
            if return_all_hiddens:
                states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [tokens.to(torch.int32).unsqueeze(-1)],
            "rows_per_sentence": [1],
        }

    def reorder_encoder_out(self, encoder_out: Dict[str, List[Any]], new_order: Tensor) -> Dict[str, List[Any]]:
        """Picks rows, e.g. of the sentences that beam search has not finished.

        Rows of one sentence are not copied: the decoder takes them as further queries to the same states; but for
        fairseq's own decoder.

        Args:
            encoder_out: what ``forward`` or this function returned.
            new_order: row indices, shape (new rows,).

        Returns:
            The dict for the sentences that are left; "rows_per_sentence" holds how many neighbouring rows each has.
        """
        if self._copies_rows:
            return super().reorder_encoder_out(encoder_out, new_order)
        before = encoder_out.get("rows_per_sentence", [1])[0]
        left, rows_per_sentence = group_rows(new_order, encoder_out["encoder_out"][0].shape[1], before)
        if left is not None:
            encoder_out = super().reorder_encoder_out(encoder_out, left)
        return {**encoder_out, "rows_per_sentence": [rows_per_sentence]}
