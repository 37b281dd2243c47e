"""Runs layers and branches from plain masks."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from muse_plugin.modules.attention import make_padding
from muse_plugin.modules.attention_bias import Scale
from muse_plugin.modules.branch import LayerContext


def make_context(
    length: int,
    key_padding_mask: Optional[Tensor] = None,
    encoder_padding_mask: Optional[Tensor] = None,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> LayerContext:
    """A context with these masks, for states of that dtype."""
    like = torch.empty(0, dtype=dtype)
    paddings = {"key_padding": key_padding_mask, "encoder_padding": encoder_padding_mask}
    return LayerContext(length, **{name: make_padding(mask, like) for name, mask in paddings.items()}, **options)


def run_layer(
    layer: nn.Module, x: Tensor, key_padding_mask: Optional[Tensor] = None, **options: Any
) -> tuple[Tensor, Optional[Tensor]]:
    """The states that a layer makes of ``x``, and the weights of cross-attention that it leaves."""
    context = make_context(len(x), key_padding_mask, dtype=x.dtype, **options)
    return layer(x, context), context.attention_weights


def make_inputs(length: int, width: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """States of three rows and what an encoder made of four words, both partly padded: arguments of ``run_layer``."""
    mask = torch.zeros(3, length, dtype=torch.bool)
    mask[1, :2] = True
    return {
        "x": torch.randn(length, 3, width, dtype=dtype),
        "key_padding_mask": mask,
        "encoder_out": torch.randn(4, 3, width, dtype=dtype),
        "encoder_padding_mask": torch.tensor([[False] * 4, [True] + [False] * 3, [False] * 3 + [True]]),
    }


def fill_layer(layer: nn.Module, std: Optional[float] = None) -> None:
    """Random biases and norms, since zeros and ones hide mistakes; with ``std``, random weights too."""
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.5)
        elif "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif std is not None:
            nn.init.normal_(parameter, std=std)


def pad_rows(rows: list[Tensor], filling: float, longer: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (n, C) as a batch with ``filling`` behind them; their lengths, and the mask of the padding."""
    lengths = torch.tensor([len(row) for row in rows])
    batch = pad_sequence(rows, batch_first=True, padding_value=filling)
    batch = F.pad(batch, (0, 0, 0, longer), value=filling)
    return batch, lengths, torch.arange(batch.shape[1]) >= lengths[:, None]


def pad_random_rows(lengths: tuple[int, ...], width: int, filling: float, longer: int) -> tuple[Tensor, Tensor, Tensor]:
    """``pad_rows`` of rows of so many words: random numbers, but always the same ones."""
    numbers = torch.randn(len(lengths), max(lengths), width, generator=torch.Generator().manual_seed(3)).double()
    return pad_rows([row[:length] for row, length in zip(numbers, lengths, strict=True)], filling, longer)


def scales_of(text: str) -> list[Scale]:
    """Reads 3,N/4,all."""
    parts = text.split(",")
    return [
        Scale() if p == "all" else Scale(divisor=int(p[2:])) if p.startswith("N/") else Scale(int(p)) for p in parts
    ]
