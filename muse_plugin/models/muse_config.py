"""Flags of MUSE and MUSE-simple. Checks are in ``muse_faults.py``, named sizes in ``presets.py``.

Flat on purpose: fairseq's hydra front end cannot take nested model configs from the command line. ``layer_plans`` and
``transformer_config`` turn the flags into what the layers and fairseq's base classes want.
"""

import ast
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP, TransformerConfig
from omegaconf import DictConfig, OmegaConf

from muse_plugin.contracts.flag import (
    config_of_side,
    fault_of,
    flag,
    naming,
    nonnegative,
    rate,
    size,
)
from muse_plugin.models.attention_bias_flags import (
    DecoderAttentionBiasFlags,
    EncoderAttentionBiasFlags,
    plan_biases,
    pruned_bias_flags,
)
from muse_plugin.models.encoder_layers import (
    ENCODER_LAYERS,
    PARALLEL,
    find_layer_type,
)
from muse_plugin.models.layer_builder import LayerPlan, branch_names
from muse_plugin.models.layer_numbers import parse_layer_numbers
from muse_plugin.modules.gated_conv import check_kernel_sizes
from muse_plugin.ops.dynamic_conv import BACKENDS
from muse_plugin_command.flags.translate import INFERENCE_BACKENDS

FAIRSEQ = "fairseq"
DECODER_LAYERS = (PARALLEL, FAIRSEQ)
CONV_TYPES = ("dynamic", "lightweight", "depthwise", "standard")
# By the value of --encoder-ffn-projection: the slice that the feed-forward branch reads; None for its own.
FFN_PROJECTIONS = {"own": None, "shared": "value", "conv": "conv_value"}
KERNEL_BRANCHES = {"conv", "long_short_range"}

_BRANCHES_HELP = (
    "parallel branches of a layer, comma-separated, out of {}; without conv it is MUSE-simple. Branches after a slash "
    "read the normalised sum of those before it: self_attention/ffn is the Transformer's layer"
)
_CONV_TYPE_HELP = (
    "where kernels come from: dynamic (predicted per position and head), lightweight (one softmax kernel per head), "
    "depthwise (one free kernel per channel), standard (ordinary convolution over all channels)"
)
_CONV_PROJECTION_HELP = (
    "shared: the convolution reads self-attention's values; separate: it has a projection of its own"
)
_ENCODER_LAYER_HELP = (
    "what the encoder's layers are: parallel (the branches of --encoder-branches), multi_scale (the Multi-Scale "
    "Transformer's: attention, ReLU, no feed-forward network; see --encoder-attention-bias), distance (the "
    "Distance-based Self-Attention Network's: both directions with parameters of their own; see "
    "--encoder-distance-alpha)"
)
_POSITIONS_HELP = (
    "embedded: the encoder adds positions to its input, see --encoder-learned-pos; none: it does not, as published for "
    "the other types of --encoder-layer-type; the decoder keeps its own"
)
_DECODER_LAYER_HELP = (
    "what the decoder is: parallel (layers of --decoder-branches), fairseq (fairseq's own Transformer decoder)"
)
_FFN_PROJECTION_HELP = (
    "own: W_1 as published; shared: the hidden layer is the activation of self-attention's values; conv: of what a "
    "convolution with a separate projection reads, while self-attention keeps its values (Table 7)"
)

EMBEDDING_WIDTH = "a translation model embeds words in the width of its layers"


def _layer_flags(side: str, branches: str) -> type:
    """A config with the flags of the layers of one side."""
    odd, a_layer = (" (odd)", "an encoder layer") if side == "encoder" else ("", "a decoder layer")
    kernels = (
        f"kernel sizes in tokens{odd}: one comma-separated list for all layers, e.g. 3,15, or one list per layer, e.g. "
        "'[[3],[7],[15]]'"
    )
    flags: list[tuple[str, Any, Any]] = [
        ("embed_path", Optional[str], flag(None, f"path to pre-trained {side} embeddings")),
        ("embed_dim", int, size(384, f"width of the {side}, in channels")),
    ]
    if side == "decoder":
        before_softmax = "width before the softmax (default: --decoder-embed-dim)"
        flags += [
            ("input_dim", Optional[int], flag(None, f"refused unless --decoder-embed-dim: {EMBEDDING_WIDTH}")),
            ("output_dim", Optional[int], size(None, before_softmax)),
        ]
    flags += [
        ("ffn_embed_dim", int, size(768, f"hidden width of the {side}'s feed-forward branch, in channels")),
        ("layers", int, size(12, f"number of {side} layers")),
        ("attention_heads", int, flag(4, f"number of attention heads of {a_layer}")),
        ("normalize_before", bool, flag(False, "layer norm before the branches instead of after the residual sum")),
        ("learned_pos", bool, flag(False, f"learn the {side}'s position embeddings instead of using sinusoids")),
        ("layerdrop", float, rate(0.0, f"LayerDrop probability of the {side}")),
        ("layers_to_keep", Optional[str], flag(None, f"{side} layers to keep when pruning, comma-separated")),
        ("branches", str, flag(branches, _BRANCHES_HELP.format(", ".join(branch_names(side))))),
        ("kernel_sizes", str, flag("3,15", kernels)),
        ("conv_type", ChoiceEnum(list(CONV_TYPES)), flag("dynamic", _CONV_TYPE_HELP)),
        ("conv_heads", Optional[int], flag(None, f"kernels per position (default: --{side}-attention-heads)")),
        ("conv_projection", ChoiceEnum(["shared", "separate"]), flag("shared", _CONV_PROJECTION_HELP)),
        ("ffn_projection", ChoiceEnum(list(FFN_PROJECTIONS)), flag("own", _FFN_PROJECTION_HELP)),
    ]
    if side == "encoder":
        head = "width of a head of --encoder-layer-type multi_scale (default: --encoder-embed-dim divided by the heads)"
        flags += [
            ("layer_type", ChoiceEnum(list(ENCODER_LAYERS)), flag(PARALLEL, _ENCODER_LAYER_HELP)),
            ("head_dim", Optional[int], flag(None, head)),
            ("positions", ChoiceEnum(["embedded", "none"]), flag("embedded", _POSITIONS_HELP)),
        ]
    else:
        flags.append(("layer_type", ChoiceEnum(list(DECODER_LAYERS)), flag(PARALLEL, _DECODER_LAYER_HELP)))
    return config_of_side(__name__, side, "LayerFlags", flags)


EncoderLayerFlags = _layer_flags("encoder", "self_attention,conv,ffn")
DecoderLayerFlags = _layer_flags("decoder", "self_attention,conv,cross_attention,ffn")


@dataclass
class DropoutFlags(FairseqDataclass):
    """Flags of what both sides drop in training."""

    activation_fn: ChoiceEnum(utils.get_available_activation_fns()) = flag(
        "relu", "activation function of the feed-forward branch"
    )
    dropout: float = rate(0.1, "probability of dropping a channel of the embedded input, and see --branch-dropout")
    attention_dropout: float = rate(0.0, "probability of dropping an attention weight")
    activation_dropout: float = rate(
        0.0, "probability of dropping a hidden unit of the feed-forward branch", alias="--relu-dropout"
    )
    branch_dropout: Optional[float] = rate(
        None, "probability of dropping a channel of a branch's output before the residual sum (default: --dropout)"
    )
    input_dropout: float = rate(
        0.0, "probability of dropping a channel of what self-attention and convolution read, not the other branches"
    )
    weight_dropout: float = rate(0.1, "probability of dropping a convolution kernel's weight (published: always 0.1)")


CONV_BACKEND_HELP = (
    "what computes dynamic and lightweight convolutions; auto: on a GPU triton where it is installed, then "
    "fairseq_cuda where scripts/build_lightconv.sh has built it, then band or reference (the order was not measured on "
    "a GPU); on a CPU taps or band. In evaluation, auto takes the place of one that cannot run there; for a trained "
    "model: --model-overrides \"{'model': {'conv_backend': 'triton'}}\""
)
MERGED_EMBEDDINGS = (
    "fairseq merges the dictionaries when the data are binarised already, so that target words would get vectors of "
    "other words"
)
ADAPTIVE_INPUTS = "it ties an adaptive softmax to adaptive inputs, which a translation model does not have"
QUANT_NOISE = "the matrices of all branches of a layer are slices of one parameter, which has no blocks to quantise"


@dataclass
class MuseConfig(
    DecoderLayerFlags, EncoderLayerFlags, DropoutFlags, DecoderAttentionBiasFlags, EncoderAttentionBiasFlags
):
    """Flags of MUSE (arXiv:1911.09483). Defaults: the base setting, without the recipes' dropout."""

    no_conv_gate: bool = flag(
        False, "do not mix kernel sizes by a learned gate: their results are concatenated before the output matrix"
    )
    conv_padding: ChoiceEnum(["masked", "leaky"]) = flag(
        "masked",
        "masked: values at padding count as zero for the convolution; leaky: as in the published program, where a "
        "sentence's result depends on its batch",
    )

    input_init: Optional[float] = nonnegative(
        None,
        "A of sqrt(6 / ((1 + A) x inputs)), the bound of a layer's input matrix before training (default: 5, as "
        "PyTorch's); the published speed model has 3",
    )
    output_init: Optional[float] = nonnegative(
        None,
        "A of the same for the output matrix, all branches but cross-attention together (default: for each on its own, "
        "1 after attention and convolution, 5 after the feed-forward branch); the published speed model has 0",
    )
    conv_backend: ChoiceEnum(list(BACKENDS)) = flag("auto", CONV_BACKEND_HELP)
    int8_inference: bool = flag(
        False,
        "generate with weights rounded to 8 bits, on the CPU; training is not affected. For a trained model: "
        "--model-overrides \"{'model': {'int8_inference': True}}\"",
    )
    inference_backend: ChoiceEnum(list(INFERENCE_BACKENDS)) = flag(
        "torch",
        "what generates, on the CPU: torch, or onnxruntime, which takes each step of the search as one call. For a "
        "trained model: --model-overrides \"{'model': {'inference_backend': 'onnxruntime'}}\"",
    )
    static_decoding: ChoiceEnum(["auto", "always", "never"]) = flag(
        "auto",
        "generate in steps whose tensors never change their shape, as CUDA graphs on a GPU; auto: on a GPU only. For a "
        "trained model: --model-overrides \"{'model': {'static_decoding': 'never'}}\"",
    )

    max_source_positions: int = size(1024, "maximum source length in tokens")
    max_target_positions: int = size(1024, "maximum target length in tokens")
    share_decoder_input_output_embed: bool = flag(False, "share the decoder's input and output embeddings")
    share_all_embeddings: bool = flag(
        False, "share encoder, decoder and output embeddings (needs a joined dictionary: --joined-dictionary)"
    )
    merge_src_tgt_embed: bool = flag(False, f"refused: {MERGED_EMBEDDINGS}")
    no_token_positional_embeddings: bool = flag(False, "no positions at all")
    no_decoder_final_norm: bool = flag(
        False, "with --decoder-normalize-before: no layer norm between the last layer and the output layer"
    )
    alignment_layer: Optional[int] = flag(
        None,
        "decoder layer whose cross-attention --print-alignment reads and --load-alignments supervises, counted from 0 "
        "(default: the last)",
    )
    alignment_heads: Optional[int] = flag(
        None, "heads of --alignment-layer that are averaged for this, from the first (default: all)"
    )
    quant_noise_pq: float = flag(0.0, f"refused unless 0: {QUANT_NOISE}")
    quant_noise_scalar: float = flag(0.0, f"refused unless 0: {QUANT_NOISE}")
    layernorm_embedding: bool = flag(False, "layer norm on the embedded input")
    no_scale_embedding: bool = flag(False, "do not multiply embeddings by the square root of the width")
    adaptive_softmax_cutoff: Optional[str] = flag(
        None, "comma-separated cut-off points of the adaptive softmax; use with --criterion adaptive_loss"
    )
    adaptive_softmax_dropout: float = rate(0.0, "dropout of the adaptive softmax's tail projections")
    adaptive_softmax_factor: float = flag(4, "shrink factor of the adaptive softmax's tail projections")
    tie_adaptive_weights: bool = flag(False, f"refused: {ADAPTIVE_INPUTS}")
    tie_adaptive_proj: bool = flag(False, f"refused: {ADAPTIVE_INPUTS}")
    checkpoint_activations: bool = flag(False, "recompute activations in the backward pass to save memory")
    offload_activations: bool = flag(False, "keep checkpointed activations in CPU memory")
    min_params_to_wrap: int = flag(
        DEFAULT_MIN_PARAMS_TO_WRAP, "smallest layer, in parameters, that --ddp-backend=fully_sharded wraps"
    )


def parse_stages(text: str, choices: Sequence[str], flag: str) -> list[list[str]]:
    """Reads branch names: commas between parallel ones, slashes between those that follow each other.

    Returns:
        The names of each stage, in the order of ``choices``.

    Raises:
        ValueError: if a stage is empty, or a name is repeated or not among ``choices``.
    """
    stages = [[name.strip() for name in stage.split(",") if name.strip()] for stage in text.split("/")]
    names = [name for stage in stages for name in stage]
    unknown = [name for name in names if name not in choices]
    if unknown or not all(stages) or len(set(names)) != len(names):
        raise ValueError(
            f"{flag} must list branches out of {', '.join(choices)}, each at most once, but got {text!r}"
            + (f" with the unknown {', '.join(unknown)}." if unknown else ".")
        )
    return [[name for name in choices if name in stage] for stage in stages]


def parse_kernel_sizes(text: Any, layers: int, flag: str, causal: bool) -> list[tuple[int, ...]]:
    """Reads kernel sizes: "3,15" or "[3, 15]" for all layers, "[[3], [7]]" for one list per layer.

    Args:
        text: the flag's value; a list is taken as it is.
        layers: number of layers.
        flag: the flag's name, for messages.
        causal: even sizes are allowed.

    Returns:
        A tuple of sizes per layer.

    Raises:
        ValueError: if it cannot be read, if there are not as many lists as layers, or by ``check_kernel_sizes``.
    """
    value: Any = text
    if isinstance(text, str):
        try:
            value = ast.literal_eval(text) if text.strip() else []
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = None
    if isinstance(value, (int, float, bool)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{flag} must list integers, e.g. 3,15 or '[[3],[7]]', but got {text!r}.")
    lists = sum(isinstance(entry, (list, tuple)) for entry in value)
    if lists and (lists != layers or len(value) != layers):
        raise ValueError(f"{flag} must hold one list per layer, but got {lists} lists for {layers} layers: {text}.")
    per_layer = list(value) if lists else [value] * layers
    with naming(flag):
        return [check_kernel_sizes(sizes, causal) for sizes in per_layer]


def layer_plans(cfg: Any, side: str, place: Optional[str] = None) -> list[LayerPlan]:
    """Plans the layers of ``side`` from its branch list and kernel sizes; pruned layers are left out.

    Args:
        cfg: flags by their flat names (``encoder_branches`` ...).
        side: "encoder" or "decoder".
        place: see ``branch_names``; default: ``side``.

    Raises:
        ValueError: see ``parse_stages``, ``parse_kernel_sizes``, ``parse_layer_numbers`` and ``plan_biases``.
    """
    stages = read_stages(cfg, side, place)
    sizes: list[tuple[int, ...]] = [()] * getattr(cfg, f"{side}_layers")
    if has_kernels(stages):
        sizes = read_kernel_sizes(cfg, side)
    plans = [LayerPlan(stages, *rest) for rest in zip(sizes, plan_biases(cfg, side), strict=True)]
    return [plans[number] for number in find_layers_to_keep(cfg, side)]


def has_kernels(stages: Sequence[Sequence[str]]) -> bool:
    """Whether a branch of a layer has kernels, and thus kernel sizes."""
    return any(KERNEL_BRANCHES & {*stage} for stage in stages)


def read_stages(cfg: Any, side: str, place: Optional[str] = None) -> list[list[str]]:
    """The branches of ``side``, see ``parse_stages``, out of those that can be in ``place`` (default: ``side``).

    None where layers are not made of branches.
    """
    if find_layer_type(cfg, side) != PARALLEL:
        return []
    return parse_stages(getattr(cfg, f"{side}_branches"), branch_names(place or side), f"--{side}-branches")


def read_kernel_sizes(cfg: Any, side: str) -> list[tuple[int, ...]]:
    """The kernel sizes of each layer of ``side``, see ``parse_kernel_sizes``."""
    text, layers = getattr(cfg, f"{side}_kernel_sizes"), getattr(cfg, f"{side}_layers")
    return parse_kernel_sizes(text, layers, f"--{side}-kernel-sizes", causal=side == "decoder")


def find_layers_to_keep(cfg: Any, side: str) -> list[int]:
    """The numbers of the layers of ``side`` that pruning leaves, see ``parse_layer_numbers``."""
    text = getattr(cfg, f"{side}_layers_to_keep", None)  # sentence models have no such flag
    return parse_layer_numbers(text, getattr(cfg, f"{side}_layers"), f"--{side}-layers-to-keep")


def pruned_flags(cfg: Any) -> dict[str, Any]:
    """The flags of the model that is left after pruning to ``--encoder/decoder-layers-to-keep``."""
    flags: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        plans = layer_plans(cfg, side)
        flags[f"{side}_layers"] = len(plans)
        flags[f"{side}_layers_to_keep"] = None
        if any(plan.kernel_sizes for plan in plans):
            flags[f"{side}_kernel_sizes"] = str([list(plan.kernel_sizes) for plan in plans])
        flags.update(pruned_bias_flags(cfg, side, find_layers_to_keep(cfg, side)))
    flags["alignment_layer"] = find_alignment_layer(cfg)
    return flags


def explicit_pruning(cfg: Any, state: Iterable[str]) -> dict[str, str]:
    """``--encoder/decoder-layers-to-keep`` with every layer of a side that keeps all: fairseq would drop them.

    Args:
        cfg: the flags.
        state: names of parameters; a side with as many layers as are kept is pruned already, and keeps all of them.
    """
    flags = {}
    for side in ("encoder", "decoder"):
        kept = find_layers_to_keep(cfg, side)
        stored = {name.split(".")[2] for name in state if name.startswith(f"{side}.layers.")}
        numbers = range(len(kept)) if len(stored) == len(kept) else kept
        flags[f"{side}_layers_to_keep"] = ",".join(map(str, numbers))
    return flags


def find_alignment_layer(cfg: Any) -> Optional[int]:
    """The number of ``--alignment-layer`` among the layers that pruning leaves; None for the last."""
    if cfg.alignment_layer is None or fault_of(find_layers_to_keep, cfg, "decoder"):
        return None
    kept = find_layers_to_keep(cfg, "decoder")
    if cfg.alignment_layer not in kept:
        raise ValueError(
            f"--alignment-layer must be one of the decoder's layers {', '.join(map(str, kept))}, but got "
            f"{cfg.alignment_layer}; change it, or leave it out for the last."
        )
    return kept.index(cfg.alignment_layer)


def flat_flags(cfg: Any, dataclass_type: type = MuseConfig) -> Namespace:
    """Gives every flag of ``dataclass_type`` a value, from whatever fairseq hands over.

    Args:
        cfg: Namespace, dataclass or DictConfig; flags it does not know (an older checkpoint) get their default.
        dataclass_type: the model's config class.
    """
    if isinstance(cfg, DictConfig):
        given: Any = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    else:
        given = {name: str(value) if isinstance(value, Enum) else value for name, value in vars(cfg).items()}
    return Namespace(**{f.name: given.get(f.name, f.default) for f in fields(dataclass_type) if f.name != "_name"})


def transformer_config(flat: Namespace) -> TransformerConfig:
    """fairseq's nested config with our flags next to its own, and layer plans in ``cfg.encoder.plans``.

    Args:
        flat: from ``flat_flags``, checked; flags that default to another flag's value get it here.
    """
    width = flat.decoder_embed_dim
    values = {"branch_dropout": flat.dropout, "decoder_input_dim": width, "decoder_output_dim": width}
    values.update({name: value for name, value in vars(flat).items() if value is not None or name not in values})
    for side in ("encoder", "decoder"):
        values[f"{side}_plans"] = layer_plans(flat, side)
    values["alignment_layer"] = find_alignment_layer(flat)
    return TransformerConfig.from_namespace(Namespace(**values))
