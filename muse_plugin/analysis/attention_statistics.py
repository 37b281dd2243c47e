"""Numbers about attention over a corpus, as running sums: memory does not grow with the corpus.

Of every head: how far it looks, how its weight is spread over distances, and how sharp it is, the last by the length of
the sentence. Words that are padding count neither as queries nor as keys; nor do queries that see nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

import torch
from torch import Tensor

REACH = 50  # offsets beyond are counted together with this one
LENGTH_BOUNDS = (5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150)
_SEEN = 0.5  # a row of weights has a sum of 1, or of 0 where a query sees nothing


class Sharpness(NamedTuple):
    """How sharp the heads of one module are in sentences of one range of lengths; tensors of shape (H,), float64.

    Attributes:
        low: shortest sentence in tokens.
        high: longest; None without a bound.
        sentences: how many there are.
        entropy: of the weights of a query in bits, mean over queries.
        normalized_entropy: the same divided by the logarithm of the number of keys in the part of the sentence that the
            query looks at, those outside of a head's window among them: 0 for a single key, 1 for equal weights of all;
            mean over queries with at least two, NaN if there are none.
        largest: largest weight of a query, mean over queries.
    """

    low: int
    high: Optional[int]
    sentences: int
    entropy: Tensor
    normalized_entropy: Tensor
    largest: Tensor


class OffsetSums:
    """How much weight keys get by their offset from the query: key position minus query position, in tokens.

    And where the strongest edge of each query leads, which Guo et al. 2020 (arXiv:1912.00544, Figure 3) count.

    Args:
        heads: number of heads H.
        reach: offsets from -reach to reach are told apart.
    """

    def __init__(self, heads: int, reach: int = REACH) -> None:
        self.reach = reach
        self.queries = torch.zeros(heads, dtype=torch.float64)
        self._weight = torch.zeros(heads, 2 * reach + 1, dtype=torch.float64)
        self._distance = torch.zeros(heads, dtype=torch.float64)
        self._strongest = torch.zeros(heads, 2 * reach + 1, dtype=torch.float64)
        self._pairs = torch.zeros(2 * reach + 1, dtype=torch.float64)

    def add(self, weights: Tensor, real: Tensor) -> None:
        """Adds a batch of self-attention.

        Args:
            weights: shape (B, H, T, T).
            real: bool, shape (B, T), true at words.
        """
        length = weights.shape[-1]
        places = torch.arange(length, device=weights.device)
        offsets = places - places[:, None]  # (T, S)
        total = torch.einsum("bhts,bt->hts", weights.double(), real.double())
        pairs = torch.einsum("bt,bs->ts", real.double(), real.double())
        bins = (offsets.clamp(-self.reach, self.reach) + self.reach).flatten()
        self._distance += (total * offsets.abs()).sum((1, 2)).cpu()
        self._weight.index_add_(1, bins.cpu(), total.flatten(1).cpu())
        self._pairs.index_add_(0, bins.cpu(), pairs.flatten().cpu())
        counted = ((weights.sum(-1) > _SEEN) & real[:, None]).double()  # (B, H, T)
        self.queries += counted.sum((0, 2)).cpu()
        edges = (weights.argmax(-1) - places).clamp(-self.reach, self.reach) + self.reach
        edges, counted = (part.transpose(0, 1).flatten(1).cpu() for part in (edges, counted))
        self._strongest.scatter_add_(1, edges, counted)

    def mean_distance(self) -> Tensor:
        """sum_j w_ij |i - j| in tokens, mean over queries, shape (H,)."""
        return self._distance / self.queries

    def shares(self) -> Tensor:
        """How the weight of a head is spread over offsets, shape (H, 2 * reach + 1); each row has a sum of 1."""
        return self._weight / self.queries[:, None]

    def strongest(self) -> Tensor:
        """Of how many queries the strongest edge has an offset, as a share of all; shape as of ``shares``."""
        return self._strongest / self.queries[:, None]

    def mean_weights(self) -> Tensor:
        """Mean weight of a key at an offset, where the sentence has a word there; shape as of ``shares``, else NaN."""
        return self._weight / self._pairs


class AttentionStatistics:
    """Everything about the heads of one module.

    Args:
        heads: number of heads H.
        visible: which keys a query may choose from: "all" of its sentence, those "until" its own place, "before" or
            "after" it.
        has_offsets: false for attention between two sentences, whose positions cannot be compared.
        bounds: longest sentences of the ranges of lengths, increasing; one more range is above.
    """

    def __init__(
        self, heads: int, visible: str = "all", has_offsets: bool = True, bounds: Sequence[int] = LENGTH_BOUNDS
    ) -> None:
        self.visible = visible
        self.bounds = tuple(bounds)
        self.offsets = OffsetSums(heads) if has_offsets else None
        ranges = len(self.bounds) + 1
        self._sentences = torch.zeros(ranges, dtype=torch.int64)
        # By range and head: queries, entropy, largest weight; queries with a choice, normalised entropy.
        self._sums = torch.zeros(ranges, heads, 5, dtype=torch.float64)

    def add(self, weights: Tensor, queries: Tensor, keys: Tensor) -> None:
        """Adds a batch.

        Args:
            weights: shape (B, H, T, S).
            queries: bool, shape (B, T), true at words of the sentence that looks.
            keys: bool, shape (B, S), true at words of the sentence that is looked at, whose length is the length.
        """
        if self.offsets is not None:
            self.offsets.add(weights, queries)
        counts = (queries[:, None] & (weights.sum(-1) > _SEEN)).double()  # (B, H, T)
        entropy = -torch.special.xlogy(weights, weights).sum(-1).double() / math.log(2)
        choice = _COUNT_VISIBLE[self.visible](keys, queries)[:, None].double()  # (B, 1, T)
        chosen = counts * (choice > 1)
        highest = torch.log2(choice.clamp(min=2))
        sums = torch.stack(
            [
                counts.sum(-1),
                (counts * entropy).sum(-1),
                (counts * weights.amax(-1)).sum(-1),
                chosen.sum(-1),
                (chosen * entropy / highest).sum(-1),
            ],
            dim=-1,
        )
        lengths = keys.sum(1).cpu()
        ranges = torch.bucketize(lengths, torch.tensor(self.bounds))
        self._sums.index_add_(0, ranges, sums.cpu())
        self._sentences += torch.bincount(ranges, minlength=len(self._sentences))

    def overall(self) -> Sharpness:
        """All sentences together."""
        return _divide(1, None, int(self._sentences.sum()), self._sums.sum(0))

    def by_length(self) -> list[Sharpness]:
        """Each range of lengths that has sentences."""
        lows = [1, *(bound + 1 for bound in self.bounds)]
        ranges = zip(lows, [*self.bounds, None], self._sentences.tolist(), self._sums, strict=True)
        return [_divide(low, high, count, sums) for low, high, count, sums in ranges if count > 0]


def _divide(low: int, high: Optional[int], sentences: int, sums: Tensor) -> Sharpness:
    queries, entropy, largest, chosen, normalized = sums.unbind(-1)
    return Sharpness(low, high, sentences, entropy / queries, normalized / chosen, largest / queries)


# From keys and queries, as of ``AttentionStatistics.add``: how many keys each query may choose from, shape (B, T).
_COUNT_VISIBLE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all": lambda keys, queries: keys.sum(1, keepdim=True).expand(queries.shape),
    "until": lambda keys, queries: keys.cumsum(1),
    "before": lambda keys, queries: keys.cumsum(1) - keys.long(),
    "after": lambda keys, queries: keys.sum(1, keepdim=True) - keys.cumsum(1),
}
