"""The inference back end onnxruntime: a trained model becomes two graphs in the place of its encoder and decoder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from muse_plugin.models.onnx.graph_search import search_by_graphs_
from muse_plugin.models.onnx.graphs import make_graphs
from muse_plugin.models.onnx.onnx_file import ENCODER_NAME, STEP_NAME, round_to_int8, write_encoder, write_step
from muse_plugin.models.onnx.sessions import ATTENTION, WAY_OUT, WHAT, OnnxDecoder, OnnxEncoder, check_place, refuse
from muse_plugin_command.flag_checks import check_packages


def run_in_onnxruntime_(model: Any, need_attn: bool = False, retain_dropout: bool = False) -> None:
    """Replaces the encoder and decoder of a model by ones that run in onnxruntime, on as many threads as PyTorch.

    Args:
        model: a translation model in evaluation mode; 8-bit weights if its flag ``int8_inference`` says so.
        need_attn: whether generation must return attention.
        retain_dropout: whether dropout must stay on.

    Raises:
        ImportError: if onnx or onnxruntime is missing.
        NotImplementedError: if the graphs cannot compute what is asked for.
    """
    check_packages(WHAT, "onnx", "onnxruntime", extra="export")
    if need_attn:
        raise refuse(ATTENTION)
    if retain_dropout:
        raise refuse("dropout (--retain-dropout)")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # or onnxruntime 1.29 and later report to their maker
    weight = next(model.parameters())
    check_place(weight)
    encoder, step = make_graphs(model)
    if model.decoder.adaptive_softmax is not None:
        raise NotImplementedError(
            f"{WHAT} takes models whose output layer is one matrix, but this one has an adaptive softmax; {WAY_OUT}."
        )
    with tempfile.TemporaryDirectory() as place:
        paths = [Path(place) / name for name in (ENCODER_NAME, STEP_NAME)]
        write_encoder(encoder, paths[0])
        write_step(step, paths[1], all_words=True)
        if getattr(model.decoder.cfg, "int8_inference", False):
            rounded = [path.with_name(f"int8_{path.name}") for path in paths]
            for path, target in zip(paths, rounded, strict=True):
                round_to_int8(path, target)
            paths = rounded
        model.encoder = OnnxEncoder(model.encoder, paths[0])
        model.decoder = OnnxDecoder(model.decoder, paths[1], step.history_shapes)
    model.eval()
    search_by_graphs_()
