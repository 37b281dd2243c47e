"""Compares two sentences head by head and level by level: match, then aggregate over heads, then over layers.

Source: Wang et al., "Multi-level Head-wise Match and Aggregation in Transformer for Textual Sequence Matching", AAAI
2020; numbers of equations are theirs. Neither sentence is read when the other is: of each only its head vectors are
left, so those can be stored. What depends on one sentence alone is computed once in ``score_all_pairs``, not per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muse_plugin.modules.attention_heads import in_full_precision

MATCHES = ("element", "cosine", "bilinear")
AGGREGATIONS = ("max", "concat")
# Numbers that ``score_all_pairs`` holds at a time, in each of few tensors: small enough for a processor's cache.
_BLOCK = 1 << 18
_COLUMNS = 512  # second sentences at a time
_SMALLEST_NORM = 1e-8


class LevelLinear(nn.Module):
    """A linear map that all levels share, or one for each.

    Args:
        levels: number L of levels.
        input_size: width I.
        output_size: width O.
        per_level: one map for each.
    """

    def __init__(self, levels: int, input_size: int, output_size: int, per_level: bool = False) -> None:
        super().__init__()
        maps = levels if per_level else 1
        bound = input_size**-0.5
        self.weight = nn.Parameter(torch.empty(maps, output_size, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(maps, output_size).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, L, ..., I) to (B, L, ..., O)."""
        if len(self.weight) == 1:
            return F.linear(x, self.weight[0], self.bias[0])
        middle = (1,) * (x.dim() - 3)
        bias = self.bias.view(len(self.bias), *middle, -1)
        return torch.einsum("bl...i,loi->bl...o", x, self.weight) + bias

    def of_level(self, level: int) -> tuple[Tensor, Tensor]:
        """Weight (O, I) and bias (O,) of one level."""
        number = level if len(self.weight) > 1 else 0
        return self.weight[number], self.bias[number]


class Match(nn.Module):
    """How the vectors of one head are compared (Eqs. 9-11); heads share the parameters.

    Args:
        kind: "cosine" or "bilinear", a number each; "element": ReLU(W [s; t; s-t; s*t] + b), a vector.
        levels: number L of layers that are compared.
        head_dim: width D of a head's vector.
        match_dim: width of what "element" makes of a pair.
        per_level: parameters of each layer are its own.

    Raises:
        ValueError: if the kind is unknown.
    """

    def __init__(self, kind: str, levels: int, head_dim: int, match_dim: int, per_level: bool = False) -> None:
        super().__init__()
        if kind not in MATCHES:
            raise ValueError(f"kind must be one of {', '.join(MATCHES)}, but got {kind!r}.")
        self.kind = kind
        self.output_size = match_dim if kind == "element" else 1
        self.linear: LevelLinear | None = None
        self.bilinear: nn.Parameter | None = None
        if kind == "element":
            self.linear = LevelLinear(levels, 4 * head_dim, match_dim, per_level)
        elif kind == "bilinear":
            bound = head_dim**-0.5
            maps = levels if per_level else 1
            self.bilinear = nn.Parameter(torch.empty(maps, head_dim, head_dim).uniform_(-bound, bound))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Matches head i with head i, in every layer; (B, L, H, D) twice to (B, L, H, ``output_size``)."""
        if self.linear is not None:
            features = torch.cat([first, second, first - second, first * second], dim=-1)
            return torch.relu(self.linear(features))
        return (self.prepare(first) * self.prepare_second(second)).sum(dim=-1, keepdim=True)

    def prepare(self, first: Tensor) -> Tensor:
        """What the first sentence brings to the product of "cosine" and "bilinear", (B, L, H, D)."""
        if self.bilinear is None:
            return _normalise(first)
        if len(self.bilinear) == 1:
            return first @ self.bilinear[0]
        return torch.einsum("blhi,lio->blho", first, self.bilinear)

    def prepare_second(self, second: Tensor) -> Tensor:
        """What the second sentence brings to it, (B, L, H, D)."""
        return _normalise(second) if self.bilinear is None else second

    def split(self, level: int, first: Tensor) -> Tensor:
        """Splits "element" by linearity: W [s; t; s-t; s*t] + b = A [t; 1], with A of ``first`` alone.

        Args:
            level: number of the layer.
            first: vectors of one head, shape (N, D).

        Returns:
            A, shape (O, N, D + 1).
        """
        assert self.linear is not None
        weight, bias = self.linear.of_level(level)
        own, other, difference, product = weight.chunk(4, dim=1)
        matrix = first.new_empty(len(weight), *first.shape[:1], first.shape[1] + 1)
        torch.mul(product.unsqueeze(1), first, out=matrix[..., :-1]).add_((other - difference).unsqueeze(1))
        torch.addmm(bias.unsqueeze(1), own + difference, first.t(), out=matrix[..., -1])
        return matrix


class Aggregation(nn.Module):
    """From several vectors to one, ReLU on top (Eqs. 12 and 13); the parts share the parameters of "max".

    Args:
        kind: "max": the largest value of each channel, then a linear map; "concat": side by side, then a linear map.
        levels: how many of these there are.
        parts: number of vectors.
        input_size: width of each.
        output_size: width of the result.
        per_level: see ``LevelLinear``.

    Raises:
        ValueError: if the kind is unknown.
    """

    def __init__(
        self, kind: str, levels: int, parts: int, input_size: int, output_size: int, per_level: bool = False
    ) -> None:
        super().__init__()
        if kind not in AGGREGATIONS:
            raise ValueError(f"kind must be one of {', '.join(AGGREGATIONS)}, but got {kind!r}.")
        self.kind = kind
        self.linear = LevelLinear(levels, input_size * (parts if kind == "concat" else 1), output_size, per_level)

    def forward(self, parts: Tensor) -> Tensor:
        """Aggregates (B, L, P, I) to (B, L, O)."""
        return torch.relu(self.linear(parts.amax(dim=2) if self.kind == "max" else parts.flatten(2)))


class HeadWiseMatch(nn.Module):
    """The network between two sentences' head vectors and the logits (Eqs. 6-14).

    The layer of Eq. 8 is between the aggregation over heads and that over layers; with one layer the aggregation
    over its heads goes to the output at once, as published. Earlier versions had it there, too: it is built where a
    state that is loaded has it.

    Args:
        levels: number L of layers that are compared.
        heads: number H of heads in each.
        head_dim: width D of a head's vector.
        outputs: number of classes.
        match: see ``Match``.
        aggregation: see ``Aggregation``; of heads, and of layers.
        match_dim: width of all hidden vectors; None for ``head_dim``.
        hierarchy: first over the heads of a layer, then over layers; without it, over all at once.
        per_level: matching and aggregation over heads have parameters for each layer.
        dropout: probability in [0, 1) of dropping a channel of the head vectors and of each hidden layer.

    Raises:
        ValueError: if a size is below 1, or match and aggregation do not go together.
    """

    def __init__(
        self,
        levels: int,
        heads: int,
        head_dim: int,
        outputs: int,
        match: str = "element",
        aggregation: str = "max",
        match_dim: int | None = None,
        hierarchy: bool = True,
        per_level: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        width = head_dim if match_dim is None else match_dim
        if min(levels, heads, head_dim, outputs, width) < 1:
            raise ValueError(
                "head-wise match needs layers, heads, widths and classes of at least 1, but got "
                f"{levels}, {heads}, {head_dim} and {width}, and {outputs}."
            )
        if match in ("cosine", "bilinear") and aggregation == "max":
            raise ValueError(
                "cosine and bilinear make one number of each head, of which the maximum would leave a single one; "
                "concatenate them."
            )
        self.shape = levels, heads, head_dim
        self.match = Match(match, levels, head_dim, width, per_level)
        has_levels = hierarchy and levels > 1
        # One layer is aggregated over its heads whatever the hierarchy: there is nothing else.
        joined = levels > 1 and not hierarchy
        steps, parts = (1, levels * heads) if joined else (levels, heads)
        self.head_aggregation = Aggregation(aggregation, steps, parts, self.match.output_size, width, per_level)
        self.joined = joined
        self.level_linear = LevelLinear(levels, width, width, per_level) if has_levels else None
        self.level_aggregation = Aggregation(aggregation, 1, levels, width, width) if has_levels else None
        self.output = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self.level_linear is None and not self.joined and f"{prefix}level_linear.weight" in state_dict:
            weight = self.output.weight
            self.level_linear = LevelLinear(1, weight.shape[1], weight.shape[1]).to(weight)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @property
    def vector_size(self) -> int:
        """Numbers that stand for a sentence: L * H * D."""
        levels, heads, width = self.shape
        return levels * heads * width

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores pairs.

        Args:
            first: head vectors of the first sentences, shape (B, L * H * D), layer by layer, head by head.
            second: of the second ones.

        Returns:
            Logits, shape (B, outputs).
        """
        matched = self.dropout(self._match_parts(first, second))
        hidden = self.dropout(self.head_aggregation(matched))  # (B, L, O)
        if self.level_linear is not None:
            hidden = self.dropout(torch.relu(self.level_linear(hidden)))
        if self.level_aggregation is not None:
            hidden = self.dropout(self.level_aggregation(hidden.unsqueeze(1)))
        return self.output(hidden.squeeze(1))

    def winning_heads(self, first: Tensor, second: Tensor) -> Tensor:
        """How much of each layer's maximum is each head's: the share of channels in which it is the largest.

        Returns:
            Shares for arguments of ``forward``, shape (B, L, H); each layer's sum to 1 (without hierarchy, those of all
            layers together). Channels that are zero in all heads belong to none, so that a sum can be less than 1.

        Raises:
            ValueError: if heads are not aggregated by their maximum.
        """
        if self.head_aggregation.kind != "max":
            raise ValueError("heads win only where their maximum is taken, but this match concatenates them.")
        parts = self._match_parts(first, second)
        highest, winner = parts.max(dim=2)
        shares = F.one_hot(winner, parts.shape[2]) * (highest > 0).unsqueeze(-1)
        return shares.to(parts.dtype).mean(dim=2).view(len(first), *self.shape[:2])

    @torch.no_grad()
    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores every first sentence with every second one; without gradients.

        A pair costs what no split into terms of one sentence can spare: with "element" one product (match_dim x D) per
        head, with "cosine" and "bilinear" D multiplications per head.

        Args:
            first: see ``forward``, shape (N, L * H * D).
            second: the same, shape (M, L * H * D).

        Returns:
            Logits, shape (N, M, outputs).
        """
        rows, columns = (vectors.view(len(vectors), *self.shape) for vectors in (first, second))
        if self.match.kind == "element":
            columns = F.pad(columns, (0, 1), value=1.0)  # see Match.split
        else:
            rows, columns = self.match.prepare(rows), self.match.prepare_second(columns)
        # Heads first: the vectors of one head are adjacent. (L, H, N, D) and (L, H, D, M).
        rows, columns = rows.permute(1, 2, 0, 3).contiguous(), columns.permute(1, 2, 3, 0).contiguous()
        logits = first.new_empty(len(first), len(second), self.output.out_features)
        widest = self.output.in_features
        if self.match.kind != "element":
            widest = max(widest, self.head_aggregation.linear.weight.shape[2])  # numbers of all heads, side by side
        column_step = max(1, min(len(second), _COLUMNS))
        row_step = max(1, _BLOCK // (column_step * widest))
        for start in range(0, len(first), row_step):
            for begin in range(0, len(second), column_step):
                part = rows[:, :, start : start + row_step], columns[..., begin : begin + column_step]
                block = self._score_block(*part).view(-1, part[0].shape[2], part[1].shape[3])
                logits[start : start + row_step, begin : begin + column_step] = block.permute(1, 2, 0)
        return logits

    def _score_block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Logits (outputs, N * M) of (L, H, N, D) with (L, H, D, M).

        Channels come first everywhere, so that a linear map is one product of matrices and moves nothing.
        """
        levels, heads = rows.shape[:2]
        places = [[(level, head) for head in range(heads)] for level in range(levels)]
        if self.joined:
            places = [[place for level in places for place in level]]
        hidden = []
        for step, parts in enumerate(places):
            x = self._aggregate_heads(step, parts, rows, columns)
            if self.level_linear is not None:
                x = torch.relu_(_map_channels(x, *self.level_linear.of_level(step)))
            hidden.append(x)
        x = hidden[0]
        if self.level_aggregation is not None:
            if self.level_aggregation.kind == "max":
                for other in hidden[1:]:
                    torch.maximum(x, other, out=x)
            else:
                x = torch.cat(hidden)
            x = torch.relu_(_map_channels(x, *self.level_aggregation.linear.of_level(0)))
        return _map_channels(x, self.output.weight, self.output.bias)

    def _aggregate_heads(self, step: int, parts: Sequence[tuple[int, int]], rows: Tensor, columns: Tensor) -> Tensor:
        """Hidden vectors (O, N * M) of one aggregation over heads; ``parts`` are their (level, head)."""
        weight, bias = self.head_aggregation.linear.of_level(step)
        count, across = rows.shape[2], columns.shape[3]
        if self.match.kind != "element":
            matched = rows.new_empty(len(parts), count, across)
            for number, place in enumerate(parts):
                torch.mm(rows[place], columns[place], out=matched[number])
            return torch.relu_(_map_channels(matched.flatten(1), weight, bias))
        size = self.match.output_size
        joins = self.head_aggregation.kind == "concat"
        total, matched = (rows.new_empty(size * count, across) for _ in range(2))
        mapped = bias.unsqueeze(1)
        for number, place in enumerate(parts):
            out = total if number == 0 and not joins else matched
            torch.mm(self.match.split(place[0], rows[place]).flatten(0, 1), columns[place], out=out)
            if joins:
                part = weight[:, number * size : (number + 1) * size]
                mapped = torch.addmm(mapped, part, torch.relu_(matched).view(size, -1))
            elif number > 0:
                torch.maximum(total, matched, out=total)
        if joins:
            return torch.relu_(mapped)
        # A maximum of ReLUs is a ReLU of maxima.
        return torch.relu_(_map_channels(torch.relu_(total).view(size, -1), weight, bias))

    def _match_parts(self, first: Tensor, second: Tensor) -> Tensor:
        """What is aggregated over heads: those of a layer (B, L, H, O), or of all at once (B, 1, L * H, O)."""
        pair = (self.dropout(vectors.view(len(vectors), *self.shape)) for vectors in (first, second))
        matched: Tensor = self.match(*pair)
        return matched.flatten(1, 2).unsqueeze(1) if self.joined else matched


class VectorMatch(nn.Module):
    """Compares one vector of each sentence by "element", then classifies: the paper's classic match.

    Args:
        width: of a sentence's vector.
        outputs: number of classes.
        match_dim: width of the hidden vector; None for ``width``.
        dropout: probability in [0, 1) of dropping a channel of the vectors and of the hidden layer.
    """

    def __init__(self, width: int, outputs: int, match_dim: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.match = Match("element", 1, width, width if match_dim is None else match_dim)
        self.output = nn.Linear(self.match.output_size, outputs)
        self.dropout = nn.Dropout(dropout)
        self.vector_size = width

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores pairs: two of shape (B, ``vector_size``) to logits (B, outputs)."""
        matched = self.match(*(self.dropout(vectors)[:, None, None] for vectors in (first, second)))
        return self.output(self.dropout(matched[:, 0, 0]))

    @torch.no_grad()
    def score_all_pairs(self, first: Tensor, second: Tensor) -> Tensor:
        """See ``HeadWiseMatch.score_all_pairs``."""
        logits = first.new_empty(len(first), len(second), self.output.out_features)
        columns = F.pad(second, (0, 1), value=1.0).t().contiguous()
        step = max(1, _BLOCK // (self.match.output_size * max(1, len(second))))
        for start in range(0, len(first), step):
            hidden = self.match.split(0, first[start : start + step]).flatten(0, 1) @ columns
            hidden = torch.relu_(hidden).view(self.match.output_size, -1)
            scores = _map_channels(hidden, self.output.weight, self.output.bias)
            logits[start : start + step] = scores.view(len(scores), -1, len(second)).permute(1, 2, 0)
        return logits


def _normalise(vectors: Tensor) -> Tensor:
    exact = in_full_precision(vectors)  # float16 has no number as small as the smallest norm
    return F.normalize(exact, dim=-1, eps=_SMALLEST_NORM).to(vectors.dtype)


def _map_channels(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear map of the channels of (I, pairs)."""
    return torch.addmm(bias.unsqueeze(1), weight, x)
