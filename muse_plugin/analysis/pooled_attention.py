"""What the heads of a pooling look at in a corpus: low-rank attention (arXiv:1912.00835), structured self-attention.

Such heads have one weight for each word of a document, not one for each pair of words: their figures are others than
those of an encoder's attention. What is gathered here is shown by ``attended_words.py``,
``head_similarity.py`` and, for one document, ``shaded_document.py``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from muse_plugin.analysis.analyzed_model import AnalyzedModel, Batches
from muse_plugin.analysis.load import move_inputs
from muse_plugin.modules.attention_heads import AttentionHeads, Heads
from muse_plugin.modules.disagreement import overlaps
from muse_plugin.modules.padding_mask import mask_padding
from muse_plugin.modules.sentence_pooling import SentencePooling
from muse_plugin_command.flags.analyze import MAX_TOKENS

_SIDES = ("src", "pair")  # prefixes of the texts of a batch
_CLASSIFIED = "label"  # what a classifier's task predicts


def find_pooling(model: nn.Module) -> Optional[SentencePooling]:
    """The pooling of a model if it has heads, otherwise None."""
    pooling = getattr(model, "pooling", None)
    return pooling if isinstance(pooling, SentencePooling) and pooling.has_heads else None


def list_classes(analyzed: AnalyzedModel) -> list[str]:
    """Names of the classes of a classifier; none for other models."""
    return list(analyzed.task.labels) if getattr(analyzed.task, "predicts", None) == _CLASSIFIED else []


class Uses(NamedTuple):
    """What words are given in documents: one entry for each word of each document; tensors of shape (N,).

    Attributes:
        words: id of the word, int64.
        labels: number of the document's class, int64.
        documents: place of the document in the split, int64.
        texts: 1, or 2 for the second text of a pair, int64; each text is a document of its own.
        counts: how often the word stands in the document, int64.
        weights: what it is given there: the sum over its places of the mean over heads, float64.
        ratios: ``weights`` divided by what equal weights would give it, that is its share of the document's words.
    """

    words: Tensor
    labels: Tensor
    documents: Tensor
    texts: Tensor
    counts: Tensor
    weights: Tensor
    ratios: Tensor


def sum_by_word(tokens: Tensor, lengths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Adds the weights of a batch up by word.

    Args:
        tokens: ids, shape (B, T), padding on the right.
        lengths: number of words, shape (B,).
        weights: of heads, shape (B, m, T).

    Returns:
        Row in the batch, and ``words``, ``counts``, ``weights`` and ``ratios`` of ``Uses``, by row and id.
    """
    real = ~mask_padding(lengths, tokens.shape[1])
    rows = real.nonzero()[:, 0]
    size = int(tokens.max()) + 1
    keys, places, counts = torch.unique(rows * size + tokens[real], return_inverse=True, return_counts=True)
    given = weights.double().mean(dim=1)[real]
    sums = torch.zeros(len(keys), dtype=torch.float64, device=given.device).index_add_(0, places, given)
    rows = keys // size
    return rows, keys % size, counts, sums, sums * lengths[rows] / counts


class HeadSimilarity:
    """How alike the heads are, as running sums over documents.

    Args:
        heads: number of heads m.
    """

    def __init__(self, heads: int) -> None:
        self.documents = 0
        self._sums = torch.zeros(3, heads, heads, dtype=torch.float64)

    def add(self, found: Heads) -> None:
        """Adds a batch."""
        weights, vectors = (tensor.double() for tensor in found)
        parts = [_cosines(weights), _cosines(vectors), overlaps(weights)]
        self._sums += torch.stack([part.sum(dim=0) for part in parts]).cpu()
        self.documents += len(weights)

    def means(self) -> Tensor:
        """For two heads, mean over documents: cosine of their weights, cosine of their vectors, overlap; (3, m, m).

        The mean of the second over pairs is the penalty "emb"; the sum of the third, (A A^T - I)^2, is "penal".
        """
        return self._sums / self.documents


def _cosines(rows: Tensor) -> Tensor:
    units = F.normalize(rows, dim=-1)
    return torch.bmm(units, units.transpose(1, 2))


class Pooled(NamedTuple):
    """What is known of a pooling after a corpus was read.

    Attributes:
        similarity: of its heads.
        uses: of words; None if the documents have no classes.
        class_sizes: documents read of each class; empty without classes.
    """

    similarity: HeadSimilarity
    uses: Optional[Uses]
    class_sizes: list[int]


@torch.no_grad()
def read_pooling(
    analyzed: AnalyzedModel, indices: Sequence[int], max_tokens: int = MAX_TOKENS, title: Optional[str] = None
) -> Pooled:
    """Lets a model read documents, and gathers what the heads of its pooling do.

    Args:
        analyzed: a model whose pooling has heads, and its data; documents are as long as its task reads them.
        indices: places of the documents in the split.
        max_tokens: of a batch, padding included.
        title: of the progress bar; None for no bar.
    """
    model = analyzed.model.eval()
    device = next(model.parameters()).device
    batches = Batches(analyzed, indices, max_tokens)
    classes = list_classes(analyzed)
    similarity = HeadSimilarity(count_heads(model))
    sizes = torch.zeros(len(classes), dtype=torch.int64)
    found: list[Uses] = []
    bar = tqdm(batches, desc=title, unit="batch", disable=True if title is None else None)
    for group, batch in zip(batches.groups, bar, strict=True):
        inputs = move_inputs(batch, device)
        for text, side in enumerate(_SIDES, start=1):
            if f"{side}_tokens" not in inputs:
                continue
            heads = attend_to(model, inputs, side)
            similarity.add(heads)
            if classes:
                labels = torch.stack([analyzed.dataset.targets[index] for index in group])
                sizes += labels.bincount(minlength=len(classes))
                documents = torch.tensor(group)
                sums = sum_by_word(inputs[f"{side}_tokens"], inputs[f"{side}_lengths"], heads.weights)
                rows, words, counts, weights, ratios = (part.cpu() for part in sums)
                texts = torch.full_like(rows, text)
                found.append(Uses(words, labels[rows], documents[rows], texts, counts, weights, ratios))
    uses = Uses(*map(torch.cat, zip(*found, strict=True))) if found else None
    return Pooled(similarity, uses, sizes.tolist())


def attend_to(model: Any, inputs: dict[str, Any], side: str = "src") -> Heads:
    """What the heads do with one text of each item of a batch; ``side`` is "src" or "pair"."""
    heads: Heads = model.attend(inputs[f"{side}_tokens"], inputs[f"{side}_lengths"], inputs.get(f"{side}_characters"))
    return heads


@torch.no_grad()
def read_document_heads(
    analyzed: AnalyzedModel, place: int, batch: dict[str, Any]
) -> tuple[Tensor, Optional[str], Optional[str]]:
    """Lets a model read one document; of a pair, weights are those of the first text.

    Args:
        analyzed: a model whose pooling has heads, and its data.
        place: of the document in the split.
        batch: the document as arguments of the model.

    Returns:
        Weights of the heads, shape (m, T), on the CPU; the name of its class and of the one that the model takes it
        for, None if the model predicts none.
    """
    model = analyzed.model.eval()
    inputs = move_inputs(batch, next(model.parameters()).device)
    weights = attend_to(model, inputs).weights[0].cpu()
    classes = list_classes(analyzed)
    if not classes:
        return weights, None, None
    return weights, classes[int(analyzed.dataset.targets[place])], classes[int(model(**inputs).logits[0].argmax())]


def count_heads(model: Any) -> int:
    """Number of heads m of a pooling that has some."""
    return next(part.num_heads for part in model.pooling.parts if isinstance(part, AttentionHeads))


class ClassMeans(NamedTuple):
    """What each word is given in each class; tensors of shape (classes, words).

    Attributes:
        weights: ``Uses.weights``, mean over the documents of the class with the word; NaN where there are none.
        ratios: ``Uses.ratios``, likewise.
        documents: how many these documents are.
        counts: how often the word stands in them.
    """

    weights: Tensor
    ratios: Tensor
    documents: Tensor
    counts: Tensor


def average_by_class(uses: Uses, classes: int, words: int) -> ClassMeans:
    """Means over documents.

    Args:
        uses: of words.
        classes: number of classes.
        words: number of ids.
    """
    places = uses.labels * words + uses.words

    def add_up(values: Tensor) -> Tensor:
        sums = torch.zeros(classes * words, dtype=values.dtype).index_add_(0, places, values)
        return sums.view(classes, words)

    documents = add_up(torch.ones_like(uses.words))
    return ClassMeans(add_up(uses.weights) / documents, add_up(uses.ratios) / documents, documents, add_up(uses.counts))
