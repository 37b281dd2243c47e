"""Brings checkpoints of the MUSE authors' program (a fork of fairseq 0.6.2) into this plugin's format.

Both layouts are read: separate matrices per branch, and the "big matrix" layout of MUSE-simple with joined matrices.
The computed function stays the same; what the authors' program stores and never uses (a layer norm per decoder layer,
the gate of a single kernel) is dropped.
"""

import argparse
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import torch
from torch import Tensor

from muse_plugin.checkpoints.model_outline import check_model_fits
from muse_plugin.checkpoints.safe_loading import load_checkpoint, save_atomically
from muse_plugin_command.flag_checks import check_apart, check_target

SIDES = ("encoder", "decoder")
# Options that only the authors' program has; at least one tells its checkpoints from others.
_SIGNATURE_OPTIONS = ("combine", "bm", "attn_dynamic_type")
_KERNEL_OPTIONS = {0: "", 1: "kernel_size", 2: "attn_wide_kernels"}  # by attn_dynamic_type
_OPTIONAL_SIZES = ("layers", "embed_dim", "ffn_embed_dim")
# Options whose names and meanings did not change.
_SAME_OPTIONS = (
    "activation_fn dropout attention_dropout activation_dropout input_dropout adaptive_softmax_dropout "
    "adaptive_softmax_factor tie_adaptive_weights tie_adaptive_proj encoder_normalize_before decoder_normalize_before "
    "encoder_learned_pos decoder_learned_pos encoder_attention_heads decoder_attention_heads decoder_input_dim "
    "decoder_output_dim max_source_positions max_target_positions no_token_positional_embeddings share_all_embeddings "
    "share_decoder_input_output_embed source_lang target_lang left_pad_source left_pad_target data"
).split()
# Stored, but not needed here: rebuilt on load, or constructed by the authors' program and never used.
_UNUSED = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\._float_tensor)"
    r"|decoder\.layers\.\d+\.encoder_attn_layer_norm\.(weight|bias)"
)
# Parts around the layers that keep their names.
_SAME_NAMES = re.compile(
    r"(encoder|decoder)\.(embed_tokens\.weight|embed_positions\.weight|layer_norm\.(weight|bias))"
    r"|decoder\.(project_(in|out)_dim\.weight|adaptive_softmax\..+)"
)

Weights = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


def convert_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """Converts a loaded checkpoint of the authors' program.

    Args:
        state: has "args" (a Namespace with the authors' option names) and "model" (a state dict with their parameter
            names); other entries (optimiser, counters) are not carried over.

    Returns:
        A checkpoint that fairseq loads with ``--user-dir muse_plugin``: architecture ``muse`` or ``muse_simple``, sizes
        as found, ``--conv-padding leaky`` unless the authors' ``dynamic_padding`` was on.

    Raises:
        ValueError: if it is not a MUSE checkpoint of that program, uses an option without counterpart here, or if
            parameters are missing, unknown or of the wrong shape; all of them are listed.
    """
    args = _check_origin(state)
    weights: Weights = dict(state["model"])
    big_matrix = bool(getattr(args, "bm", 0))
    use_gate = bool(getattr(args, "dynamic_gate", 1))
    sizes = {side: _read_sizes(weights, args, side) for side in SIDES}
    _check_numbers(weights, args, sizes)
    _check_parameters(weights, args, sizes)

    converted = {name: tensor for name, tensor in weights.items() if _SAME_NAMES.fullmatch(name)}
    for side in SIDES:
        for number in range(sizes[side].layers):
            prefix = f"{side}.layers.{number}."
            part = {name[len(prefix) :]: tensor for name, tensor in weights.items() if name.startswith(prefix)}
            layer = _join_big_matrix(part, side) if big_matrix else _join_layer(part, side, use_gate)
            converted.update((prefix + name, tensor) for name, tensor in layer.items())
        converted[f"{side}.version"] = torch.tensor([3.0])
    flags = _flags(args, sizes)
    if flags.get("share_all_embeddings"):
        converted["decoder.embed_tokens.weight"] = converted["encoder.embed_tokens.weight"]
        flags["share_decoder_input_output_embed"] = True
    if "adaptive_softmax_cutoff" not in flags:
        shared = flags.get("share_decoder_input_output_embed")
        output = converted["decoder.embed_tokens.weight"] if shared else weights["decoder.embed_out"]
        converted["decoder.output_projection.weight"] = output
    _check_loads(converted, flags)
    return {
        "args": argparse.Namespace(**flags),
        "model": converted,
        "optimizer_history": [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "task_state": {},
        "last_optimizer_state": None,
    }


def _check_origin(state: dict[str, Any]) -> argparse.Namespace:
    args = state.get("args")
    if args is None or not any(hasattr(args, option) for option in _SIGNATURE_OPTIONS):
        arch = getattr(args, "arch", None)
        raise ValueError(
            f"convert needs a checkpoint of the MUSE authors' program, whose options include "
            f"{', '.join(_SIGNATURE_OPTIONS)}, but this one has none of them"
            + (f" (its architecture is {arch!r})" if arch else "")
            + "; checkpoints of this plugin and of current fairseq need no conversion."
        )
    faults = []
    if not getattr(args, "combine", 0) and not getattr(args, "bm", 0):
        faults.append("combine=0 with bm=0 (a layer whose parts run one after the other)")
    if getattr(args, "attn_dynamic_type", 0) and not getattr(args, "attn_dynamic_cat", 1):
        faults.append("attn_dynamic_cat=0 (attention and convolution share one output matrix)")
    kind = getattr(args, "attn_dynamic_type", 0)
    if kind not in _KERNEL_OPTIONS:
        faults.append(f"attn_dynamic_type={kind} (known are 0, 1 and 2)")
    elif kind and not getattr(args, _KERNEL_OPTIONS[kind], None):
        faults.append(f"attn_dynamic_type={kind} without {_KERNEL_OPTIONS[kind]}")
    faults += [f"no {side}_attention_heads" for side in SIDES if not hasattr(args, f"{side}_attention_heads")]
    if faults:
        raise ValueError(f"these settings have no counterpart in this plugin: {'; '.join(faults)}.")
    for name in (f"{side}_{size}" for side in SIDES for size in ("attention_heads", *_OPTIONAL_SIZES)):
        value = getattr(args, name, None)
        is_left_out = not value and not name.endswith("heads")
        if not is_left_out and not (type(value) is int and value > 0):
            raise ValueError(f"{name} must be a positive number, but is {str(value)[:60]}; the file is damaged.")
    return args


@dataclass(frozen=True)
class _Sizes:
    """Sizes of one side: from the options, or read off the parameters where an option is absent."""

    layers: int
    width: int
    hidden: int
    heads: int


def _read_sizes(weights: Weights, args: argparse.Namespace, side: str) -> _Sizes:
    def option(name: str, found: int) -> int:
        return int(getattr(args, f"{side}_{name}", None) or found)

    def rows(name: str) -> int:
        return weights[name].shape[0] if name in weights else 0

    numbers = [int(match[1]) for name in weights if (match := re.match(rf"{side}\.layers\.(\d+)\.", name))]
    prefix = f"{side}.layers.0."
    width = option("embed_dim", rows(f"{prefix}layer_norm.weight") or rows(f"{prefix}self_attn_layer_norm.weight"))
    if getattr(args, "bm", 0):
        folded = side == "decoder" and not getattr(args, "bm_fc3", 1)
        inner = "self_attn.fc1.weight" if side == "encoder" else "fc1.weight"
        hidden = rows(prefix + inner) - (4 if folded else 3) * width
    else:
        hidden = rows(f"{prefix}fc1.weight")
    layers = option("layers", max(numbers, default=0) + 1)
    return _Sizes(layers, width, option("ffn_embed_dim", hidden), getattr(args, f"{side}_attention_heads"))


def _check_numbers(weights: Weights, args: argparse.Namespace, sizes: dict[str, _Sizes]) -> None:
    """Refuses sizes that no number of parameters in the file stands for, before anything is listed for each."""
    kernels = len(_published_kernels(args))
    if kernels > len(weights):
        raise ValueError(f"a file must have at most as many kernels as parameters, but it has {kernels:,}.")
    for side in SIDES:
        if sizes[side].layers > len(weights):
            raise ValueError(
                f"a file must have at most as many layers as parameters, but {side} has {sizes[side].layers:,}."
            )


def _check_parameters(weights: Weights, args: argparse.Namespace, sizes: dict[str, _Sizes]) -> None:
    """Compares names and shapes in the file with those that its options imply."""
    expected: dict[str, Optional[tuple[int, ...]]] = {f"{side}.embed_tokens.weight": None for side in SIDES}
    expected["decoder.embed_out"] = None
    optional = {"decoder.embed_tokens.weight"} if getattr(args, "share_all_embeddings", False) else set()
    is_shared = optional or getattr(args, "share_decoder_input_output_embed", False)
    if is_shared or getattr(args, "adaptive_softmax_cutoff", None) is not None:
        optional.add("decoder.embed_out")
    shapes = _big_matrix_shapes if getattr(args, "bm", 0) else _separate_shapes
    for side in SIDES:
        for number in range(sizes[side].layers):
            for name, shape in shapes(args, side, sizes[side]).items():
                expected[f"{side}.layers.{number}.{name}"] = shape
    if len(_published_kernels(args)) < 2 or not getattr(args, "dynamic_gate", 1):
        optional |= {name for name in expected if name.endswith("dynamic_gate_para")}  # stored or not, it is not used
    missing = sorted(set(expected) - optional - set(weights))
    unknown = sorted(
        name for name in set(weights) - set(expected) if not (_UNUSED.fullmatch(name) or _SAME_NAMES.fullmatch(name))
    )
    misshapen = [
        f"{name} {tuple(weights[name].shape)} instead of {shape}"
        for name, shape in expected.items()
        if shape is not None and name in weights and tuple(weights[name].shape) != shape
    ]
    if missing or unknown or misshapen:
        raise ValueError(
            "the parameters do not fit the options of a MUSE checkpoint by the authors' program: "
            f"missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown) or 'none'}"
            + (f"; of the wrong shape {', '.join(misshapen)}." if misshapen else ".")
        )


def _linear(name: str, rows: int, columns: int, end: str = ".") -> Shapes:
    return {f"{name}{end}weight": (rows, columns), f"{name}{end}bias": (rows,)}


def _separate_shapes(args: argparse.Namespace, side: str, sizes: _Sizes) -> Shapes:
    """Names and shapes of a layer with a matrix for each part."""
    width, kernels = sizes.width, _published_kernels(args)
    blocks = 1 + (min(len(kernels), 1) if getattr(args, "dynamic_gate", 1) else len(kernels))
    shapes = {
        **_linear("self_attn.in_proj", 3 * width, width, "_"),
        **_linear("self_attn.out_proj", width, blocks * width),
        **_linear("fc1", sizes.hidden, width),
        **_linear("fc2", width, sizes.hidden),
        "self_attn_layer_norm.weight": (width,),
        "self_attn_layer_norm.bias": (width,),
    }
    if side == "decoder":
        shapes |= _linear("encoder_attn.in_proj", 3 * width, width, "_")
        shapes |= _linear("encoder_attn.out_proj", width, width)
    for number, kernel in enumerate(kernels):
        shapes[f"self_attn.dynamics.{number}.weight_linear.weight"] = (sizes.heads * kernel, width)
    return shapes | ({"self_attn.dynamic_gate_para": (len(kernels),)} if kernels else {})


def _big_matrix_shapes(args: argparse.Namespace, side: str, sizes: _Sizes) -> Shapes:
    """Names and shapes of a layer with joined matrices."""
    width, hidden = sizes.width, sizes.hidden
    norm: Shapes = {"layer_norm.weight": (width,), "layer_norm.bias": (width,)}
    if side == "encoder":
        inner = _linear("self_attn.fc1", 3 * width + hidden, width)
        return norm | inner | _linear("self_attn.fc2", width, width + hidden)
    own_query, own_output = getattr(args, "bm_fc3", 1), getattr(args, "bm_fc4", 1)
    shapes = norm | _linear("fc1", (3 if own_query else 4) * width + hidden, width)
    shapes |= _linear("fc2", width, (1 if own_output else 2) * width + hidden)
    shapes |= _linear("encoder_attn.kv_fc", 2 * width, width)
    for name, own in (("fc3", own_query), ("fc4", own_output)):
        shapes |= _linear(name, width, width) if own else {}
    return shapes


def _published_kernels(args: argparse.Namespace) -> list[int]:
    """Kernel sizes by the authors' options: type 1 is ``kernel_size``, type 2 the list ``attn_wide_kernels``."""
    kind = getattr(args, "attn_dynamic_type", 0)
    return [int(size) for size in re.findall(r"\d+", str(getattr(args, _KERNEL_OPTIONS[kind])))] if kind else []


def _join_big_matrix(part: Weights, side: str) -> Weights:
    """Brings a layer of the big-matrix layout into the parallel layer's parameters, whose matrices are joined as well.

    Rows: W^Q, W^K, W^V, cross-attention's query (fc3 if it is apart), W_1. Columns: W^O, cross-attention's output (fc4
    if it is apart), W_2. The joined output has one bias.
    """
    width = part["layer_norm.weight"].shape[0]
    inner, outer = ("self_attn.fc1", "self_attn.fc2") if side == "encoder" else ("fc1", "fc2")
    layer: Weights = {}
    for kind in ("weight", "bias"):
        rows = part[f"{inner}.{kind}"]
        if f"fc3.{kind}" in part:
            rows = torch.cat([rows[: 3 * width], part[f"fc3.{kind}"], rows[3 * width :]])
        layer[f"in_proj_{kind}"] = rows
        layer[f"layer_norm.{kind}"] = part[f"layer_norm.{kind}"]
        if side == "decoder":
            layer[f"branches.cross_attention.key_value_proj.{kind}"] = part[f"encoder_attn.kv_fc.{kind}"]
    columns, bias = part[f"{outer}.weight"], part[f"{outer}.bias"]
    if "fc4.weight" in part:
        columns = torch.cat([columns[:, :width], part["fc4.weight"], columns[:, width:]], dim=1)
    layer["out_proj_weight"] = columns
    zeros = torch.zeros_like(bias)
    layer["out_proj_bias"] = torch.stack([bias, *([part.get("fc4.bias", zeros)] if side == "decoder" else []), zeros])
    return layer


def _join_layer(part: Weights, side: str, use_gate: bool) -> Weights:
    """Joins a layer of the separate layout into the parallel layer's parameters."""
    width = part["self_attn_layer_norm.weight"].shape[0]
    layer: Weights = {}
    for kind in ("weight", "bias"):
        rows = [part[f"self_attn.in_proj_{kind}"], part[f"fc1.{kind}"]]
        if side == "decoder":
            query, key_value = part[f"encoder_attn.in_proj_{kind}"].split([width, 2 * width])
            rows.insert(1, query)
            # A slice would be saved with all of its matrix.
            layer[f"branches.cross_attention.key_value_proj.{kind}"] = key_value.clone()
        layer[f"in_proj_{kind}"] = torch.cat(rows)
        layer[f"layer_norm.{kind}"] = part[f"self_attn_layer_norm.{kind}"]
    outputs = ["self_attn.out_proj", *(["encoder_attn.out_proj"] if side == "decoder" else []), "fc2"]
    layer["out_proj_weight"] = torch.cat([part[f"{name}.weight"] for name in outputs], dim=1)
    layer["out_proj_bias"] = torch.stack([part[f"{name}.bias"] for name in outputs])
    kernels = [name for name in part if name.startswith("self_attn.dynamics.")]
    if kernels:
        kernels.sort(key=lambda name: int(name.split(".")[2]))
        layer["branches.conv.kernel_weight"] = torch.cat([part[name] for name in kernels])
    if use_gate and len(kernels) > 1:
        layer["branches.conv.gate"] = part["self_attn.dynamic_gate_para"]
    return layer


def _flags(args: argparse.Namespace, sizes: dict[str, _Sizes]) -> dict[str, Any]:
    """Our flags: sizes as found in the file, the rest from the authors' options."""
    flags: dict[str, Any] = {name: getattr(args, name) for name in _SAME_OPTIONS if hasattr(args, name)}
    if hasattr(args, "relu_dropout"):
        flags.setdefault("activation_dropout", args.relu_dropout)
    cutoff = getattr(args, "adaptive_softmax_cutoff", None)
    if cutoff is not None:
        flags["adaptive_softmax_cutoff"] = cutoff if isinstance(cutoff, str) else ",".join(map(str, cutoff))
    kernels = _published_kernels(args)
    for side in SIDES:
        flags[f"{side}_layers"] = sizes[side].layers
        flags[f"{side}_embed_dim"] = sizes[side].width
        flags[f"{side}_ffn_embed_dim"] = sizes[side].hidden
        branches = ("self_attention", kernels and "conv", side == "decoder" and "cross_attention", "ffn")
        flags[f"{side}_branches"] = ",".join(filter(None, branches))
        if kernels:
            flags[f"{side}_kernel_sizes"] = ",".join(map(str, kernels))
    if kernels:
        flags["no_conv_gate"] = not getattr(args, "dynamic_gate", 1)
        flags["conv_padding"] = "masked" if getattr(args, "dynamic_padding", 0) else "leaky"
        flags["weight_dropout"] = 0.1  # whatever --weight-dropout said: the authors' program always uses 0.1
    flags["arch"] = "muse" if kernels else "muse_simple"
    flags["task"] = "translation"
    return flags


def _check_loads(converted: Weights, flags: dict[str, Any]) -> None:
    """Compares the result with a model of the flags' sizes, so that a wrong shape is found now and named."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    source, target = (_Symbols(range(len(converted[f"{side}.embed_tokens.weight"]))) for side in SIDES)
    if flags.get("share_all_embeddings"):
        target = source
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    try:
        check_model_fits(
            "the checkpoint",
            converted,
            flags,
            lambda: ARCH_MODEL_REGISTRY[flags["arch"]].build_model(argparse.Namespace(**flags), task),
        )
    except RuntimeError as error:
        raise ValueError(f"the parameters have shapes that do not fit together: {error}") from None


class _Symbols(tuple):
    """As much of a fairseq dictionary as building a model needs: its size and the index of padding."""

    def pad(self) -> int:
        return 1


def run(args: argparse.Namespace) -> int:
    """Runs ``muse-plugin convert``: reads safely, converts, writes atomically."""
    check_target(args.output, "OUT.pt")
    check_apart(args.output, args.input, flag="OUT.pt")
    converted = convert_checkpoint(load_checkpoint(args.input))
    save_atomically(converted, args.output)
    flags = converted["args"]
    distinct = {id(tensor): tensor for name, tensor in converted["model"].items() if not name.endswith(".version")}
    parameters = sum(tensor.numel() for tensor in distinct.values())
    print(
        f"wrote {args.output}: {flags.arch}, {flags.encoder_layers}+{flags.decoder_layers} layers, "
        f"width {flags.encoder_embed_dim}, {parameters:,} parameters"
        + (f", --conv-padding {flags.conv_padding}" if flags.arch == "muse" else "")
    )
    return 0
