"""Step-by-step decoding with tensors that never change their shapes, so that a GPU replays a step as one CUDA graph.

A step of a small model is hundreds of short kernels, and starting each from Python takes longer than running it; a
graph starts all at once. It is captured for a number of sentences, a beam, and a capacity of histories and sources.
All but the beam is rounded up, so that few graphs serve all batches; what is left over holds nothing of worth.

``MuseDecoder`` asks ``StaticSteps.start`` for a search and steps as it is written where the answer is None. Everything
here also runs on a CPU, without graphs.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from muse_plugin.models.decoder_step import DecoderStep, find_cross_attention
from muse_plugin.modules.attention import padding_bias
from muse_plugin.modules.layer_cache import BLOCK, LayerCache
from muse_plugin.modules.padding_mask import Padding
from muse_plugin.modules.parallel_layer import ParallelLayer
from muse_plugin.modules.static_histories import StaticHistories

logger = logging.getLogger(__name__)

# Source positions are rounded up to a multiple of this.
_SOURCE_BLOCK = 32
# Steps that were not used for longest are dropped when the buffers of all hold more bytes than this.
_MOST_BYTES = 2 << 30
# Runs before the capture: kernels are compiled and chosen, and buffers made.
_WARMUPS = 2


class Sizes(NamedTuple):
    """What a step is made for.

    Attributes:
        sentences: a power of two.
        beam: hypotheses of each.
        capacity: target positions: ``BLOCK`` times a power of two.
        source: source positions, a multiple of 32.
    """

    sentences: int
    beam: int
    capacity: int
    source: int


def _round_up(number: int, least: int = 1) -> int:
    """``least`` times the smallest power of two that is enough."""
    return least << max(0, (number - 1) // least).bit_length()


def _captures(device: torch.device) -> bool:
    return device.type == "cuda"


class StaticStep:
    """A step with all that it reads and writes, at fixed addresses.

    Args:
        step: of the decoder.
        sizes: see ``Sizes``.
        encoded: keys and values of the encoder, whose names, widths and dtype count.
    """

    def __init__(self, step: DecoderStep, sizes: Sizes, encoded: Mapping[str, Tensor]) -> None:
        self._step = step
        like = next(iter(encoded.values()))
        rows, device = sizes.sentences * sizes.beam, like.device
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        self.histories = StaticHistories(rows, sizes.capacity, device)
        self.encoded = {name: x.new_zeros(sizes.sentences, sizes.source, x.shape[2]) for name, x in encoded.items()}
        mask = torch.zeros(sizes.sentences, sizes.source, dtype=torch.bool, device=device)
        self._encoder_padding = Padding(mask, padding_bias(mask, like.dtype))
        self._lengths = torch.ones(1, dtype=torch.int64, device=device)  # no window of a decoder depends on them
        self._graph: torch.cuda.CUDAGraph | None = None
        self._features: Tensor | None = None
        self._user: weakref.ref[StaticSearch] | None = None
        self._thread = 0

    @property
    def bytes(self) -> int:
        """Of all buffers."""
        return self.histories.bytes + sum(x.numel() * x.element_size() for x in self.encoded.values())

    def take(self, search: StaticSearch) -> bool:
        """Hands the step to a search; another one of this thread continues elsewhere. Whether that was possible."""
        before, thread = None if self._user is None else self._user(), threading.get_ident()
        if before is not None:
            if self._thread != thread:
                return False
            before.put_away()
        self._user, self._thread = weakref.ref(search), thread
        return True

    def release(self) -> None:
        """The search is done with the step."""
        self._user = None

    def load_encoder(self, encoded: Mapping[str, Tensor], mask: Tensor) -> None:
        """Copies keys and values of at most as many sentences, each (N, S, C), and where they are padding, (N, S)."""
        own = self._encoder_padding
        own.mask.fill_(True)
        own.mask[: mask.shape[0], : mask.shape[1]] = mask
        own.bias.copy_(padding_bias(own.mask, own.bias.dtype))
        for name, x in encoded.items():
            self.encoded[name][: x.shape[0], : x.shape[1]] = x

    def compute(self) -> Tensor:
        """The state of the next token of each row, shape (R, C); the histories hold the last one then."""
        before = self.histories.advance()
        bias = padding_bias(before, self._encoder_padding.bias.dtype)
        padding = Padding(before.expand(self.histories.rows, -1), bias)
        position = self.histories.slot - 1
        features = self._step(
            self.tokens, position, self.histories, self.encoded, self._encoder_padding, padding, self._lengths
        )
        if self._features is None:
            self._features = torch.empty_like(features)
        self._features.copy_(features)  # a graph's own tensors may be those of another one, too
        return self._features

    def capture(self, pool: Any) -> None:
        """Makes the graph; buffers then hold anything, until ``StaticHistories.load``.

        Args:
            pool: of memory, shared by graphs that never run at the same time.
        """
        with torch.cuda.device(self.tokens.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARMUPS):
                    self.compute()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads, which load data, may continue.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                self.compute()
        self._graph = graph

    def run(self, tokens: Tensor) -> Tensor:
        """Computes the step for the first rows, tokens of shape (rows,); returns (rows, C), a copy."""
        self.tokens[: len(tokens)] = tokens
        if self._graph is None:
            return self.compute()[: len(tokens)].clone()
        self._graph.replay()
        assert self._features is not None
        return self._features[: len(tokens)].clone()


class StaticSteps:
    """The steps of a decoder that were made so far; part of its form for inference.

    Args:
        mode: "auto": on a GPU, "always" or "never".

    Attributes:
        captured: number of graphs that were captured.
    """

    def __init__(self, mode: str) -> None:
        self.captured = 0
        self._mode = mode
        self._step: DecoderStep | None = None
        self._kept: dict[Sizes, StaticStep] = {}  # the one used last at the end
        self._pool: Any = None
        self._has_failed = False

    def start(
        self, decoder: Any, encoder_states: Tensor | None, encoder_mask: Tensor | None, rows: int
    ) -> StaticSearch | None:
        """Starts a search.

        Args:
            decoder: in evaluation mode.
            encoder_states: shape (S, N, C).
            encoder_mask: bool, shape (N, S), true at padding; None for none.
            rows: hypotheses, a multiple of N.

        Returns:
            None where the ordinary step is to be taken: on a CPU unless it is asked for, where dropout stays on, where
            a gradient is wanted, under autocast, and without an encoder.
        """
        if encoder_states is None or self._mode == "never" or self._has_failed or torch.is_grad_enabled():
            return None
        device = encoder_states.device
        if torch.is_autocast_enabled(device.type) or not (device.type == "cuda" or self._mode == "always"):
            return None
        sentences = encoder_states.shape[1]
        if sentences == 0 or rows == 0 or rows % sentences != 0:
            return None
        layers = [module for module in decoder.layers.modules() if isinstance(module, ParallelLayer)]
        if decoder.dropout_module.apply_during_inference or any(layer.packed is None for layer in layers):
            return None
        branches = dict(find_cross_attention(decoder.layers))
        if not branches:
            return None
        if self._step is None:
            self._step = DecoderStep(decoder)
        encoded = {}
        for name, branch in branches.items():
            key, value = branch.key_value_proj(encoder_states).transpose(0, 1).chunk(2, dim=-1)
            encoded[f"encoder_key.{name}"], encoded[f"encoder_value.{name}"] = key, value
        if encoder_mask is None:
            encoder_mask = torch.zeros(sentences, encoder_states.shape[0], dtype=torch.bool, device=device)
        return StaticSearch(self, encoded, encoder_mask, rows // sentences)

    @property
    def longest(self) -> int | None:
        """How many positions a target can have; None for any number."""
        assert self._step is not None
        positions = self._step.embedding.positions
        return None if positions is None else len(positions) - self._step.first_position

    def find(self, sizes: Sizes, encoded: Mapping[str, Tensor], search: StaticSearch) -> StaticStep | None:
        """The step of these sizes for a search; None if it cannot be had."""
        assert self._step is not None
        step = self._kept.pop(sizes, None)
        if step is None:
            step = StaticStep(self._step, sizes, encoded)
            if _captures(step.tokens.device) and not self._capture(step):
                return None
        self._kept[sizes] = step
        while len(self._kept) > 1 and sum(own.bytes for own in self._kept.values()) > _MOST_BYTES:
            self._kept.pop(next(iter(self._kept)))
        return step if step.take(search) else None

    def _capture(self, step: StaticStep) -> bool:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            step.capture(self._pool)
        except RuntimeError as error:  # out of memory, or a library that no graph can hold
            self._has_failed = True
            reason = str(error).partition("\n")[0]
            logger.warning(f"no CUDA graph could be captured, so decoding continues without: {reason}")
            return False
        self.captured += 1
        return True


class StaticSearch:
    """The state of one search: where it is, and what it needs to continue in another step or without one.

    Args:
        steps: of the decoder.
        encoded: keys and values, see ``NamedCache``.
        mask: bool, shape (sentences, S), true where they are padding.
        beam: hypotheses of each sentence.
    """

    def __init__(self, steps: StaticSteps, encoded: Mapping[str, Tensor], mask: Tensor, beam: int) -> None:
        self.beam, self.length = beam, 0
        self._steps, self._encoded, self._mask = steps, dict(encoded), mask
        self._sizes = Sizes(0, beam, 0, 0)
        self._step: StaticStep | None = None
        self._past: dict[str, Tensor] = {}  # while no step has it

    @property
    def rows(self) -> int:
        """Number of hypotheses."""
        return self._mask.shape[0] * self.beam

    @torch.inference_mode(False)  # buffers outlive a caller's inference mode
    @torch.no_grad()
    def advance(self, tokens: Tensor) -> Tensor | None:
        """Takes a step.

        Args:
            tokens: the last token of each hypothesis, shape (rows,).

        Returns:
            States, shape (rows, C); None, and nothing has changed, if the search has to continue by ``leave``.
        """
        longest = self._steps.longest
        if longest is not None and self.length >= longest:
            return None
        sentences, capacity = _round_up(self._mask.shape[0]), _round_up(self.length + 1, BLOCK)
        source = -(-self._mask.shape[1] // _SOURCE_BLOCK) * _SOURCE_BLOCK
        sizes = Sizes(sentences, self.beam, capacity, source)
        if self._step is None or sizes != self._sizes:
            self.put_away()
            step = self._steps.find(sizes, self._encoded, self)
            if step is None:
                return None
            step.load_encoder(self._encoded, self._mask)
            step.histories.load(self._past, self.length)
            self._step, self._sizes, self._past = step, sizes, {}
        features = self._step.run(tokens)
        self.length += 1
        return features

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Picks rows, see ``LayerCache.reorder``; each sentence that is left keeps its number of them."""
        if self._step is not None:
            self._step.histories.reorder(rows)
        else:
            self._past = {name: past.index_select(1, rows) for name, past in self._past.items()}
        if sentences is not None:
            self._encoded = {name: x.index_select(0, sentences) for name, x in self._encoded.items()}
            self._mask = self._mask.index_select(0, sentences)
            if self._step is not None:
                self._step.load_encoder(self._encoded, self._mask)

    def put_away(self) -> None:
        """Takes the state out of the step, which another search or size is to have."""
        if self._step is not None:
            self._past = self._step.histories.read(self.length, self.rows)
            self._step.release()
            self._step = None

    def leave(self, layers: nn.ModuleList) -> list[LayerCache]:
        """The state as the ordinary step keeps it, one cache a layer."""
        self.put_away()
        caches = [LayerCache() for _ in layers]
        for name, key in self._encoded.items():
            kind, _, path = name.partition(".")
            if kind == "encoder_key":
                _find_cache(caches, path).encoder_key_value = key, self._encoded[f"encoder_value.{path}"]
        for name, past in self._past.items():
            path, _, part = name.rpartition(".")
            _find_cache(caches, path).extend(part, past.transpose(0, 1))
        return caches


def _find_cache(caches: list[LayerCache], path: str) -> LayerCache:
    """The cache of "layer" or "layer.stage"."""
    number, _, stage = path.partition(".")
    return caches[int(number)].stage(int(stage)) if stage else caches[int(number)]
