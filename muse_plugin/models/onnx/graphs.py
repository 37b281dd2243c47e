"""A translation model as two graphs that hold no state: the encoder, and one step of the decoder.

What step-by-step decoding remembers goes in and out as tensors: for each layer the history of its cached slices, and
the keys and values of the encoder, which are computed once per sentence and never copied per hypothesis. The layers are
the model's own, in their form for inference; only the history is kept in another way (``_Growing``). ``onnx_file.py``
writes these graphs; ``exporting/run.py`` searches with them, and ``sessions.py`` hands them to fairseq's search.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor, nn

from muse_plugin.models.decoder_step import DecoderStep, Embedding, find_cross_attention
from muse_plugin.models.muse import MuseDecoder, MuseEncoder
from muse_plugin.models.onnx.plain_layers import from_fairseq
from muse_plugin.modules.attention import SelfAttention, make_padding
from muse_plugin.modules.branch import LayerContext
from muse_plugin.modules.gated_conv import GatedConv, StaticConv
from muse_plugin.modules.parallel_layer import ParallelLayer


def make_graphs(model: Any) -> tuple[EncoderGraph, StepGraph]:
    """Makes the two graphs of a model, which is not changed.

    Args:
        model: a fairseq encoder-decoder: MUSE in every variant, or fairseq's Transformer.

    Raises:
        NotImplementedError: if it is of another kind.
    """
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    is_muse = isinstance(encoder, MuseEncoder) and isinstance(decoder, MuseDecoder)
    is_plain = isinstance(encoder, TransformerEncoderBase) and isinstance(decoder, TransformerDecoderBase)
    try:
        if not is_muse and not is_plain:
            raise NotImplementedError(f"it is a {type(model).__name__}")
        with torch.no_grad():
            sides = [_prepare_layers(side, is_muse) for side in (encoder, decoder)]
            return EncoderGraph(encoder, *sides), StepGraph(decoder, sides[1])
    except NotImplementedError as error:
        raise NotImplementedError(
            "ONNX graphs are made of translation models: muse, muse_simple, plain_transformer and fairseq's "
            f"transformer, but of this model {error}; translate by PyTorch."
        ) from error


def _prepare_layers(side: Any, is_muse: bool) -> nn.ModuleList:
    """Copies of the layers of an encoder or decoder, in the form for inference, of operations that ONNX has."""
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
        elif isinstance(module, SelfAttention):
            module.window_backend = "dense"
    return layers


def _merge_kernels(conv: StaticConv) -> None:
    """Adds up the kernels that a gate weighs: ONNX wants to know the shape of a kernel."""
    if conv.gate is not None:
        merged = conv.merge(list(conv.kernel_weights)).detach()
        conv.kernel_weights = nn.ParameterList([nn.Parameter(merged)])
        conv.kernel_sizes, conv.gate = (max(conv.kernel_sizes),), None


class EncoderGraph(nn.Module):
    """Tokens to the keys and values that each cross-attention of the decoder reads.

    Args:
        encoder: embeddings, positions and norms are read from it.
        layers: of the encoder, prepared.
        decoder_layers: those of the decoder, prepared.

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
        self.projections = nn.ModuleList(branch.key_value_proj for branch in found.values())
        self.outputs = [f"{part}.{name}" for name in found for part in ("encoder_key", "encoder_value")]

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Encodes sentences.

        Args:
            tokens: int64, shape (B, S).

        Returns:
            The padding, bool (B, S), and keys and values, each (B, S, C).
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
        pairs = [projection(x).transpose(0, 1).chunk(2, dim=-1) for projection in self.projections]
        return (padding, *(part for pair in pairs for part in pair))


class StepGraph(nn.Module):
    """One token of each hypothesis to the log-probabilities of the next one.

    Args:
        decoder: embeddings, positions, norms and output layer are read from it.
        layers: of the decoder, prepared.

    Attributes:
        encoder_names: names of the encoder's keys and values, as ``EncoderGraph.outputs``.
        encoder_sizes: their widths.
        history_sizes: width of each history, by its name.
    """

    def __init__(self, decoder: Any, layers: nn.ModuleList) -> None:
        super().__init__()
        _fix_windows(layers)
        self.step = step = DecoderStep(decoder, layers)
        step.embedding, step.norm, step.project = (_copy(part) for part in (step.embedding, step.norm, step.project))
        self.output = _OutputLayer(decoder)
        found = dict(find_cross_attention(self.step.layers))
        self.encoder_names = [f"{part}.{name}" for name in found for part in ("encoder_key", "encoder_value")]
        self.encoder_sizes = [branch.output_size for branch in found.values() for _ in range(2)]
        encoded = {
            name: torch.zeros(1, 1, size) for name, size in zip(self.encoder_names, self.encoder_sizes, strict=True)
        }
        _, present = self._step(torch.zeros(1).long(), torch.tensor(0), torch.zeros(1, 1).bool(), encoded, {})
        self.history_sizes = {name: history.shape[-1] for name, history in present.items()}

    def forward(
        self, tokens: Tensor, position: Tensor, order: Tensor, padding: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Computes a step.

        Args:
            tokens: the last token of each hypothesis, int64, shape (R,); R / B neighbours share a sentence.
            position: how many tokens are before it, int64, shape ().
            order: rows of the histories that are continued, int64, shape (R,).
            padding: of the sources, bool, shape (B, S).
            *tensors: those of ``encoder_names``, each (B, S, C), then the histories, each (rows, position, size).

        Returns:
            Log-probabilities, float32, shape (R, V), and the histories with this token.
        """
        encoded = dict(zip(self.encoder_names, tensors, strict=False))
        past = dict(zip(self.history_sizes, tensors[len(encoded) :], strict=True))
        picked = {name: history.index_select(0, order) for name, history in past.items()}
        scores, present = self._step(tokens, position, padding, encoded, picked)
        return (scores, *(present[name] for name in self.history_sizes))

    def _step(
        self,
        tokens: Tensor,
        position: Tensor,
        padding: Tensor,
        encoded: Mapping[str, Tensor],
        past: Mapping[str, Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        histories = _Growing(past)
        encoder_padding = make_padding(padding, self.step.embedding.tokens.weight)
        features = self.step(tokens, position, histories, encoded, encoder_padding)
        return self.output(features), histories.present


class _Growing:
    """Histories in tensors from outside: those of ``past`` are extended into ``present``, not in place."""

    def __init__(self, past: Mapping[str, Tensor]) -> None:
        self._past = past
        self.present: dict[str, Tensor] = {}

    def extend(self, name: str, new: Tensor) -> Tensor:
        """See ``LayerCache.extend``."""
        self.present[name] = torch.cat([self._past[name], new], dim=1) if name in self._past else new
        return self.present[name]


class _OutputLayer(nn.Module):
    """States (R, C) to log-probabilities of the target dictionary (R, V)."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.adaptive = _copy(decoder.adaptive_softmax)
        self.output = None if self.adaptive is not None else _copy(decoder.output_projection)

    def forward(self, x: Tensor) -> Tensor:
        if self.output is None:
            assert self.adaptive is not None
            scores: Tensor = self.adaptive.get_log_prob(x.unsqueeze(1), target=None).squeeze(1)
            return scores
        return torch.log_softmax(self.output(x), dim=-1)


class _FixedWindow(nn.Module):
    """A convolution of a step that is given as many positions as its kernel has: zeros before the first token.

    Positions before the sentence count as zero anyway, and so the graph does not depend on how many there are.
    """

    def __init__(self, conv: GatedConv) -> None:
        super().__init__()
        self.conv = conv
        self.size = max(conv.kernel_sizes)
        self.output_size, self.group, self.projections = conv.output_size, conv.group, conv.projections

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        name = self.projections[0].name
        window = F.pad(projected[name][:, -self.size :], (0, 0, self.size - 1, 0))[:, -self.size :]
        result: Tensor = self.conv({**projected, name: window}, context)
        return result


def _fix_windows(layers: nn.ModuleList) -> None:
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, GatedConv):
                window = _FixedWindow(child)
                if isinstance(module, nn.ModuleDict):
                    module[name] = window
                else:
                    setattr(module, name, window)


def _copy(module: Any) -> Any:
    """A copy in float32 on the CPU, outside training; None stays None."""
    return None if module is None else copy.deepcopy(module).float().cpu().eval()
