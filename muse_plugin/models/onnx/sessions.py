"""Runs the encoder and each step of the decoder as one call to onnxruntime, within fairseq's search.

The graphs are those of ``muse-plugin export``, see ``graphs.py``. What a search remembers stays in onnxruntime's
tensors; rows are picked by the graph of the next step. ``graph_search.py`` is a shorter way for an ordinary search;
``back_end.py`` chooses them for a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from torch import Tensor

from muse_plugin.modules.layer_cache import group_rows

_STATE = "onnxruntime"
WHAT = "the inference back end onnxruntime"
WAY_OUT = "take the back end torch"
ATTENTION = "attention (--print-alignment, --replace-unk)"


def refuse(wanted: str) -> NotImplementedError:
    """The error for something that is no search."""
    return NotImplementedError(f"{WHAT} only searches, but was asked for {wanted}; {WAY_OUT}.")


def check_place(tensor: Tensor) -> None:
    """Raises NotImplementedError unless the graphs can compute with such tensors."""
    if tensor.device.type != "cpu" or tensor.dtype not in (torch.float32, torch.int64):
        raise NotImplementedError(
            f"{WHAT} computes in float32 on the CPU, but got {tensor.dtype} on {tensor.device}; add --cpu, leave out "
            f"--fp16 and the like, or {WAY_OUT}."
        )


class _Session:
    """A graph, ready to run; its file is not needed any more then.

    Attributes:
        graph: the session of onnxruntime.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
        self.graph = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self.graph.get_inputs()]
        self._outputs = [value.name for value in self.graph.get_outputs()]
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy

    def wrap(self, tensor: Tensor) -> Any:
        """A tensor as one of onnxruntime, in the same memory."""
        return self.value(tensor.contiguous().numpy())

    def __call__(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name; of what is known, the graph takes what it reads."""
        results = self.graph.run_with_ort_values(self._outputs, {name: known[name] for name in self._inputs})
        return dict(zip(self._outputs, results, strict=True))


class OnnxEncoder(FairseqEncoder):
    """Takes the place of an encoder: its results are what ``EncoderGraph``, written to a file, returns."""

    def __init__(self, encoder: Any, path: Path) -> None:
        super().__init__(encoder.dictionary)
        self._longest = encoder.max_positions()
        self.session = _Session(path)

    def forward(self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, **_: Any) -> dict[str, Any]:
        """Encodes sentences, shape (B, S)."""
        check_place(src_tokens)
        values = self.session({"tokens": self.session.wrap(src_tokens)})
        return {"values": values, "sentences": len(src_tokens), "rows_per_sentence": 1}

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Picks rows; see ``MuseEncoder.reorder_encoder_out``."""
        before = encoder_out["rows_per_sentence"]
        left, rows_per_sentence = group_rows(new_order, encoder_out["sentences"], before)
        encoder_out = {**encoder_out, "rows_per_sentence": rows_per_sentence}
        if left is not None:
            picked = {
                name: self.session.wrap(torch.from_numpy(value.numpy()).index_select(0, left))
                for name, value in encoder_out["values"].items()
            }
            encoder_out |= {"values": picked, "sentences": len(left)}
        return encoder_out

    def max_positions(self) -> int:
        """Of a source, in tokens."""
        return self._longest


@dataclass
class _State:
    """What a search remembers: histories by name, which of their rows continue (R,), and how long they are."""

    histories: dict[str, Any]
    order: Tensor
    length: int = 0


class OnnxDecoder(FairseqIncrementalDecoder):
    """Takes the place of a decoder in a search: steps through the target by ``StepGraph``, written to a file."""

    def __init__(self, decoder: Any, path: Path, history_shapes: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(decoder.dictionary)
        self._longest = decoder.max_positions()
        self.session = _Session(path)
        self.shapes = dict(history_shapes)

    def return_attention(self) -> None:
        """Raises NotImplementedError: the graph has no attention among its outputs."""
        raise refuse(ATTENTION)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[dict[str, Any]] = None,
        incremental_state: Optional[dict[str, Any]] = None,
        **_: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Scores the tokens that follow those that the state has not seen.

        Args:
            prev_output_tokens: all target tokens so far, shape (R, T_all).
            encoder_out: of ``OnnxEncoder``.
            incremental_state: of the search.

        Returns:
            Log-probabilities, shape (R, T, V), and a dict with "attn", a list of None.

        Raises:
            NotImplementedError: if the scores of whole sentences are asked for.
        """
        if incremental_state is None or encoder_out is None:
            raise refuse("the scores of given sentences (--score-reference)")
        wrap, rows = self.session.wrap, torch.arange(len(prev_output_tokens))
        state = incremental_state.get(_STATE)
        if state is None:
            state = _State(
                {name: wrap(torch.zeros(len(rows), heads, 0, width)) for name, (heads, width) in self.shapes.items()},
                rows,
            )
            incremental_state[_STATE] = state
        scores = []
        for position in range(state.length, prev_output_tokens.shape[1]):
            numbers = {
                "tokens": wrap(prev_output_tokens[:, position]),
                "order": wrap(state.order),
                "position": wrap(torch.tensor(position)),
                "candidates": wrap(torch.ones(1, dtype=torch.int64)),
            }
            results = self.session({**numbers, **encoder_out["values"], **state.histories})
            scores.append(torch.from_numpy(results["log_probabilities"].numpy()))
            state.histories, state.order = {name: results[f"new.{name}"] for name in self.shapes}, rows
        state.length = prev_output_tokens.shape[1]
        every = scores[0].unsqueeze(1) if len(scores) == 1 else torch.stack(scores, dim=1)
        return every, {"attn": [None]}

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Picks rows; the next step does it."""
        state = incremental_state.get(_STATE)
        if state is not None:
            state.order = state.order.index_select(0, new_order)

    def max_positions(self) -> int:
        """Of a target, in tokens."""
        return self._longest
