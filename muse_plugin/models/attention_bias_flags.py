"""Reads the flags that limit self-attention, ``--encoder-attention-bias`` and related flags, into one plan per layer.

The mechanisms are in ``modules/attention_bias.py`` and ``modules/head_allocation.py``.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum

from muse_plugin.contracts.flag import config_of_side, fault_of, flag, naming
from muse_plugin.models.layer_numbers import parse_layer_numbers
from muse_plugin.models.sentence_config import warn_without_effect
from muse_plugin.modules.attention_bias import (
    AttentionBias,
    Direction,
    DistancePenalty,
    MultiScaleWindows,
    Scale,
    SummedBias,
    check_scale,
    geometric_alphas,
)
from muse_plugin.modules.head_allocation import allocate_heads

logger = logging.getLogger(__name__)

BIASES = {
    "encoder": ("multi-scale", "distance", "forward", "backward", "bidirectional-split"),
    "decoder": ("multi-scale", "distance"),
}
_DIRECTIONS = ("forward", "backward", "bidirectional-split")
# The biases that read a flag, by the end of its name.
_READERS: dict[str, tuple[str, ...]] = {
    "attention_bias_layers": BIASES["encoder"],
    "attention_scales": ("multi-scale",),
    "attention_scale_alpha": ("multi-scale",),
    "attention_scale_heads": ("multi-scale",),
    "attention_scale_radii": ("multi-scale",),
    "attention_diagonal": _DIRECTIONS,
    "distance_slopes": ("distance",),
    "distance_alpha": ("distance",),
}
DISTANCE_SLOPES = ("fixed", "geometric", "learned")
_NUMBERS_HELP = "comma-separated and counted from 0 (default: all)"
_SCALES_HELP = "scales of multi-scale, from the smallest to the largest, as widths of windows in tokens"
_SCALE_ALPHA_HELP = (
    "how much lower layers favour small scales: the alpha by which heads are given to scales (arXiv:1912.00544, Eqs. "
    "11 and 12); 0 shares them out evenly"
)
_SLOPES_HELP = (
    "what distance costs: fixed (alpha per word in every head), geometric (2^(-8h/H) in head h of H), learned (one "
    "alpha per head, trained)"
)
_DISTANCE_ALPHA_HELP = "what a logit loses per word of distance (arXiv:1712.02047, Eq. 7); where learned, at the start"


def _bias_flags(side: str, what: str, scales: str, scale_help: str) -> type:
    """A config with the flags of what self-attention of one side may look at."""
    radii = "scales are radii instead of widths, as Eq. 7 is printed"
    table = "heads per scale, one list per layer with multi-scale, e.g. '[[3,1],[2,2]]' (default: by alpha)"
    flags: list[tuple[str, Any, Any]] = [
        ("attention_bias", str, flag("none", f"what self-attention may look at: none, or a list, {what}")),
        ("attention_bias_layers", Optional[str], flag(None, f"layers with --{side}-attention-bias, {_NUMBERS_HELP}")),
        ("attention_scales", str, flag(scales, f"{_SCALES_HELP}: {scale_help}")),
        ("attention_scale_alpha", float, flag(0.5, _SCALE_ALPHA_HELP)),
        ("attention_scale_heads", Optional[str], flag(None, table)),
        ("attention_scale_radii", bool, flag(False, radii)),
    ]
    if side == "encoder":
        diagonal = flag("masked", "whether a word sees itself in forward, backward and bidirectional-split")
        flags.append(("attention_diagonal", ChoiceEnum(["masked", "kept"]), diagonal))
    flags += [
        ("distance_slopes", ChoiceEnum(list(DISTANCE_SLOPES)), flag("fixed", _SLOPES_HELP)),
        ("distance_alpha", float, flag(1.5, _DISTANCE_ALPHA_HELP)),
    ]
    return config_of_side(__name__, side, "AttentionBiasFlags", flags)


EncoderAttentionBiasFlags = _bias_flags(
    "encoder",
    "comma-separated and summed, of multi-scale (a window per head), distance (logits fall with the distance), forward "
    "(earlier words only), backward, bidirectional-split (half of the heads each)",
    "1,3,N/16,N/8,N/4",
    "odd integers, fractions such as N/4 of the sentence's own length, or all",
)
DecoderAttentionBiasFlags = _bias_flags(
    "decoder",
    "comma-separated and summed, of multi-scale (the last words, a window per head) and distance (logits fall with the "
    "distance)",
    "1,3,5,7,9",
    "integers, or all",
)


@dataclass(frozen=True)
class BiasPlan:
    """What self-attention of one layer may look at.

    Attributes:
        scales: one per head; None without windows.
        causal: windows end at the query.
        scales_are_radii: see ``MultiScaleWindows``.
        directions: one per head; None if both are seen.
        masks_diagonal: see ``Direction``.
        alphas: of the distance mask, one per head; None without it.
        learned: the alphas are parameters.
    """

    scales: Optional[tuple[Scale, ...]] = None
    causal: bool = False
    scales_are_radii: bool = False
    directions: Optional[tuple[str, ...]] = None
    masks_diagonal: bool = True
    alphas: Optional[tuple[float, ...]] = None
    learned: bool = False

    def build(self) -> AttentionBias:
        """Builds the module; several biases are summed."""
        parts: list[AttentionBias] = []
        if self.scales is not None:
            parts.append(MultiScaleWindows(self.scales, self.causal, self.scales_are_radii))
        if self.directions is not None:
            parts.append(Direction(self.directions, self.masks_diagonal))
        if self.alphas is not None:
            parts.append(DistancePenalty(self.alphas, self.learned))
        return parts[0] if len(parts) == 1 else SummedBias(parts)


def plan_biases(cfg: Any, side: str) -> list[Optional[BiasPlan]]:
    """Plans every layer of one side.

    Args:
        cfg: flags by their flat names.
        side: "encoder" or "decoder".

    Returns:
        One entry per layer, from the bottom; None for a layer with plain attention.

    Raises:
        ValueError: in one sentence, for the first fault.
    """
    kinds = parse_biases(getattr(cfg, f"{side}_attention_bias"), side)
    layers, heads = getattr(cfg, f"{side}_layers"), getattr(cfg, f"{side}_attention_heads")
    if not kinds:
        return [None] * layers
    flag = f"--{side}-attention-bias-layers"
    chosen = parse_layer_numbers(getattr(cfg, f"{side}_attention_bias_layers"), layers, flag)
    shared: dict[str, Any] = {}
    table: list[tuple[Scale, ...]] = []
    if "multi-scale" in kinds:
        table = _distribute_scales(cfg, side, len(chosen), heads)
        shared = {"causal": side == "decoder", "scales_are_radii": getattr(cfg, f"{side}_attention_scale_radii")}
    for kind in kinds:
        if kind in _DIRECTIONS:
            shared["directions"] = _directions(kind, heads)
            shared["masks_diagonal"] = cfg.encoder_attention_diagonal == "masked"
    if "distance" in kinds:
        slopes, alpha = getattr(cfg, f"{side}_distance_slopes"), getattr(cfg, f"{side}_distance_alpha")
        shared["alphas"] = tuple(geometric_alphas(heads) if slopes == "geometric" else [alpha] * heads)
        shared["learned"] = slopes == "learned"
    plans: list[Optional[BiasPlan]] = [None] * layers
    for number, layer in enumerate(chosen):
        plans[layer] = BiasPlan(scales=table[number] if table else None, **shared)
    with naming(f"--{side}-attention-bias"):
        for plan in plans:
            if plan is not None:
                plan.build()
    return plans


def build_windows(plan: Optional[BiasPlan], heads: int) -> AttentionBias:
    """What a plan limits attention to, for a layer that needs a description of it; all of the sentence if None."""
    return (plan or BiasPlan(scales=(Scale(),) * heads)).build()


def bias_faults(cfg: Any) -> list[str]:
    """What is wrong with ``--encoder-attention-bias`` and related flags, in at most one sentence."""
    countable = min(cfg.encoder_layers, cfg.encoder_attention_heads) > 0
    return fault_of(plan_biases, cfg, "encoder") if countable else []


def find_bias_without_attention(cfg: Any, side: str, branches: Sequence[str]) -> list[str]:
    """Says in one sentence if there is a limit, but none of the ``branches`` of a side is limited by it."""
    limited = {"self_attention", "long_short_range"}
    if getattr(cfg, f"{side}_attention_bias").strip() == "none" or not branches or not limited.isdisjoint(branches):
        return []
    return [
        f"--{side}-attention-bias limits self-attention, but got --{side}-branches {','.join(branches)} without it; "
        "add self_attention or drop the flag."
    ]


def find_idle_bias_flags(cfg: Any, side: str) -> list[str]:
    """Names of the flags of one side, by their flat names, that none of the chosen biases reads."""
    kinds = set(parse_biases(getattr(cfg, f"{side}_attention_bias"), side))
    idle = [f"{side}_{name}" for name, readers in _READERS.items() if kinds.isdisjoint(readers)]
    return [name for name in idle if hasattr(cfg, name)]  # a decoder has not all of them


def warn_of_idle_bias_flags(cfg: Any, config_class: Any, side: str) -> None:
    """Warns of flags of one side that were given although none of the chosen biases reads them, and of blind heads."""
    where = f"with --{side}-attention-bias {getattr(cfg, f'{side}_attention_bias')}"
    warn_without_effect(cfg, config_class, find_idle_bias_flags(cfg, side), where)
    alone = Scale(0 if getattr(cfg, f"{side}_attention_scale_radii") else 1)
    plans = [plan for plan in plan_biases(cfg, side) if plan and plan.directions and plan.masks_diagonal]
    if count := sum(plan.scales.count(alone) for plan in plans if plan.scales):
        logger.warning(
            f"heads that see nothing: {count}; scale {alone} shows a word itself alone, and a direction hides it; use "
            f"--{side}-attention-diagonal kept, or --{side}-attention-scales without {alone}."
        )


def parse_biases(text: str, side: str) -> list[str]:
    """Reads a comma-separated list of biases; "none" is an empty one.

    Raises:
        ValueError: if a name is unknown, occurs twice, or contradicts another.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["none"]:
        return []
    unknown = [name for name in names if name not in BIASES[side]]
    flag = f"--{side}-attention-bias"
    if unknown or len(set(names)) != len(names):
        raise ValueError(
            f"{flag} must be none or list biases out of {', '.join(BIASES[side])}, each at most once, but got {text!r}."
        )
    if sum(name in _DIRECTIONS for name in names) > 1:
        raise ValueError(
            f"{flag} can take one of {', '.join(_DIRECTIONS)}, since two leave heads with nothing to see, but got "
            f"{text!r}; bidirectional-split gives each direction half the heads."
        )
    return names


def parse_scales(text: str, side: str, radii: bool = False) -> list[Scale]:
    """Reads scales, comma-separated: integers (widths or radii), N/r for the sentence's length divided by r, and all.

    Raises:
        ValueError: if one cannot be read or is not possible, or if they do not grow.
    """
    flag = f"--{side}-attention-scales"
    scales = []
    for entry in (part.strip() for part in text.split(",")):
        digits = entry.removeprefix("N/").removeprefix("-")
        if entry == "all":
            scale = Scale()
        elif entry == "N":
            scale = Scale(divisor=1)
        elif not digits.isdecimal():
            raise ValueError(
                f"{flag} must list integers, fractions of the sentence such as N/4, or all, but got {entry!r} in "
                f"{text!r}."
            )
        elif entry.startswith("N/"):
            scale = Scale(divisor=int(entry[2:]))
        else:
            scale = Scale(window=int(entry))
        with naming(flag):
            check_scale(scale, causal=side == "decoder", scales_are_radii=radii)
        scales.append(scale)
    windows = [scale.window for scale in scales if scale.window is not None]
    divisors = [scale.divisor for scale in scales if scale.divisor is not None]
    grows = windows == sorted(set(windows)) and divisors == sorted(set(divisors), reverse=True)
    if not grows or Scale() in scales[:-1]:
        raise ValueError(f"{flag} must list different scales from the smallest to the largest, but got {text!r}.")
    return scales


def _distribute_scales(cfg: Any, side: str, layers: int, heads: int) -> list[tuple[Scale, ...]]:
    """One scale per head, for each of the layers that have windows."""
    radii = getattr(cfg, f"{side}_attention_scale_radii")
    scales = parse_scales(getattr(cfg, f"{side}_attention_scales"), side, radii)
    table = getattr(cfg, f"{side}_attention_scale_heads")
    if table is not None:
        counts = _parse_table(table, f"--{side}-attention-scale-heads", layers, len(scales), heads)
    else:
        alpha = getattr(cfg, f"{side}_attention_scale_alpha")
        with naming(f"--{side}-attention-scales, --{side}-attention-scale-alpha"):
            counts = [allocate_heads(alpha, layer, layers, len(scales), heads) for layer in range(1, layers + 1)]
    return [tuple(scale for scale, count in zip(scales, row, strict=True) for _ in range(count)) for row in counts]


def _parse_table(text: str, flag: str, layers: int, scales: int, heads: int) -> list[list[int]]:
    """Reads heads per scale, one list per layer that has windows.

    Raises:
        ValueError: if it does not have that form, or a row does not add up to the number of heads.
    """
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    fits = isinstance(rows, list) and len(rows) == layers and all(isinstance(row, list) for row in rows)
    numbers: Sequence[Any] = [n for row in rows for n in row] if fits else []
    if not fits or not all(type(n) is int and n >= 0 for n in numbers) or any(len(row) != scales for row in rows):
        raise ValueError(
            f"{flag} must hold one list per layer with windows, here {layers}, of one number per scale, here {scales}, "
            f"e.g. '[[3,1],[2,2]]', but got {text!r}."
        )
    for row in rows:
        if sum(row) != heads:
            raise ValueError(f"{flag} must hand out {heads} heads in every layer, but got {row}, which is {sum(row)}.")
    return rows


def _directions(kind: str, heads: int) -> tuple[str, ...]:
    if kind != "bidirectional-split":
        return (kind,) * heads
    if heads % 2 != 0:
        raise ValueError(
            f"--encoder-attention-bias bidirectional-split gives half of the heads to each direction, but got {heads} "
            "heads; use an even number."
        )
    return ("forward", "backward") * (heads // 2)  # in turn: next to multi-scale, a scale of several heads gets both


def pruned_bias_flags(cfg: Any, side: str, kept: Sequence[int]) -> dict[str, Any]:
    """The flags that describe the same layers once only those in ``kept`` (numbers from 0) are left."""
    plans = plan_biases(cfg, side)
    numbers = [new for new, old in enumerate(kept) if plans[old] is not None]
    if not any(plan is not None for plan in plans):
        return {}
    if not numbers:
        return {f"{side}_attention_bias": "none"}
    flags: dict[str, Any] = {f"{side}_attention_bias_layers": ",".join(map(str, numbers))}
    if "multi-scale" in parse_biases(getattr(cfg, f"{side}_attention_bias"), side):
        scales = parse_scales(
            getattr(cfg, f"{side}_attention_scales"), side, getattr(cfg, f"{side}_attention_scale_radii")
        )
        rows = [plans[old].scales for old in kept if plans[old] is not None]
        flags[f"{side}_attention_scale_heads"] = str([[row.count(scale) for scale in scales] for row in rows if row])
    return flags
