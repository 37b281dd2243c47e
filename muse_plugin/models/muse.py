"""MUSE and MUSE-simple: fairseq's Transformer with every layer replaced by the parallel layer.

Source: Zhao et al. 2019, "MUSE: Parallel Multi-Scale Attention for Sequence to Sequence Learning", arXiv:1911.09483.
The layer itself is ``modules/parallel_layer.py``; flags are in ``muse_config.py``, their checks in ``muse_faults.py``;
MUSE-simple, the plain Transformer and named sizes are in ``presets.py``.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Dict, List, Optional

import torch
from fairseq import utils
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase, TransformerModelBase
from omegaconf import DictConfig, open_dict
from torch import Tensor, nn

from muse_plugin.contracts.flag import naming
from muse_plugin.models.encoder_layers import PARALLEL, build_sentence_layer
from muse_plugin.models.hub import HubLoading
from muse_plugin.models.layer_builder import BranchOptions, build_layer
from muse_plugin.models.muse_config import (
    FAIRSEQ,
    FFN_PROJECTIONS,
    MuseConfig,
    explicit_pruning,
    flat_flags,
    pruned_flags,
    transformer_config,
)
from muse_plugin.models.muse_faults import check_config, check_supervision
from muse_plugin.models.registration import register
from muse_plugin.models.static_decoding import StaticSearch, StaticSteps
from muse_plugin.modules.attention import make_padding
from muse_plugin.modules.attention_bias import AttentionBias
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.compiled_layer import NoCompilerError
from muse_plugin.modules.gated_conv import GatedConv
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


def branch_options(cfg, side: str) -> BranchOptions:
    """What the layers of a side ("encoder" or "decoder") share, from fairseq's nested config with our flags."""
    own = getattr(cfg, side)
    return BranchOptions(
        own.embed_dim,
        own.attention_heads,
        own.ffn_embed_dim,
        encoder_dim=cfg.encoder.embed_dim if side == "decoder" else None,
        causal=side == "decoder",
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout,
        weight_dropout=cfg.weight_dropout,
        branch_dropout=cfg.branch_dropout,
        input_dropout=cfg.input_dropout,
        normalize_before=own.normalize_before,
        activation=utils.get_activation_fn(cfg.activation_fn),
        ffn_reads=FFN_PROJECTIONS[str(own.ffn_projection)],
        conv_type=own.conv_type,
        conv_heads=own.conv_heads,
        conv_shares_value=own.conv_projection == "shared",
        conv_gate=not cfg.no_conv_gate,
        conv_masks_padding=cfg.conv_padding == "masked",
        linear_backend=linear_backend(cfg),
        input_init=cfg.input_init,
        output_init=cfg.output_init,
        conv_backend=str(cfg.conv_backend),
    )


def linear_backend(cfg) -> str:
    """The back end of ``PackedLinear`` that the inference form uses."""
    return "int8" if cfg.int8_inference else "auto"


class ParallelLayers:
    """What encoder and decoder do for fairseq's base classes in the same way."""

    _layers_built = 0

    def build_next_layer(self, cfg, side: str) -> nn.Module:
        """Builds one layer, from the bottom, at each call: prepared for training and wrapped for FSDP as asked."""
        own = getattr(cfg, side)
        plan = own.plans[self._layers_built]
        if own.layer_type == PARALLEL:
            with naming(f"--{side}-branches"):
                layer = build_layer(branch_options(cfg, side), plan)
        else:
            layer = build_sentence_layer(cfg, plan.bias)
        self._layers_built += 1
        layer.prepare_training(cfg.compile_layers, cfg.checkpoint_activations, cfg.offload_activations)
        is_kept_whole = cfg.compile_layers or cfg.checkpoint_activations
        wrapped = fsdp_wrap(layer, min_num_params=0 if is_kept_whole else cfg.min_params_to_wrap)
        if cfg.compile_layers and wrapped is not layer:
            raise NotImplementedError(
                "--compile-layers does not go with parameters that are split among GPUs, but got "
                "--ddp-backend fully_sharded; use another --ddp-backend or drop the flag."
            )
        return wrapped

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> Dict[str, Tensor]:
        """fairseq's hook for old checkpoints; the base class would look for layer norms that we do not have."""
        return state_dict


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
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
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
        self.needs_attention = need_attn

    def pack(self) -> "_PackedDecoder":
        """See ``InferenceForm``."""
        return _PackedDecoder(self)

    def output_layer(self, features: Tensor) -> Tensor:
        """Turns states into scores of the target dictionary, shape (B, T, V); as they are with adaptive softmax."""
        project = None if self.packed is None else self.packed.project
        return super().output_layer(features) if project is None else project(features)


class _PackedDecoder:
    """What a decoder has for inference besides its layers.

    Args:
        decoder: whose output layer is copied.

    Attributes:
        project: the output layer; None where there is another one.
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


@register("muse", MuseConfig)
class MuseModel(HubLoading):
    """MUSE (arXiv:1911.09483): self-attention, gated dynamic convolution and feed-forward side by side.

    Everything around the layers is fairseq's Transformer: embeddings and their sharing, adaptive softmax, LayerDrop,
    activation checkpointing, FSDP.
    """

    @classmethod
    def add_args(cls, parser) -> None:
        """Adds our flags; presets fill what the user leaves unset."""
        gen_parser_from_dataclass(parser, cls.flags_class(), delete_default=True)

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model for a task's dictionaries.

        Raises:
            ValueError: if flags contradict each other; all faults are reported together.
        """
        flat = flat_flags(cfg, cls.config_class)
        check_config(flat, task.source_dictionary, task.target_dictionary, cls.config_class)
        has_alignments = bool(getattr(getattr(task, "cfg", None), "load_alignments", False))
        if has_alignments:
            check_supervision(flat)
        model = super().build_model(transformer_config(flat), task)
        model.decoder.supervises_attention = has_alignments
        return model

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens) -> MuseEncoder:
        """Called by the base class."""
        return MuseEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens) -> TransformerDecoderBase:
        """Called by the base class."""
        if cfg.decoder.layer_type == FAIRSEQ:
            return TransformerDecoderBase(cfg, tgt_dict, embed_tokens)
        return MuseDecoder(cfg, tgt_dict, embed_tokens)

    @wraps(TransformerModelBase.forward)  # criterions look at its arguments
    def forward(self, *args, **named):
        """Scores target words, see fairseq; names the flag where ``--compile-layers`` finds no compiler."""
        try:
            return super().forward(*args, **named)
        except NoCompilerError as error:
            raise RuntimeError(f"--compile-layers: {error}") from None

    def make_generation_fast_(self, inference_backend: Optional[str] = None, **named):
        """Adds the inference forms; names the flag where ``--int8-inference`` is not possible.

        Args:
            inference_backend: instead of that of ``--inference-backend``.
            **named: of fairseq.
        """
        if (inference_backend or str(self.decoder.cfg.inference_backend)) == "onnxruntime":
            from muse_plugin.models.onnx.back_end import run_in_onnxruntime_  # which reads this file

            run_in_onnxruntime_(self, bool(named.get("need_attn")), bool(named.get("retain_dropout")))
            return
        with naming("--int8-inference") if self.decoder.cfg.int8_inference else nullcontext():
            super().make_generation_fast_(**named)

    def load_state_dict(self, state_dict, strict: bool = True, model_cfg=None, args=None):
        """Loads parameters as fairseq does; where layers are pruned away, ``model_cfg`` then describes what is left."""
        flat = None if model_cfg is None else flat_flags(model_cfg, self.config_class)
        if flat is None or not (flat.encoder_layers_to_keep or flat.decoder_layers_to_keep):
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        with open_dict(model_cfg) if isinstance(model_cfg, DictConfig) else nullcontext():
            for name, value in explicit_pruning(flat).items():
                setattr(model_cfg, name, value)
            result = super().load_state_dict(state_dict, strict, model_cfg, args)
            for name, value in pruned_flags(flat).items():
                setattr(model_cfg, name, value)
        return result

    def prepare_for_inference_(self, cfg) -> None:
        """fairseq calls this before generation.

        Raises:
            ValueError: for ``--replace-unk`` without ``--print-alignment``, with which alone fairseq aligns words.
        """
        generation = cfg.generation
        if getattr(generation, "replace_unk", None) is not None and not getattr(generation, "print_alignment", None):
            raise ValueError(
                "--replace-unk copies the words that unknown ones are aligned to, but there is no --print-alignment; "
                "add it."
            )
        super().prepare_for_inference_(cfg)

    def gate_weights(self) -> Dict[str, Tensor]:
        """Softmax of the kernel gate of every layer that has one, by module name; each (number of kernel sizes,)."""
        return {
            name: module.gate_weights().detach()
            for name, module in self.named_modules()
            if isinstance(module, GatedConv) and module.gate is not None
        }
