"""What is wrong with the flags of MUSE, one sentence per fault."""

import math
from typing import Any

from fairseq import utils

from muse_plugin.contracts.flag import fault_of, find_wrong_values, flag_name, naming
from muse_plugin.models.attention_bias_flags import find_bias_without_attention, plan_biases, warn_of_idle_bias_flags
from muse_plugin.models.encoder_layers import BRANCH_FLAGS, MULTI_SCALE, PARALLEL, encoder_layer_faults, find_layer_type
from muse_plugin.models.muse_config import (
    ADAPTIVE_INPUTS,
    CONV_TYPES,
    EMBEDDING_WIDTH,
    FAIRSEQ,
    KERNEL_BRANCHES,
    MERGED_EMBEDDINGS,
    QUANT_NOISE,
    MuseConfig,
    find_alignment_layer,
    find_layers_to_keep,
    has_kernels,
    read_kernel_sizes,
    read_stages,
)
from muse_plugin.models.sentence_config import find_without_effect, warn_without_effect
from muse_plugin.ops.dynamic_conv_fairseq import SIZES as FAIRSEQ_SIZES


def check_config(
    cfg: Any, source_dictionary: Any = None, target_dictionary: Any = None, config_class: type = MuseConfig
) -> None:
    """Finds everything wrong with the flags and reports it together.

    Args:
        cfg: flags by their flat names.
        source_dictionary: for ``--share-all-embeddings``.
        target_dictionary: for ``--share-all-embeddings``.
        config_class: the model's, whose defaults its flags have.

    Raises:
        ValueError: with one sentence per fault.
    """
    faults = find_wrong_values(cfg, MuseConfig) + _side_faults(cfg, "encoder") + _side_faults(cfg, "decoder")
    faults += encoder_layer_faults(cfg, config_class) + _fairseq_decoder_faults(cfg, config_class)
    way_out = "drop the flag"
    if config_class.share_all_embeddings:  # a switch that a preset turns on cannot be turned off
        way_out = "take an --arch that does not share them, such as muse_large"
    if cfg.share_all_embeddings and source_dictionary != target_dictionary:
        faults.append(
            "--share-all-embeddings needs one dictionary for both languages, but got a source dictionary of "
            f"{len(source_dictionary)} and a different target dictionary of {len(target_dictionary)} symbols; "
            f"preprocess with --joined-dictionary or {way_out}."
        )
    if cfg.share_all_embeddings and cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        faults.append(
            "--share-all-embeddings needs --encoder-embed-dim to equal --decoder-embed-dim, "
            f"but got {cfg.encoder_embed_dim} and {cfg.decoder_embed_dim}; change one of them or {way_out}."
        )
    faults += _output_faults(cfg, target_dictionary)
    if not faults:
        faults += find_backend_faults(cfg, {"encoder": "encoder", "decoder": "decoder"})
    faults += _refused_flags(cfg) + fault_of(find_alignment_layer, cfg)
    heads = cfg.alignment_heads
    if heads is not None and not 1 <= heads <= cfg.decoder_attention_heads:
        faults.append(
            f"--alignment-heads must lie between 1 and the {cfg.decoder_attention_heads} heads of "
            f"--decoder-attention-heads, but got {heads}; change one of them."
        )
    if faults:
        raise ValueError("\n".join(faults))
    # Warnings, not faults: checkpoints that were trained with these flags still load.
    if cfg.encoder_positions == "none":
        warn_without_effect(cfg, config_class, ["encoder_learned_pos"], "with --encoder-positions none")
    if find_layer_type(cfg, "encoder") == MULTI_SCALE:
        warn_without_effect(cfg, config_class, ["encoder_ffn_embed_dim"], f"with --encoder-layer-type {MULTI_SCALE}")
    for side in ("encoder", "decoder"):
        kind = find_layer_type(cfg, side)
        if side == "decoder" or kind in (PARALLEL, MULTI_SCALE):  # fairseq's decoder layer has no bias
            warn_of_idle_bias_flags(cfg, config_class, side)
        if kind == PARALLEL:
            warn_of_idle_branch_flags(cfg, config_class, side, read_stages(cfg, side))


# Flags of a side that only some of its branches read: the branches by their sort, and the flags.
_READ_BY_BRANCHES = {
    "a convolution": (KERNEL_BRANCHES, ("kernel_sizes", "conv_type", "conv_heads")),
    "conv": ({"conv"}, ("conv_projection",)),
    "ffn": ({"ffn"}, ("ffn_embed_dim", "ffn_projection")),
}


def warn_of_idle_branch_flags(cfg: Any, config_class: Any, side: str, stages: list[list[str]]) -> None:
    """Warns of flags of one side that were given although none of its branches reads them."""
    branches = {name for stage in stages for name in stage}
    for sort, (readers, names) in _READ_BY_BRANCHES.items():
        if branches.isdisjoint(readers):
            idle = [name for name in (f"{side}_{name}" for name in names) if hasattr(cfg, name)]
            warn_without_effect(cfg, config_class, idle, f"without {sort} in --{side}-branches")
    kind = str(getattr(cfg, f"{side}_conv_type", "dynamic"))
    if "conv" in branches and kind not in CONV_TYPES[:2]:
        warn_without_effect(cfg, config_class, [f"{side}_conv_heads"], f"with --{side}-conv-type {kind}")


def _side_faults(cfg: Any, side: str) -> list[str]:
    if min(getattr(cfg, f"{side}_layers"), getattr(cfg, f"{side}_embed_dim")) < 1:
        return []  # out of range, which is said already
    faults = fault_of(read_stages, cfg, side)
    stages = [] if faults else read_stages(cfg, side)
    chosen = [name for stage in stages for name in stage]
    splits = "long_short_range" in chosen
    # Kernel sizes do not matter without a convolution; where the branches cannot be read, they are checked too.
    if not chosen or has_kernels(stages):
        faults += fault_of(read_kernel_sizes, cfg, side)
    faults += fault_of(find_layers_to_keep, cfg, side) + fault_of(plan_biases, cfg, side)
    width, flag = getattr(cfg, f"{side}_embed_dim"), f"--{side}-embed-dim"
    if splits:
        width, flag = width / 2, f"half of {flag} (the branch long_short_range splits it)"
    is_parallel = find_layer_type(cfg, side) == PARALLEL
    for kind in ("attention", "conv") if is_parallel or side == "decoder" else ():
        heads = getattr(cfg, f"{side}_{kind}_heads")
        if heads is not None and (heads < 1 or width % heads != 0):
            faults.append(
                f"{flag} must be divisible by --{side}-{kind}-heads, but got {width:g} and {heads}; change one of them."
            )
    faults += find_bias_without_attention(cfg, side, chosen)
    if str(getattr(cfg, f"{side}_ffn_projection")) == "conv" and (
        str(getattr(cfg, f"{side}_conv_projection")) != "separate"
        or any("ffn" in stage and "conv" not in stage for stage in stages)
    ):
        faults.append(
            f"--{side}-ffn-projection conv reads the separate projection of a convolution of the same stage, but got "
            f"--{side}-conv-projection {getattr(cfg, f'{side}_conv_projection')} and --{side}-branches "
            f"{getattr(cfg, f'{side}_branches')}; add --{side}-conv-projection separate and the branch conv, or use "
            "shared."
        )
    if splits and (getattr(cfg, f"{side}_conv_type") != "dynamic" or "conv" in chosen):
        faults.append(
            f"the branch long_short_range has a dynamic convolution of its own, but got --{side}-conv-type "
            f"{getattr(cfg, f'{side}_conv_type')} and --{side}-branches {','.join(chosen)}; drop one of them."
        )
    return faults


def _fairseq_decoder_faults(cfg: Any, config_class: type) -> list[str]:
    if find_layer_type(cfg, "decoder") != FAIRSEQ:
        return []
    names = [f"decoder_{name}" for name in (*BRANCH_FLAGS, "attention_bias")]
    names += ["int8_inference", "static_decoding", "inference_backend", "alignment_layer", "alignment_heads"]
    return find_without_effect(cfg, config_class, names, f"with --decoder-layer-type {FAIRSEQ}")


def _output_faults(cfg: Any, target_dictionary: Any) -> list[str]:
    """What is wrong with the layer before the softmax, or with an adaptive one."""
    if cfg.adaptive_softmax_cutoff is None:
        is_shared = cfg.share_all_embeddings or cfg.share_decoder_input_output_embed
        if is_shared and cfg.decoder_output_dim not in (None, cfg.decoder_embed_dim):
            return [
                "--decoder-output-dim must equal --decoder-embed-dim where the output layer shares the embeddings, but "
                f"got {cfg.decoder_output_dim} and {cfg.decoder_embed_dim}; drop it, or do not share them."
            ]
        return []
    try:
        with naming("--adaptive-softmax-cutoff"):
            cutoff = utils.eval_str_list(cfg.adaptive_softmax_cutoff, type=int)
    except ValueError as error:
        return [str(error)]
    except TypeError:  # no numbers
        cutoff = []
    faults, most = [], math.inf if target_dictionary is None else len(target_dictionary)
    if not cutoff or sorted({0, *cutoff}) != [0, *cutoff] or cutoff[-1] > most:
        faults.append(
            f"--adaptive-softmax-cutoff must list rising numbers of words, at most the {most} of the target "
            f"dictionary, e.g. 2000,8000, but got {cfg.adaptive_softmax_cutoff!r}."
        )
    if not 0 < cfg.adaptive_softmax_factor < math.inf:
        faults.append(
            f"--adaptive-softmax-factor must be a number above 0, but got {cfg.adaptive_softmax_factor}; 4 is usual."
        )
    return faults


def find_backend_faults(cfg: Any, places: dict[str, str]) -> list[str]:
    """What ``--conv-backend`` cannot do with the convolutions of a model.

    Args:
        cfg: flags by their flat names, whose branches and kernel sizes can be read.
        places: for each side with layers, where its branches are, see ``branch_names``.
    """
    backend = str(cfg.conv_backend)
    if backend == "auto":
        return []
    faults, reads_backend = [], False
    for side, place in places.items():
        branches = {name for stage in read_stages(cfg, side, place) for name in stage}
        kind = str(getattr(cfg, f"{side}_conv_type", "dynamic"))
        if "long_short_range" not in branches and ("conv" not in branches or kind not in CONV_TYPES[:2]):
            continue
        reads_backend = True
        layers = read_kernel_sizes(cfg, side)
        used = {size for sizes in layers for size in (sizes if getattr(cfg, "no_conv_gate", False) else [max(sizes)])}
        if backend == "fairseq_cuda" and not used <= {*FAIRSEQ_SIZES}:
            faults.append(
                f"--conv-backend fairseq_cuda has kernels of {', '.join(map(str, FAIRSEQ_SIZES))} tokens, but got "
                f"--{side}-kernel-sizes {getattr(cfg, f'{side}_kernel_sizes')}; change one of them."
            )
    if not reads_backend:
        faults.append(
            f"--conv-backend is for dynamic and lightweight convolutions, but got {backend} for a model without one; "
            "drop the flag."
        )
    return faults


def _refused_flags(cfg: Any) -> list[str]:
    """Flags of fairseq's Transformer that these layers cannot follow."""
    faults = []
    if cfg.merge_src_tgt_embed:
        faults.append(
            f"--merge-src-tgt-embed is refused, since {MERGED_EMBEDDINGS}; preprocess with --joined-dictionary and "
            "use --share-all-embeddings."
        )
    for name in ("tie_adaptive_weights", "tie_adaptive_proj"):
        if getattr(cfg, name):
            faults.append(f"{flag_name(name)} is refused, since {ADAPTIVE_INPUTS}; drop it.")
    if cfg.decoder_input_dim not in (None, cfg.decoder_embed_dim):
        faults.append(
            f"--decoder-input-dim is refused, since {EMBEDDING_WIDTH}, but got {cfg.decoder_input_dim} for a "
            f"--decoder-embed-dim of {cfg.decoder_embed_dim}; drop it."
        )
    for name in ("quant_noise_pq", "quant_noise_scalar"):
        if getattr(cfg, name):
            faults.append(
                f"{flag_name(name)} is refused, since {QUANT_NOISE}, but got {getattr(cfg, name)}; drop it, or "
                "generate with 8-bit weights by --int8-inference."
            )
    return faults


def check_supervision(cfg: Any) -> None:
    """Checks that there is always a cross-attention that a loss can compare with word alignments.

    Raises:
        ValueError: if there is none in a layer, or if layers are left out at random.
    """
    is_parallel = find_layer_type(cfg, "decoder") == PARALLEL  # fairseq's layer always has one
    if is_parallel and "cross_attention" not in [name for stage in read_stages(cfg, "decoder") for name in stage]:
        raise ValueError(
            "--load-alignments supervises cross-attention, but got --decoder-branches "
            f"{cfg.decoder_branches} without it; add cross_attention or drop the flag."
        )
    if cfg.decoder_layerdrop > 0:
        raise ValueError(
            "--load-alignments supervises one layer in every update, but got --decoder-layerdrop "
            f"{cfg.decoder_layerdrop}, which leaves layers out; drop one of them."
        )
