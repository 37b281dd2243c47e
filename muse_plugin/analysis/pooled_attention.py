"""What the heads of a pooling look at in a corpus: low-rank attention (arXiv:1912.00835), structured self-attention.

Such heads have one weight for each word of a document, not one for each pair of words: their figures are others than
those of an encoder's attention. What is gathered here is counted and shown by ``attended_words.py``,
``head_similarity.py`` and, for one document, ``shaded_document.py``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import nn
from tqdm import tqdm

from muse_plugin.analysis import shaded_document
from muse_plugin.analysis.analyzed_model import AnalyzedModel, Batches, name_words
from muse_plugin.analysis.attended_words import Uses, sum_by_word
from muse_plugin.analysis.head_similarity import HeadSimilarity
from muse_plugin.analysis.load import move_inputs
from muse_plugin.modules.attention_heads import Heads
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


class Pooled(NamedTuple):
    """What is known of a pooling after a corpus was read.

    Attributes:
        similarity: of its heads.
        uses: of words; None if the documents have no classes.
        class_sizes: documents read of each class, by its name; empty without classes.
    """

    similarity: HeadSimilarity
    uses: Optional[Uses]
    class_sizes: dict[str, int]


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
    similarity = HeadSimilarity()
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
    return Pooled(similarity, uses, dict(zip(classes, sizes.tolist(), strict=True)))


def attend_to(model: Any, inputs: dict[str, Any], side: str = "src") -> Heads:
    """What the heads do with one text of each item of a batch; ``side`` is "src" or "pair"."""
    return model.attend(inputs[f"{side}_tokens"], inputs[f"{side}_lengths"], inputs.get(f"{side}_characters"))


@torch.no_grad()
def read_document(analyzed: AnalyzedModel, place: int) -> list[shaded_document.ShadedRow]:
    """Lets a model read the document at a place of the split; of a pair, weights are those of the first text."""
    (batch,) = Batches(analyzed, [place])
    words, _ = name_words(analyzed, batch)
    model = analyzed.model.eval()
    inputs = move_inputs(batch, next(model.parameters()).device)
    weights = attend_to(model, inputs).weights[0].cpu()
    labels = []  # of its class, and of that which the model takes it for
    if classes := list_classes(analyzed):
        labels = [classes[int(analyzed.dataset.targets[place])], classes[int(model(**inputs).logits[0].argmax())]]
    return shaded_document.read_document(analyzed.name, weights, words, place + 1, *labels)
