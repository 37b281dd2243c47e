"""Flags of MUSE and MUSE-simple, and their checks. Presets (named sizes) are in ``muse_presets.py``.

Flat on purpose: fairseq's hydra front end cannot take nested model configs from the command line. ``layer_plans`` and
``transformer_config`` turn the flags into what the layers and fairseq's base classes want.
"""

import ast
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP, TransformerConfig
from omegaconf import DictConfig, OmegaConf

from muse_plugin.modules.gated_conv import check_kernel_sizes

ENCODER_BRANCHES = ("self_attention", "conv", "long_short_range", "ffn")
DECODER_BRANCHES = ("self_attention", "conv", "long_short_range", "cross_attention", "ffn")
CONV_TYPES = ("dynamic", "lightweight", "depthwise", "standard")

_BRANCHES_HELP = "parallel branches of a layer, comma-separated, out of {}; without conv it is MUSE-simple"
_KERNELS_HELP = (
    "kernel sizes in tokens{}: one comma-separated list for all layers, e.g. 3,15, or one list per layer, "
    "e.g. '[[3],[7],[15]]'"
)
_CONV_TYPE_HELP = (
    "where kernels come from: dynamic (predicted per position and head), lightweight (one softmax kernel per head), "
    "depthwise (one free kernel per channel), standard (ordinary convolution over all channels)"
)
_CONV_PROJECTION_HELP = (
    "shared: the convolution reads self-attention's values; separate: it has a projection of its own"
)
_FFN_PROJECTION_HELP = "own: W_1 as published; shared: the hidden layer is the activation of the shared values"


def _flag(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class MuseConfig(FairseqDataclass):
    """Flags of MUSE (arXiv:1911.09483). Defaults: the base setting, without the recipes' dropout."""

    activation_fn: ChoiceEnum(utils.get_available_activation_fns()) = _flag(  # type: ignore[valid-type]
        "relu", "activation function of the feed-forward branch"
    )
    dropout: float = _flag(0.1, "probability of dropping a channel of the embedded input, and see --branch-dropout")
    attention_dropout: float = _flag(0.0, "probability of dropping an attention weight")
    activation_dropout: float = _flag(0.0, "probability of dropping a hidden unit of the feed-forward branch")
    branch_dropout: Optional[float] = _flag(
        None, "probability of dropping a channel of a branch's output before the residual sum (default: --dropout)"
    )
    input_dropout: float = _flag(
        0.0, "probability of dropping a channel of what self-attention and convolution read, not the other branches"
    )
    weight_dropout: float = _flag(0.1, "probability of dropping a convolution kernel's weight (published: always 0.1)")

    encoder_embed_path: Optional[str] = _flag(None, "path to pre-trained encoder embeddings")
    encoder_embed_dim: int = _flag(384, "width of the encoder, in channels")
    encoder_ffn_embed_dim: int = _flag(768, "hidden width of the encoder's feed-forward branch, in channels")
    encoder_layers: int = _flag(12, "number of encoder layers")
    encoder_attention_heads: int = _flag(4, "number of attention heads of an encoder layer")
    encoder_normalize_before: bool = _flag(False, "layer norm before the branches instead of after the residual sum")
    encoder_learned_pos: bool = _flag(False, "learn the encoder's position embeddings instead of using sinusoids")
    encoder_layerdrop: float = _flag(0.0, "LayerDrop probability of the encoder")
    encoder_layers_to_keep: Optional[str] = _flag(None, "encoder layers to keep when pruning, comma-separated")
    encoder_branches: str = _flag("self_attention,conv,ffn", _BRANCHES_HELP.format(", ".join(ENCODER_BRANCHES)))
    encoder_kernel_sizes: str = _flag("3,15", _KERNELS_HELP.format(" (odd)"))
    encoder_conv_type: ChoiceEnum(list(CONV_TYPES)) = _flag("dynamic", _CONV_TYPE_HELP)  # type: ignore[valid-type]
    encoder_conv_heads: Optional[int] = _flag(None, "kernels per position (default: --encoder-attention-heads)")
    encoder_conv_projection: ChoiceEnum(["shared", "separate"]) = _flag(  # type: ignore[valid-type]
        "shared", _CONV_PROJECTION_HELP
    )
    encoder_ffn_projection: ChoiceEnum(["own", "shared"]) = _flag(  # type: ignore[valid-type]
        "own", _FFN_PROJECTION_HELP
    )

    decoder_embed_path: Optional[str] = _flag(None, "path to pre-trained decoder embeddings")
    decoder_embed_dim: int = _flag(384, "width of the decoder, in channels")
    decoder_input_dim: Optional[int] = _flag(None, "width of the decoder's embeddings (default: --decoder-embed-dim)")
    decoder_output_dim: Optional[int] = _flag(None, "width before the softmax (default: --decoder-embed-dim)")
    decoder_ffn_embed_dim: int = _flag(768, "hidden width of the decoder's feed-forward branch, in channels")
    decoder_layers: int = _flag(12, "number of decoder layers")
    decoder_attention_heads: int = _flag(4, "number of attention heads of a decoder layer")
    decoder_normalize_before: bool = _flag(False, "layer norm before the branches instead of after the residual sum")
    decoder_learned_pos: bool = _flag(False, "learn the decoder's position embeddings instead of using sinusoids")
    decoder_layerdrop: float = _flag(0.0, "LayerDrop probability of the decoder")
    decoder_layers_to_keep: Optional[str] = _flag(None, "decoder layers to keep when pruning, comma-separated")
    decoder_branches: str = _flag(
        "self_attention,conv,cross_attention,ffn", _BRANCHES_HELP.format(", ".join(DECODER_BRANCHES))
    )
    decoder_kernel_sizes: str = _flag("3,15", _KERNELS_HELP.format(""))
    decoder_conv_type: ChoiceEnum(list(CONV_TYPES)) = _flag("dynamic", _CONV_TYPE_HELP)  # type: ignore[valid-type]
    decoder_conv_heads: Optional[int] = _flag(None, "kernels per position (default: --decoder-attention-heads)")
    decoder_conv_projection: ChoiceEnum(["shared", "separate"]) = _flag(  # type: ignore[valid-type]
        "shared", _CONV_PROJECTION_HELP
    )
    decoder_ffn_projection: ChoiceEnum(["own", "shared"]) = _flag(  # type: ignore[valid-type]
        "own", _FFN_PROJECTION_HELP
    )

    no_conv_gate: bool = _flag(
        False, "do not mix kernel sizes by a learned gate: their results stand side by side before the output matrix"
    )
    conv_padding: ChoiceEnum(["masked", "leaky"]) = _flag(  # type: ignore[valid-type]
        "masked",
        "masked: values at padding count as zero for the convolution; leaky: as in the published program, where a "
        "sentence's result depends on its batch",
    )

    max_source_positions: int = _flag(1024, "maximum source length in tokens")
    max_target_positions: int = _flag(1024, "maximum target length in tokens")
    share_decoder_input_output_embed: bool = _flag(False, "share the decoder's input and output embeddings")
    share_all_embeddings: bool = _flag(
        False, "share encoder, decoder and output embeddings (needs a joined dictionary: --joined-dictionary)"
    )
    no_token_positional_embeddings: bool = _flag(False, "no positions at all")
    layernorm_embedding: bool = _flag(False, "layer norm on the embedded input")
    no_scale_embedding: bool = _flag(False, "do not multiply embeddings by the square root of the width")
    adaptive_softmax_cutoff: Optional[str] = _flag(
        None, "comma-separated cut-off points of the adaptive softmax; use with --criterion adaptive_loss"
    )
    adaptive_softmax_dropout: float = _flag(0.0, "dropout of the adaptive softmax's tail projections")
    adaptive_softmax_factor: float = _flag(4, "shrink factor of the adaptive softmax's tail projections")
    tie_adaptive_weights: bool = _flag(False, "tie the adaptive softmax to the decoder's embeddings")
    tie_adaptive_proj: bool = _flag(False, "tie the adaptive softmax's tail projections")
    checkpoint_activations: bool = _flag(False, "recompute activations in the backward pass to save memory")
    offload_activations: bool = _flag(False, "keep checkpointed activations in CPU memory")
    min_params_to_wrap: int = _flag(
        DEFAULT_MIN_PARAMS_TO_WRAP, "smallest layer, in parameters, that --ddp-backend=fully_sharded wraps"
    )


@dataclass
class MuseSimpleConfig(MuseConfig):
    """Flags of MUSE-simple: MUSE without the convolution branch."""

    encoder_branches: str = _flag("self_attention,ffn", _BRANCHES_HELP.format(", ".join(ENCODER_BRANCHES)))
    decoder_branches: str = _flag(
        "self_attention,cross_attention,ffn", _BRANCHES_HELP.format(", ".join(DECODER_BRANCHES))
    )


def parse_branches(text: str, choices: Sequence[str], flag: str) -> list[str]:
    """Reads a comma-separated list of branch names.

    Raises:
        ValueError: if it is empty, repeats a name, or holds one that is not among ``choices``.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in choices]
    if unknown or not names or len(set(names)) != len(names):
        raise ValueError(
            f"{flag} must list branches out of {', '.join(choices)}, each at most once, but got {text!r}"
            + (f" with the unknown {', '.join(unknown)}." if unknown else ".")
        )
    return names


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
        except (ValueError, SyntaxError):
            raise ValueError(f"{flag} must list integers, e.g. 3,15 or '[[3],[7]]', but got {text!r}.") from None
    if isinstance(value, (int, float, bool)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{flag} must list integers, e.g. 3,15 or '[[3],[7]]', but got {text!r}.")
    nested = any(isinstance(entry, (list, tuple)) for entry in value)
    if nested and (len(value) != layers or not all(isinstance(entry, (list, tuple)) for entry in value)):
        raise ValueError(
            f"{flag} must hold one list per layer, but got {len(value)} entries for {layers} layers: {text}."
        )
    per_layer = list(value) if nested else [value] * layers
    try:
        return [check_kernel_sizes(sizes, causal) for sizes in per_layer]
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None


@dataclass
class LayerPlan:
    """What one layer consists of.

    Attributes:
        branches: names, in the order of the fused projections.
        kernel_sizes: of its convolution; empty where there is none.
    """

    branches: list[str]
    kernel_sizes: tuple[int, ...]


def layer_plans(cfg: Any, side: str) -> list[LayerPlan]:
    """Plans the layers of ``side`` from its branch list and kernel sizes; pruned layers are left out.

    Args:
        cfg: flags by their flat names (``encoder_branches`` ...).
        side: "encoder" or "decoder".

    Raises:
        ValueError: see ``parse_branches`` and ``parse_kernel_sizes``.
    """
    order = ENCODER_BRANCHES if side == "encoder" else DECODER_BRANCHES
    chosen = parse_branches(getattr(cfg, f"{side}_branches"), order, f"--{side}-branches")
    layers = getattr(cfg, f"{side}_layers")
    sizes: list[tuple[int, ...]] = [()] * layers
    if "conv" in chosen or "long_short_range" in chosen:
        flag = f"--{side}-kernel-sizes"
        sizes = parse_kernel_sizes(getattr(cfg, f"{side}_kernel_sizes"), layers, flag, causal=side == "decoder")
    plans = [LayerPlan([name for name in order if name in chosen], layer_sizes) for layer_sizes in sizes]
    keep = getattr(cfg, f"{side}_layers_to_keep")
    return plans if not keep else [plans[int(number)] for number in sorted(keep.split(","), key=int)]


def check_config(cfg: Any) -> None:
    """Finds everything wrong with the flags and reports it together.

    Args:
        cfg: flags by their flat names.

    Raises:
        ValueError: with one sentence per fault.
    """
    faults: list[str] = []
    for side in ("encoder", "decoder"):
        try:
            layer_plans(cfg, side)
        except ValueError as error:
            faults.append(str(error))
        width = getattr(cfg, f"{side}_embed_dim")
        for kind in ("attention", "conv"):
            heads = getattr(cfg, f"{side}_{kind}_heads")
            if heads is not None and (heads < 1 or width % heads != 0):
                faults.append(
                    f"--{side}-embed-dim must be divisible by --{side}-{kind}-heads, "
                    f"but got {width} and {heads}; change one of them."
                )
    rates = ("dropout", "attention_dropout", "activation_dropout", "branch_dropout", "input_dropout", "weight_dropout")
    for name in rates:
        rate = getattr(cfg, name)
        if rate is not None and not 0 <= rate < 1:
            faults.append(f"--{name.replace('_', '-')} must lie in [0, 1), but got {rate}.")
    if faults:
        raise ValueError("\n".join(faults))


def flat_flags(cfg: Any, dataclass_type: type = MuseConfig) -> Namespace:
    """Gives every flag of ``dataclass_type`` a value, from whatever fairseq hands over.

    Args:
        cfg: Namespace, dataclass or DictConfig; flags it does not know (an older checkpoint) get their default.
        dataclass_type: the model's config class.
    """
    given = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else dict(vars(cfg))
    assert isinstance(given, dict)
    defaults = {f.name: f.default for f in fields(dataclass_type) if f.name != "_name"}
    flat = Namespace(**{name: given.get(name, default) for name, default in defaults.items()})
    if flat.branch_dropout is None:
        flat.branch_dropout = flat.dropout
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if getattr(flat, name) is None:
            setattr(flat, name, flat.decoder_embed_dim)
    return flat


def transformer_config(flat: Namespace) -> TransformerConfig:
    """fairseq's nested config with our flags beside its own, and layer plans in ``cfg.encoder.plans``."""
    plans = {f"{side}_plans": layer_plans(flat, side) for side in ("encoder", "decoder")}
    return TransformerConfig.from_namespace(Namespace(**vars(flat), **plans))
