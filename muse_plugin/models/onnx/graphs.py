"""A translation model as two graphs that hold no state: the encoder, and one step of the decoder.

What step-by-step decoding remembers goes in and out as tensors: for each layer the history of its cached slices, and
the keys and values of the encoder, which are computed once per sentence and never copied per hypothesis. The layers are
the model's own, in their form for inference; those of the step are arranged for few operators (``step_layers.py``).
``onnx_file.py`` writes these graphs; ``runner/run.py`` searches with them, and ``sessions.py`` hands them to
fairseq's search.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor, nn

from muse_plugin.models.decoder_step import Embedding, find_cross_attention, list_stages
from muse_plugin.models.muse_decoder import MuseDecoder
from muse_plugin.models.muse_encoder import MuseEncoder
from muse_plugin.models.onnx.plain_layers import from_fairseq
from muse_plugin.models.onnx.step_layers import StepContext, StepLayer
from muse_plugin.modules.attention import make_padding, padding_bias
from muse_plugin.modules.branch import LayerContext, split_heads
from muse_plugin.modules.gated_conv import GatedConv, StaticConv
from muse_plugin.modules.parallel_layer import ParallelLayer


def make_graphs(model: Any) -> tuple[EncoderGraph, StepGraph]:
    """Makes the two graphs of a model, which is not changed: MUSE in every variant, or fairseq's Transformer.

    Raises:
        NotImplementedError: if it is of another kind.
    """
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    try:
        if not (isinstance(encoder, TransformerEncoderBase) and isinstance(decoder, TransformerDecoderBase)):
            raise NotImplementedError(f"it is a {type(model).__name__}")
        with torch.no_grad():
            sides = [_prepare_layers(side) for side in (encoder, decoder)]
            return EncoderGraph(encoder, *sides), StepGraph(decoder, sides[1])
    except NotImplementedError as error:
        raise NotImplementedError(
            "ONNX graphs are made of translation models: muse, muse_simple, plain_transformer and fairseq's "
            f"transformer, but of this model {error}; translate by PyTorch."
        ) from error


def _prepare_layers(side: Any) -> nn.ModuleList:
    """Copies of the layers of an encoder or decoder, in the form for inference, of operations that ONNX has."""
    is_muse = isinstance(side, (MuseEncoder, MuseDecoder))
    layers = nn.ModuleList(copy.deepcopy(layer) if is_muse else from_fairseq(layer) for layer in side.layers)
    layers.float().cpu().eval()
    for module in list(layers.modules()):
        if isinstance(module, ParallelLayer):
            module.linear_backend = "plain"
            module.make_generation_fast_()
        elif isinstance(module, StaticConv):
            _merge_kernels(module)
        elif isinstance(module, GatedConv):
            module.backend = "band"  # type: ignore[assignment]
    return layers


def _merge_kernels(conv: StaticConv) -> None:
    """Adds up the kernels that a gate weighs: ONNX wants to know the shape of a kernel."""
    if conv.gate is not None:
        merged = conv.merge(list(conv.kernel_weights)).detach()
        conv.kernel_weights = nn.ParameterList([nn.Parameter(merged)])
        conv.kernel_sizes, conv.gate = (max(conv.kernel_sizes),), None


class EncoderGraph(nn.Module):
    """Tokens to the keys and values that each cross-attention reads, by layers of ``_prepare_layers``.

    Attributes:
        outputs: names of the results after the padding.
    """

    def __init__(self, encoder: Any, layers: nn.ModuleList, decoder_layers: nn.ModuleList) -> None:
        super().__init__()
        self.embedding = _copy(Embedding(encoder))
        self.layers = layers
        self.layer_norm = _copy(encoder.layer_norm)
        self.padding_index = encoder.padding_idx
        found = dict(find_cross_attention(decoder_layers))
        self.heads = [branch.num_heads for branch in found.values()]
        self.projections = nn.ModuleList(branch.key_value_proj for branch in found.values())
        self.outputs = [f"{part}.{name}" for name in found for part in ("encoder_key", "encoder_value")]

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Encodes sentences.

        Args:
            tokens: int64, shape (B, S).

        Returns:
            The padding, bool (B, S), and keys (B, H, D, S) and values (B, H, S, D).
        """
        padding = tokens.eq(self.padding_index)
        real = padding.logical_not()
        positions = real.long().cumsum(1) * real.long() + self.padding_index
        x = self.embedding(tokens, positions).masked_fill(padding.unsqueeze(-1), 0.0).transpose(0, 1)
        context = LayerContext(x.shape[0], make_padding(padding, x), lengths=real.long().sum(1))
        for layer in self.layers:
            x = layer(x, context)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x, results = x.transpose(0, 1), [padding]
        for projection, heads in zip(self.projections, self.heads, strict=True):
            key, value = (split_heads(part, heads) for part in projection(x).chunk(2, dim=-1))
            results += [key.transpose(2, 3), value]
        return tuple(results)


class StepGraph(nn.Module):
    """One token of each hypothesis to log-probabilities of the next one, by layers of ``_prepare_layers``.

    Attributes:
        encoder_names: names of the encoder's keys and values, as ``EncoderGraph.outputs``.
        history_shapes: heads and width (H, D) of each history, by its name.
    """

    def __init__(self, decoder: Any, layers: nn.ModuleList) -> None:
        super().__init__()
        self.embedding, self.output = _copy(Embedding(decoder)), _OutputLayer(decoder)
        self.norm, self.project = _copy(decoder.layer_norm), _copy(decoder.project_out_dim)
        self.first_position = decoder.padding_idx + 1
        found = dict(find_cross_attention(layers))
        self.encoder_names = [f"{part}.{name}" for name in found for part in ("encoder_key", "encoder_value")]
        self._attention_shapes = [(own.num_heads, own.output_size // own.num_heads) for own in found.values()]
        self.layers = nn.ModuleList(StepLayer(name, stage) for name, stage in list_stages(layers))
        number = torch.zeros(1, dtype=torch.int64)  # a first step shows what is remembered
        _, present = self._step(number, number[0], number, torch.zeros(1, 1).bool(), self.make_encoded(1, 1), {})
        self.history_shapes = {name: (own.shape[1], own.shape[3]) for name, own in present.items()}

    def make_encoded(self, sentences: int, length: int) -> list[Tensor]:
        """Zeros in the shapes of the encoder's keys, (B, H, D, S), and values, (B, H, S, D)."""
        shapes = [
            shape
            for heads, width in self._attention_shapes
            for shape in ((heads, width, length), (heads, length, width))
        ]
        return [torch.zeros(sentences, *shape) for shape in shapes]

    def make_histories(self, rows: int, length: int) -> list[Tensor]:
        """Zeros in the shapes of the histories, (rows, H, length, D)."""
        return [torch.zeros(rows, heads, length, width) for heads, width in self.history_shapes.values()]

    def forward(
        self, tokens: Tensor, position: Tensor, order: Tensor, padding: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Computes a step.

        Args:
            tokens: the last token of each hypothesis, int64, shape (R,); R / B neighbours share a sentence.
            position: how many tokens are before it, int64, shape ().
            order: rows of the histories that are continued, int64, shape (R,).
            padding: of the sources, bool, shape (B, S).
            *tensors: as of ``make_encoded``, then as of ``make_histories``.

        Returns:
            Log-probabilities, float32, shape (R, V), and the histories with this token, (R, H, position + 1, D).
        """
        number = len(self.encoder_names)
        past = dict(zip(self.history_shapes, tensors[number:], strict=True))
        scores, present = self._step(tokens, position, order, padding, tensors[:number], past)
        return (scores, *(present[name] for name in self.history_shapes))

    def _step(
        self,
        tokens: Tensor,
        position: Tensor,
        order: Tensor,
        padding: Tensor,
        encoded: Sequence[Tensor],
        past: Mapping[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        named = dict(zip(self.encoder_names, encoded, strict=True))
        bias = padding_bias(padding, torch.float32)
        context = StepContext(order, position + 1, past, named, bias)
        x = self.embedding(tokens, position.reshape(1) + self.first_position)
        for layer in self.layers:
            x = layer(x, context)
        if self.norm is not None:
            x = self.norm(x)
        return self.output(x if self.project is None else self.project(x)), context.present


class _OutputLayer(nn.Module):
    """States (R, C) to log-probabilities of the target dictionary (R, V)."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.adaptive = _copy(decoder.adaptive_softmax)
        self.output = None if self.adaptive is not None else _copy(decoder.output_projection)

    def forward(self, x: Tensor) -> Tensor:
        if self.output is None:
            assert self.adaptive is not None
            return self.adaptive.get_log_prob(x.unsqueeze(1), target=None).squeeze(1)
        return torch.log_softmax(self.output(x), dim=-1)


def _copy(module: Any) -> Any:
    """A copy in float32 on the CPU, outside training; None stays None."""
    return None if module is None else copy.deepcopy(module).float().cpu().eval()
