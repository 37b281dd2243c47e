"""How alike the heads of a pooling are: what penalties for agreement act on (arXiv:1912.00835, section 4)."""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from muse_plugin.analysis.drawing import label, open_panels, write_cells
from muse_plugin.analysis.result import Result, make_results_by_model
from muse_plugin.modules.attention_heads import Heads
from muse_plugin.modules.disagreement import overlaps

# What is drawn, and the titles of the panels.
_PANELS = {"weight_cosine": "weights over words", "vector_cosine": "vectors of the heads"}
_INCHES_PER_HEAD = 0.27
_NARROWEST = 1.9
_WRITTEN_HEADS = 16  # more are coloured only
_CLOSE = 0.9  # heads that are this alike are told apart by the third digit
_WHITE_FROM = 0.62  # of the scale


class HeadSimilarity:
    """How alike the m heads of a pooling are, as running sums over documents."""

    def __init__(self) -> None:
        self.documents = 0
        self._sums = torch.zeros((), dtype=torch.float64)

    def add(self, found: Heads) -> None:
        """Adds a batch."""
        weights, vectors = (tensor.double() for tensor in found)
        parts = [_cosines(weights), _cosines(vectors), overlaps(weights)]
        self._sums = self._sums + torch.stack([part.sum(dim=0) for part in parts]).cpu()
        self.documents += len(weights)

    def means(self) -> Tensor:
        """For two heads, mean over documents: cosine of their weights, cosine of their vectors, overlap; (3, m, m).

        The mean of the second over pairs is the penalty "emb"; the sum of the third, (A A^T - I)^2, is "penal".
        """
        return self._sums / self.documents


def _cosines(rows: Tensor) -> Tensor:
    units = F.normalize(rows, dim=-1)
    return torch.bmm(units, units.transpose(1, 2))


class SimilarityRow(NamedTuple):
    """Two heads, numbered from 0; all are means over documents, cosines from -1 to 1, a head with itself has 1.

    The mean of ``vector_cosine`` over all rows is the penalty "emb" of a text, the sum of ``overlap_penalty`` the
    penalty "penal"; training adds those of a pair's two texts.
    """

    model: str
    head: int
    other_head: int
    weight_cosine: float
    vector_cosine: float
    overlap_penalty: float


def read_similarity(name: str, similarity: HeadSimilarity) -> list[SimilarityRow]:
    """Means to rows, one for each ordered pair of heads, each with itself, too; none for a single head."""
    means = similarity.means()
    heads = means.shape[1]
    return [
        SimilarityRow(name, head, other, *means[:, head, other].tolist())
        for head, other in itertools.product(range(heads), repeat=2)
        if heads > 1
    ]


def make_results(rows: Sequence[SimilarityRow]) -> list[Result]:
    """Rows to results, one for each model."""
    return make_results_by_model("head_similarity", "Similarity of the pooling's heads", _describe, rows, draw)


def _describe(rows: Sequence[SimilarityRow]) -> str:
    apart = [row.weight_cosine for row in rows if row.head != row.other_head]
    return (
        "Cosine of two heads, mean over documents: of their weights over a document's words, and of the "
        "vectors that they make of the document; 1 for heads that do the same. Of different heads' weights it "
        f"is {sum(apart) / len(apart):.3f} on average. The penalty --disagreement emb of a text (training adds "
        "those of a pair's two texts), the mean cosine of vectors, is "
        f"{sum(row.vector_cosine for row in rows) / len(rows):.4g}; penal, the sum of the column "
        f"overlap_penalty, is {sum(row.overlap_penalty for row in rows):.4g}."
    )


def draw(rows: Sequence[SimilarityRow], path: Path) -> None:
    """Draws two tables of heads and heads, shaded by cosine; each has its own scale, which ends at 1."""
    heads = max(row.head for row in rows) + 1
    side = max(_NARROWEST, _INCHES_PER_HEAD * min(heads, _WRITTEN_HEADS))
    size = 0.6 + (side + 1.2) * len(_PANELS), side + 0.8
    with open_panels(path, *size, 1, len(_PANELS)) as (figure, (panels,)):
        for axes, (column, title) in zip(panels, _PANELS.items(), strict=True):
            table = np.zeros((heads, heads))
            for row in rows:
                table[row.head, row.other_head] = getattr(row, column)
            lowest = min(float(table.min()), 0.999)  # equal heads leave a scale, too
            image = axes.imshow(table, cmap="Greys", vmin=lowest, vmax=1)
            if heads <= _WRITTEN_HEADS:
                digits, white_from = 2 if lowest < _CLOSE else 3, lowest + _WHITE_FROM * (1 - lowest)
                write_cells(axes, table, table > white_from, partial(write, digits=digits), 5.5)
            axes.set_title(title, fontsize=9)
            label(axes, None, "head", "head", counts="xy")
            figure.colorbar(image, ax=axes, label="mean cosine (-1 to 1)", fraction=0.05)


def write(value: float, digits: int) -> str:
    """A cosine in few characters, without the zero in front: .97, 1, -.12, .00."""
    rounded = round(value, digits)
    return f"{rounded:.0f}" if rounded in (-1, 1) else f"{rounded + 0:.{digits}f}".replace("0.", ".", 1)
