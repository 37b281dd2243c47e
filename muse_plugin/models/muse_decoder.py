"""The decoder of MUSE (arXiv:1911.09483): one pass in training, step by step in a search."""

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from muse_plugin.models.muse_layers import ParallelLayers, linear_backend
from muse_plugin.models.static_decoding import StaticSearch, StaticSteps
from muse_plugin.modules.attention import CrossAttention, make_padding
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.inference_form import InferenceForm
from muse_plugin.modules.layer_cache import LayerCache, group_rows
from muse_plugin.ops.packed_linear import PackedLinear

IncrementalState = Dict[str, "DecodingState"]
_STATE = "muse_decoder"


@dataclass
class DecodingState:
    """What the decoder remembers between the steps of a search, in fairseq's incremental state.

    Attributes:
        layers: one history per layer.
        rows: number of hypotheses, i.e. rows of every history.
        length: number of target tokens seen.
        padded: whether padding can matter, see ``MuseDecoder._padding_mask``.
        rows_per_sentence: neighbouring rows (hypotheses of a beam) that share a sentence.
        search: takes the place of ``layers`` while steps have static shapes.
    """

    layers: List[LayerCache]
    rows: int
    length: int = 0
    padded: bool = False
    rows_per_sentence: int = 1
    search: Optional[StaticSearch] = None


class MuseDecoder(ParallelLayers, InferenceForm, TransformerDecoderBase):
    """fairseq's decoder (embeddings, positions, LayerDrop, output layer) around parallel layers.

    Step-by-step decoding takes any number of new tokens at a time: what is new is what the cache has not seen.
    """

    needs_attention = True  # whether generation must return attention; see make_generation_fast_
    supervises_attention = False  # whether training must, for a loss that compares it with word alignments

    def build_decoder_layer(self, cfg, no_encoder_attn: bool = False) -> nn.Module:
        """Called by the base class once per layer, from the bottom."""
        return self.build_next_layer(cfg, "decoder")

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[IncrementalState] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ):
        """Computes the decoder's states, without the output layer.

        Args:
            prev_output_tokens: all target tokens so far, shape (B, T_all).
            encoder_out: what the encoder returned.
            incremental_state: caches of earlier calls, extended in place; only tokens they have not seen are computed.
            full_context_alignment: self-attention may see the future (the convolution stays causal).
            alignment_layer: layer whose cross-attention is returned; default: that of ``--alignment-layer``, outside
                training if somebody needs it, in training if a loss supervises it.
            alignment_heads: average over the first heads only; default: ``--alignment-heads``.

        Returns:
            The states of the new tokens, shape (B, T, C), and a dict with "attn", a list of one (B, T, S) tensor of
            cross-attention averaged over heads (or None), and "inner_states", each (T, B, C).

        Raises:
            ValueError: if there is no new token.
        """
        state = None if incremental_state is None else incremental_state.get(_STATE)
        past = 0 if state is None else state.length
        if past >= prev_output_tokens.shape[1]:
            raise ValueError(
                f"prev_output_tokens must hold at least one token that the cache has not seen, but got "
                f"{prev_output_tokens.shape[1]} tokens with {past} in the cache; pass all tokens so far."
            )
        if incremental_state is not None and not self.training:
            wants_attention = alignment_layer is not None or self.needs_attention
            if full_context_alignment or wants_attention:
                self._leave_static_steps(state)
            else:
                static = self._step_statically(prev_output_tokens, encoder_out, incremental_state)
                if static is not None:
                    return static, {"attn": [None], "inner_states": []}
                state = incremental_state.get(_STATE)
        padding_mask = self._padding_mask(prev_output_tokens, state, full_context_alignment)
        x = self._embed(prev_output_tokens, past, padding_mask is not None)
        encoder_states = _first(encoder_out, "encoder_out")
        encoder_padding_mask = _first(encoder_out, "encoder_padding_mask")
        if state is None and incremental_state is not None:
            state = DecodingState([LayerCache() for _ in range(len(self.layers))], prev_output_tokens.shape[0])
            if encoder_states is not None:
                state.rows_per_sentence = max(1, prev_output_tokens.shape[0] // max(1, encoder_states.shape[1]))
            incremental_state[_STATE] = state
        if alignment_layer is None and (self.supervises_attention if self.training else self.needs_attention):
            alignment_layer = self.alignment_layer
        if alignment_heads is None:
            alignment_heads = self.cfg.alignment_heads
        context = LayerContext(
            len(x),
            make_padding(padding_mask, x),
            encoder_states,
            make_padding(encoder_padding_mask, x),
            causal=not full_context_alignment,
        )
        attention: Optional[Tensor] = None
        inner_states: List[Tensor] = [x]
        for number, layer in enumerate(self.layers):
            cache = None if state is None else state.layers[number]
            own = replace(context, cache=cache, need_weights=number == alignment_layer)
            x = layer(x, own)
            inner_states.append(x)
            if own.attention_weights is not None:
                attention = own.attention_weights[:alignment_heads].mean(dim=0)
        if state is not None:
            state.length, state.padded = prev_output_tokens.shape[1], padding_mask is not None

        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, {"attn": [attention], "inner_states": inner_states}

    def _step_statically(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: IncrementalState,
    ) -> Optional[Tensor]:
        """Takes steps of static shapes where they are possible.

        Returns:
            The states of the new tokens, shape (B, T, C); None if the ordinary step is to be taken, for which the state
            is ready.
        """
        state = incremental_state.get(_STATE)
        rows, end = prev_output_tokens.shape
        if state is None:
            search = None
            if self.packed is not None and end == 1:
                states, mask = (_first(encoder_out, name) for name in ("encoder_out", "encoder_padding_mask"))
                search = self.packed.steps.start(self, states, mask, rows)
            if search is None or bool(prev_output_tokens.eq(self.padding_idx).any()):
                return None
            state = DecodingState([], rows, rows_per_sentence=search.beam, search=search)
            incremental_state[_STATE] = state
        if state.search is None:
            return None
        parts = []
        for position in range(state.length, end):
            features = state.search.advance(prev_output_tokens[:, position])
            if features is None:
                self._leave_static_steps(state)
                if not parts:
                    return None
                rest, _ = self.extract_features_scriptable(prev_output_tokens, encoder_out, incremental_state)
                return torch.cat([torch.stack(parts, dim=1), rest], dim=1)
            parts.append(features)
            state.length += 1
        return torch.stack(parts, dim=1)

    def _leave_static_steps(self, state: Optional[DecodingState]) -> None:
        """From now on, steps are ordinary ones."""
        if state is not None and state.search is not None:
            state.layers, state.search = state.search.leave(self.layers), None

    @property
    def alignment_layer(self) -> int:
        """The layer whose cross-attention stands for word alignments, counted from 0."""
        chosen: Optional[int] = self.cfg.alignment_layer
        return self.num_layers - 1 if chosen is None else chosen

    def _padding_mask(
        self, prev_output_tokens: Tensor, state: Optional[DecodingState], sees_future: bool
    ) -> Optional[Tensor]:
        """The padding mask, shape (B, T_all), or None where padding cannot matter.

        A real token sees padding only if its row starts with it, or if it may look right. Step by step, that is
        decided once: the first column stays what it is.
        """
        if state is not None and state.length > 0:
            return prev_output_tokens.eq(self.padding_idx) if state.padded else None
        padding = prev_output_tokens.eq(self.padding_idx)
        return padding if bool((padding if sees_future else padding[:, :1]).any()) else None

    def _embed(self, prev_output_tokens: Tensor, past: int, padded: bool) -> Tensor:
        """Embeds the tokens after the first ``past``; returns (T, B, C)."""
        x = self.embed_scale * self.embed_tokens(prev_output_tokens[:, past:])
        if self.embed_positions is not None:
            if past > 0 and not padded and x.shape[1] == 1:
                # Any incremental state makes fairseq compute the last position only, and take rows as unpadded.
                x = x + self.embed_positions(prev_output_tokens, incremental_state={})
            else:
                x = x + self.embed_positions(prev_output_tokens)[:, past:]
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x).transpose(0, 1)

    def reorder_incremental_state_scripting(self, incremental_state: IncrementalState, new_order: Tensor) -> None:
        """Picks rows of every cache, e.g. after a beam search step.

        Args:
            incremental_state: the caches, changed in place.
            new_order: row indices, shape (new B,).
        """
        state = incremental_state.get(_STATE)
        if state is None:
            return
        before = state.rows_per_sentence
        left, state.rows_per_sentence = group_rows(new_order, state.rows // before, before)
        if state.search is not None:
            if state.rows_per_sentence == before:
                state.rows = len(new_order)
                state.search.reorder(new_order, left)
                return
            self._leave_static_steps(state)
        unchanged = len(new_order) == state.rows and torch.equal(new_order, torch.arange(state.rows).to(new_order))
        state.rows = len(new_order)
        if not unchanged:
            for cache in state.layers:
                cache.reorder(new_order, left)

    def make_generation_fast_(self, need_attn: bool = False, **_: object) -> None:
        """Adds the inference form of the output layer, and drops attention unless somebody asks for it.

        Args:
            need_attn: whether generation must return attention (``--print-alignment``, ``--replace-unk``).
        """
        super().make_generation_fast_()
        self.needs_attention = False
        if need_attn:
            self.return_attention()

    def return_attention(self) -> None:
        """From now on, generation returns attention.

        Raises:
            ValueError: if there is no cross-attention.
        """
        if not any(isinstance(module, CrossAttention) for module in self.modules()):
            raise ValueError("--print-alignment reads cross-attention, but the decoder has none; drop the flag.")
        self.needs_attention = True

    def pack(self) -> "_PackedDecoder":
        """See ``InferenceForm``."""
        return _PackedDecoder(self)

    def get_normalized_probs_scriptable(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """As fairseq's, whose adaptive softmax has no gradient for the probabilities of all words.

        Raises:
            ValueError: if a loss asks for them with adaptive softmax.
        """
        if self.adaptive_softmax is not None and self.training and torch.is_grad_enabled():
            raise ValueError("--adaptive-softmax-cutoff trains with --criterion adaptive_loss alone; add that.")
        return super().get_normalized_probs_scriptable(net_output, log_probs, sample)

    def output_layer(self, features: Tensor) -> Tensor:
        """Turns states into scores of the target dictionary, shape (B, T, V); as they are with adaptive softmax."""
        project = None if self.packed is None else self.packed.project
        return super().output_layer(features) if project is None else project(features)


class _PackedDecoder:
    """What a decoder has for inference besides its layers.

    Attributes:
        project: a copy of the output layer; None where there is another one.
        steps: of static shapes.
    """

    def __init__(self, decoder: MuseDecoder) -> None:
        linear, backend = decoder.output_projection, linear_backend(decoder.cfg)
        self.project: Optional[PackedLinear] = None
        if decoder.adaptive_softmax is None and linear is not None:
            self.project = PackedLinear(linear.weight, linear.bias, backend)
        self.steps = StaticSteps(str(decoder.cfg.static_decoding))


def _first(encoder_out: Optional[Dict[str, List[Tensor]]], name: str) -> Optional[Tensor]:
    entries = [] if encoder_out is None else encoder_out[name]
    return entries[0] if len(entries) > 0 else None
