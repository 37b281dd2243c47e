"""``muse-plugin match explain``: what heads look at in both sentences of a pair, and which of them decide.

The figure follows the paper's third one (Wang et al., AAAI 2020): words of both sentences, shaded by the attention of a
head; next to it, for ``--match-aggregation max``, the share of every head in the maximum over heads.
"""

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from muse_plugin.files.json_objects import write_json
from muse_plugin.files.lines import clean_line, iterate_stream
from muse_plugin.matching.pair_model import PairModel
from muse_plugin.matching.sentences import NamedSentence, read_words
from muse_plugin.models.head_wise_match import HeadWiseMatchBase
from muse_plugin.modules.attends import find_attention, record_attention, record_heads
from muse_plugin.modules.head_match import HeadWiseMatch
from muse_plugin.results.figures import as_written, check_format, open_figure
from muse_plugin_command.flag_checks import check_apart, check_positive, check_read_twice, check_target
from muse_plugin_command.flags.match import SHOWN_HEADS

logger = logging.getLogger(__name__)


class Explanation(NamedTuple):
    """What heads see of a pair.

    Attributes:
        words: of either sentence, with the signs that the encoder reads around them.
        attention: for either sentence, shape (L, H, T): how much the sentence's vector of each compared head has of
            every word; each sums to 1 (or 0 where a head sees nothing).
        shares: of every head in the maximum over heads, shape (L, H); None for models without one.
        layers: numbers of the compared layers.
        labels: names of the outputs.
        scores: their probabilities, or the numbers.
    """

    words: tuple[list[str], list[str]]
    attention: tuple[Tensor, Tensor]
    shares: Optional[Tensor]
    layers: list[int]
    labels: list[str]
    scores: list[float]


def run(args: argparse.Namespace) -> None:
    """Explains a pair; the body of ``muse-plugin match explain``.

    Raises:
        ValueError: if the model has no heads to show, or the pair or a head does not exist.
    """
    check_positive(args, "line", "max_words")
    check_read_twice(args.input, "--input")
    check_format(args.output, "--output")
    for path in (args.output, args.output.with_suffix(".json")):
        check_target(path, "--output")
        check_apart(path, args.input)
    model = PairModel.load(args.path, args.data, max_words=args.max_words, cpu=args.cpu, long_texts=args.long_texts)
    explanation = explain(model, _read_pair(args.input, args.line), args.line)
    heads = _choose_heads(explanation, args.heads)
    draw(explanation, heads, args.output)
    write_json(args.output.with_suffix(".json"), _to_json(explanation), ensure_ascii=False, indent=1)
    sys.stdout.write(f"written to {args.output} and {args.output.with_suffix('.json')}\n")


def _read_pair(path: Path, number: int) -> list[str]:
    with path.open("rb") as file:
        line = next(itertools.islice(iterate_stream(file), number - 1, number), None)
    if line is None:
        raise ValueError(f"--line must be a line of --input, but {path} has fewer than {number} lines.")
    texts = [clean_line(text) for text in line[0].split("\t")]
    if len(texts) != 2 or not all(texts):
        raise ValueError(
            f"a pair is two texts with a tab between them, but line {number} of {path} has {len(texts)}: "
            f"{line[0][:60]!r}; keep the two columns of texts, for example by cut -f 1,2."
        )
    return texts


@torch.no_grad()
def explain(model: PairModel, texts: Sequence[str], line: int = 1) -> Explanation:
    """Reads a pair and keeps what its heads saw.

    Args:
        model: a head-wise match model.
        texts: the two sentences, raw.
        line: number of the pair, for messages.

    Raises:
        ValueError: if the model is another one, or compares no heads, or a text has no word or too many.
    """
    net = model.model
    if not isinstance(net, HeadWiseMatchBase) or net.classic:
        raise ValueError(
            "match explain shows heads that are compared, but this model compares none; train one with --arch "
            "head_wise_match (or one of the other head_wise_match_ presets) and without --match classic."
        )
    modules = find_attention(net.encoder)
    layers = [net.sources.index(level) for level in net.levels]
    words, attention, vectors = [], [], []
    for text in texts:
        (sentence,), truncated = read_words(model, [NamedSentence(line, str(line), text)])
        if truncated:
            logger.warning("only the first %d words are read of %r ...", model.max_words, text[:40])
        with record_attention([modules[layer] for layer in layers]) as weights, record_heads(net.levels) as outputs:
            vectors.append(model.encode([sentence]))
        words.append(net.name_positions(model.predictor.task.list_read_words(sentence)))
        attention.append(
            torch.stack(
                [_summarise(weights[level][0], outputs[level][0], net.head_pooling) for level in range(len(layers))]
            )
        )
    logits = model.score_pairs(vectors[0], vectors[1])[0]
    shares = None
    if isinstance(net.matcher, HeadWiseMatch) and net.matcher.head_aggregation.kind == "max":
        shares = net.matcher.winning_heads(*(vector.to(model.device) for vector in vectors))[0].cpu()
    scores = logits if model.predicts_numbers else torch.softmax(logits, dim=-1)
    return Explanation(
        (words[0], words[1]), (attention[0], attention[1]), shares, layers, list(model.outputs), scores.tolist()
    )


def _summarise(weights: Tensor, outputs: Tensor, pooling: str) -> Tensor:
    """What the vectors of heads are made of.

    Args:
        weights: of attention, shape (H, T, S).
        outputs: of the heads, head by head, shape (T, H * D).
        pooling: of the outputs of a head, see ``--head-pooling``.

    Returns:
        Shape (H, S): the row of the classification token, the mean of all rows, or that of the rows where the channels
        have their maximum.
    """
    heads, length, _ = weights.shape
    if pooling == "cls":
        return weights[:, 0].cpu()
    if pooling == "mean":
        return weights.mean(dim=1).cpu()
    best = outputs.view(length, heads, -1).argmax(dim=0)  # (H, D)
    shares = torch.nn.functional.one_hot(best, length).to(weights).mean(dim=1)
    return torch.einsum("ht,hts->hs", shares, weights).cpu()


def _choose_heads(explanation: Explanation, text: Optional[str]) -> list[tuple[int, int]]:
    """(Place among the compared layers, head) of the heads to show.

    Raises:
        ValueError: if one does not exist.
    """
    levels, heads = explanation.attention[0].shape[:2]
    if text is None:
        if explanation.shares is None:
            return [(levels - 1, head) for head in range(min(heads, SHOWN_HEADS))]
        best = explanation.shares.flatten().argsort(descending=True, stable=True)[:SHOWN_HEADS].tolist()
        return [(number // heads, number % heads) for number in best]
    chosen = []
    for entry in text.split(","):
        layer, _, head = entry.strip().partition(".")
        known = layer.isdecimal() and head.isdecimal()
        if not known or int(layer) not in explanation.layers or int(head) >= heads:
            raise ValueError(
                f"--heads must list layers out of {', '.join(map(str, explanation.layers))} and heads from 0 to "
                f"{heads - 1}, such as {explanation.layers[-1]}.0, but got {entry.strip()!r}."
            )
        chosen.append((explanation.layers.index(int(layer)), int(head)))
    return chosen


def draw(explanation: Explanation, heads: Sequence[tuple[int, int]], path: Path) -> None:
    """Draws the figure.

    Args:
        explanation: what to show.
        heads: (place among the compared layers, head) of the rows.
        path: where to; the ending is the format.
    """
    longest = max(len(words) for words in explanation.words)
    shares = explanation.shares
    widths = [max(4.0, 0.42 * longest)] * 2 + ([3.2] if shares is not None else [])
    with open_figure(path, sum(widths) + 1.0, 1.9 + 0.32 * len(heads), "--output") as figure:
        axes = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
        names = [f"{explanation.layers[level]}.{head}" for level, head in heads]
        for side in range(2):
            rows = torch.stack([explanation.attention[side][level, head] for level, head in heads])
            image = axes[side].imshow(rows.numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
            words = list(map(as_written, explanation.words[side]))
            axes[side].set_xticks(range(len(words)), words, rotation=60, ha="right")
            axes[side].set_yticks(range(len(names)), names)
            axes[side].set_title(f"{('first', 'second')[side]} sentence")
            axes[side].set_ylabel("layer.head" if side == 0 else "")
        figure.colorbar(image, ax=axes[1], label="attention weight")
        if shares is not None:
            image = axes[2].imshow(shares.numpy(), cmap="Oranges", vmin=0.0, aspect="auto")
            axes[2].set_yticks(range(len(explanation.layers)), explanation.layers)
            axes[2].set_xticks(range(shares.shape[1]))
            axes[2].set_xlabel("head")
            axes[2].set_ylabel("layer")
            axes[2].set_title("share of the maximum")
            figure.colorbar(image, ax=axes[2], label="share of channels")
        figure.suptitle(
            "   ".join(f"{as_written(n)}: {s:.3f}" for n, s in zip(explanation.labels, explanation.scores, strict=True))
        )


def _to_json(explanation: Explanation) -> dict[str, Any]:
    return {
        "scores": dict(zip(explanation.labels, explanation.scores, strict=True)),
        "layers": explanation.layers,
        "words": explanation.words,
        "attention": [table.tolist() for table in explanation.attention],
        "shares": None if explanation.shares is None else explanation.shares.tolist(),
    }
