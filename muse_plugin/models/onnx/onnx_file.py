"""Writes the two graphs of a model as ONNX files: opset 17, standard operators only, checked by onnx's own checker."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from muse_plugin.models.onnx.graphs import EncoderGraph, StepGraph

OPSET = 17  # the first with layer norm as one operator
LARGEST_FILE = (1 << 31) - (1 << 20)  # bytes: a file of protobuf holds less than 2 GiB
SECOND_FILE_FROM = 1 << 10  # bytes of a tensor that moves to the second file where one is not enough
_SHARED_FROM = 1 << 10  # bytes of a constant that is stored by itself, once
ENCODER_NAME, STEP_NAME = "encoder.onnx", "decoder_step.onnx"


def write_encoder(graph: EncoderGraph, path: Path) -> None:
    """Writes the encoder: ``tokens`` to ``padding`` and ``graph.outputs``.

    Raises:
        ImportError: if the package onnx is missing.
        NotImplementedError: if a part of the model cannot be said in ONNX.
    """
    first = graph.padding_index + 1
    tokens = torch.tensor([[first, first + 1, first + 2, first, first], [graph.padding_index] * 2 + [first] * 3])
    axes = _name_source_axes(["tokens", "padding", *graph.outputs])
    model = _export(graph, (tokens,), ["tokens"], ["padding", *graph.outputs], axes)
    _save(model, path)


def write_step(graph: StepGraph, path: Path, all_words: bool = False) -> None:
    """Writes a step of the decoder.

    Inputs are ``tokens``, ``position``, ``order``, ``padding``, ``candidates`` (K, int64, shape (1,)), the encoder's
    tensors and histories; results ``scores`` and ``words`` (R, K), the best next tokens by log-probability, ``eos``
    (R,), that of the end of the sentence (index 2), and the histories, as ``new.NAME``.

    Args:
        graph: what is written.
        path: the file.
        all_words: the last result is ``log_probabilities`` (R, V) then, those of all words.

    Raises:
        ImportError: if the package onnx is missing.
        NotImplementedError: if a part of the model cannot be said in ONNX.
    """
    sentences, rows, past = 2, 6, 3
    state = [*graph.make_encoded(sentences, 5), *graph.make_histories(4, past)]
    padding = torch.zeros(sentences, 5, dtype=torch.bool)
    order = torch.tensor([0, 1, 2, 3, 3, 1])
    inputs = (torch.full((rows,), graph.first_position), torch.tensor(past), order, padding, *state)
    names = ["tokens", "position", "order", "padding", *graph.encoder_names, *graph.history_shapes]
    axes: dict[str, dict[int, str]] = {name: {0: "rows"} for name in ("tokens", "order", "log_probabilities")}
    axes |= _name_source_axes(["padding", *graph.encoder_names])
    axes |= {name: {0: "earlier_rows", 2: "past"} for name in graph.history_shapes}
    new = [f"new.{name}" for name in graph.history_shapes]
    axes |= {name: {0: "rows", 2: "length"} for name in new}
    model = _export(graph, inputs, names, ["log_probabilities", *new], axes)
    _add_choice(model, all_words)
    _save(model, path)


def _name_source_axes(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Of keys (B, H, D, S), values (B, H, S, D) and what has a number for each token, (B, S)."""
    places = {"encoder_key": 3, "encoder_value": 2}
    return {name: {0: "sentences", places.get(name.partition(".")[0], 1): "source_length"} for name in names}


def _export(
    graph: nn.Module,
    inputs: tuple[Tensor, ...],
    names: Sequence[str],
    outputs: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> Any:
    """Traces a graph; returns an ``onnx.ModelProto`` with its constants as named tensors, each stored once."""
    import onnx

    level = logging.getLogger("torch.onnx").level
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        # Tracing warns of every size that Python looks at; those are the same in all sentences, which tests show.
        warnings.simplefilter("ignore")
        path = Path(folder) / "traced.onnx"  # torch puts what is beyond 2 GiB next to it
        try:
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            torch.onnx.export(
                graph.eval(),
                inputs,
                str(path),
                input_names=list(names),
                output_names=list(outputs),
                dynamic_axes=axes,
                opset_version=OPSET,
                # The exporter by torch.export fixes a size where a slice may be shorter than asked for.
                dynamo=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = " ".join(str(error).split())[:200]
            raise NotImplementedError(
                f"ONNX graphs need parts that ONNX can say, but of this model torch {torch.__version__} says: "
                f"{reason}; translate by PyTorch."
            ) from error
        finally:
            logging.getLogger("torch.onnx").setLevel(level)
        model = onnx.load(str(path))
    _share_constants(model)
    return model


def _share_constants(model: Any) -> None:
    """Stores every large constant as a tensor of the graph, and equal ones once: embeddings are also output layers."""
    from onnx import numpy_helper

    graph = model.graph
    renamed: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        attribute = node.attribute[0]
        if attribute.name == "value" and len(attribute.t.raw_data) >= _SHARED_FROM:
            tensor = graph.initializer.add()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            graph.node.remove(node)
    for tensor in list(graph.initializer):
        content = numpy_helper.to_array(tensor)
        key = (tensor.data_type, *tensor.dims, hashlib.sha256(content.tobytes()).digest())
        if content.nbytes < _SHARED_FROM:
            continue
        if key in known:
            renamed[tensor.name] = known[key]
            graph.initializer.remove(tensor)
        else:
            known[key] = tensor.name
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)


def _add_choice(model: Any, all_words: bool) -> None:
    """Puts the best log-probabilities of each row, and that of the end of the sentence, before the results."""
    from onnx import TensorProto, helper

    graph = model.graph
    end = helper.make_tensor("index_of_eos", TensorProto.INT64, [], [2])
    graph.initializer.append(end)
    graph.input.append(helper.make_tensor_value_info("candidates", TensorProto.INT64, [1]))
    graph.node.extend(
        [
            helper.make_node("TopK", ["log_probabilities", "candidates"], ["scores", "words"], axis=1),
            helper.make_node("Gather", ["log_probabilities", "index_of_eos"], ["eos"], axis=1),
        ]
    )
    every, *histories = graph.output
    chosen = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", "candidates"]),
        helper.make_tensor_value_info("words", TensorProto.INT64, ["rows", "candidates"]),
        helper.make_tensor_value_info("eos", TensorProto.FLOAT, ["rows"]),
    ]
    del graph.output[:]
    graph.output.extend([*chosen, *histories, *([every] if all_words else [])])


def round_to_int8(source: Path, target: Path) -> None:
    """Writes a graph whose matrix products have 8-bit weights, one scale a column, and inputs rounded at run time.

    Raises:
        ImportError: if the package onnxruntime is missing.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it proposes a step that is for images
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / target.name
            quantize_dynamic(
                str(source),
                str(made),
                op_types_to_quantize=["MatMul", "Gemm"],
                weight_type=QuantType.QInt8,
                per_channel=True,
                extra_options={"MatMulConstBOnly": True},
                use_external_data_format=source.with_name(f"{source.name}.data").exists(),
            )
            model = onnx.load(str(made))
    finally:
        root.setLevel(level)
    _save(model, target)


def _save(model: Any, path: Path) -> None:
    """Writes a model, with its weights in a second file if they are too large for one, and checks it."""
    import onnx

    model.producer_name = "muse_plugin"
    # Protobuf cannot even count the bytes of a model that is too large for a file.
    is_large = sum(tensor.ByteSize() for tensor in model.graph.initializer) > LARGEST_FILE
    options = (
        {"save_as_external_data": True, "location": f"{path.name}.data", "size_threshold": SECOND_FILE_FROM}
        if is_large
        else {}
    )
    onnx.save_model(model, str(path), **options)
    onnx.checker.check_model(str(path), full_check=True)
