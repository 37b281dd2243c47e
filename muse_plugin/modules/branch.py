"""What a branch of the parallel layer is. Read ``parallel_layer.py`` next: it runs a list of these.

A branch asks for named slices of the layer's one input projection and hands a slice of the layer's one output
projection its input. Two branches that ask for the same name share it: that is the paper's shared projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from muse_plugin.modules.layer_cache import LayerCache
from muse_plugin.modules.padding_mask import Padding
from muse_plugin.modules.retained_dropout import RetainsDropout


@dataclass(frozen=True)
class Projection:
    """A named slice of the layer's input projection.

    Attributes:
        name: branches that ask for the same name read the same rows.
        size: number of rows, i.e. width of the projected vector.
        noisy: whether input dropout acts on what this slice reads.
        cached: whether step-by-step decoding keeps the history of this slice.
        transient: whether no gradient needs this slice itself: in training it is a product of its own, so that its
            memory is free as soon as the branch has read it, and does not stay with that of the other slices.
    """

    name: str
    size: int
    noisy: bool = False
    cached: bool = False
    transient: bool = False


@dataclass
class LayerContext:
    """What a branch may know besides its projections; B sentences, T queries, S keys (history and queries).

    Made once for all layers of an encoder or decoder; what is left at its default there differs between layers.

    Attributes:
        length: number of queries T; the last T of the S keys belong to them.
        key_padding: padding of the keys; None if there is none.
        encoder_out: encoder states, shape (S_enc, N, C_enc), where every B / N neighbouring rows share a sentence; None
            in an encoder.
        encoder_padding: padding of the encoder states, of N rows; None if there is none.
        causal: whether a query may only see keys up to its own position.
        lengths: tokens of each sentence, shape (B,), int64, on the CPU; counted where needed if None. In a step of
            static shapes on the device, where nothing asks for the numbers, and (1,), since a decoder's do not matter.
        cache: the layer's history, extended in place (begun in the same form, see ``InferenceForm``); None outside
            step-by-step decoding.
        need_weights: whether cross-attention leaves its weights in ``attention_weights``.
        attention_weights: shape (H, B, T, S_enc), float32, left here by cross-attention when asked.
    """

    length: int
    key_padding: Padding | None = None
    encoder_out: Tensor | None = None
    encoder_padding: Padding | None = None
    causal: bool = False
    lengths: Tensor | None = None
    cache: LayerCache | None = None
    need_weights: bool = False
    attention_weights: Tensor | None = None

    @property
    def key_padding_mask(self) -> Tensor | None:
        """Bool, shape (B, S), true at padding; None if there is none."""
        return None if self.key_padding is None else self.key_padding.mask

    @property
    def encoder_padding_mask(self) -> Tensor | None:
        """Bool, shape (N, S_enc), true at padding; None if there is none."""
        return None if self.encoder_padding is None else self.encoder_padding.mask

    def take(self, rows: slice) -> LayerContext:
        """The context of some of the sentences of an encoder."""
        padding = None if self.key_padding is None else Padding(*(part[rows] for part in self.key_padding))
        return replace(self, key_padding=padding, lengths=None if self.lengths is None else self.lengths[rows])


class Branch(RetainsDropout):
    """One of the parallel branches.

    Attributes:
        projections: slices of the input projection this branch reads.
        output_size: width of what it returns, i.e. its columns of the output projection.
        group: branches of one group share output bias and output dropout (one block of the published model).
        output_gain: its output columns start in uniform(+-output_gain / sqrt(width of the group)).
        joined_output: whether the published speed model has these columns in the one output matrix of its layer; counts
            for ``output_init`` of ``ParallelLayer`` alone.
    """

    projections: tuple[Projection, ...] = ()
    output_size: int = 0
    group: str = ""
    output_gain: float = 1.0
    joined_output: bool = True

    def forward(self, projected: Mapping[str, Tensor], context: LayerContext) -> Tensor:
        """Computes the branch up to, not including, its output projection.

        Args:
            projected: by name, shape (B, T, size), or (B, S, size) for cached slices; "input" is what the branches
                read, shape (B, T, C), for a branch that keeps projections of its own.
            context: see ``LayerContext``.

        Returns:
            Tensor of shape (B, T, output_size).
        """
        raise NotImplementedError

    def fold(self, rows: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """Offers further slices of the input projection that replace products of this branch, for inference only.

        Args:
            rows: weight (size, C) and bias (size,) of every slice of the input projection, by name.

        Returns:
            Weight and bias by the name under which ``forward`` finds the slice; empty if nothing can be folded.
        """
        return {}


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, H*D) -> (B, H, T, D), a view."""
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, H*D)."""
    return x.transpose(1, 2).flatten(2)


def check_heads(embed_dim: int, num_heads: int, what: str) -> None:
    """Raises ValueError unless the width divides evenly into heads."""
    if num_heads < 1 or embed_dim % num_heads != 0:
        raise ValueError(
            f"embed_dim must be divisible by the number of {what} heads, but got embed_dim={embed_dim} and "
            f"{num_heads} heads; change one of them."
        )
