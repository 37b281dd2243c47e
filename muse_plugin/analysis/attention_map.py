"""What every head looks at in one sentence."""

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from muse_plugin.analysis.attention_sites import CROSS, DECODER, Site
from muse_plugin.analysis.drawing import label_words
from muse_plugin.analysis.result import Result, group
from muse_plugin.results.figures import open_figure

_MOST_WORDS = 26  # more are numbered, not written
_INCHES_PER_WORD = 0.115
_INCHES_PER_LETTER = 0.055
_NARROWEST = 0.6
_TILE_OF_MANY = 1.6
_LONGEST_NAME = 1.5  # inches that the names of the axes take
_BAR = 1.2  # height of the colour bar in inches
_GAP_COLOR = "#cfdfea"
_QUERY_WORD, _KEY_WORD = ("query", "query_word"), ("key", "key_word")
_QUERY, _KEY = "query (word or position)", "key (word or position)"


class MapRow(NamedTuple):
    """The weight (0 to 1) that a head gives a key, seen from a query; positions are counted from 0."""

    model: str
    side: str
    layer: int
    head: int
    query: int
    query_word: str
    key: int
    key_word: str
    weight: float


def read_maps(
    name: str, sites: Sequence[Site], maps: dict[int, Tensor], source: Sequence[str], target: Sequence[str]
) -> list[MapRow]:
    """Weights to rows.

    Args:
        name: of the model.
        sites: where it attends.
        maps: weights (H, T, S) by their place in ``sites``.
        source: words of the sentence, with the signs that the encoder reads.
        target: those that the decoder reads.

    Raises:
        ValueError: if words and weights are not equally many.
    """
    rows = []
    for number, site in enumerate(sites):
        queries = target if site.side in (DECODER, CROSS) else source
        keys = target if site.side == DECODER else source
        shape = tuple(maps[number].shape)
        if shape[1:] != (len(queries), len(keys)):
            raise ValueError(
                f"a map has a row for each word that looks and a column for each that is seen, but got {shape[1:]} for "
                f"{len(queries)} and {len(keys)} words."
            )
        for (head, query, key), weight in np.ndenumerate(maps[number].double().numpy()):
            place = (name, site.side, site.layer, head)
            rows.append(MapRow(*place, query, queries[query], key, keys[key], float(weight)))
    return rows


def make_results(rows: Sequence[MapRow]) -> list[Result]:
    """Rows to results, one for each model and side."""
    text = (
        "Weights of every head in one sentence: a row for each word that looks (query), a column for each that is seen "
        "(key); darker is more, black is 1."
    )
    models, results = list(group(rows, "model")), []
    for (model, side), own in group(rows, "model", "side").items():
        name = f"attention_map_{side}" + ("" if model == models[0] else "_against")
        title = f"Attention map: {side}" + (f" of {model}" if len(models) > 1 else "")
        results.append(Result(name, title, text, own, draw))
    return results


def draw(rows: Sequence[MapRow], path: Path) -> None:
    """Draws a tile for each layer (the lowest at the bottom) and head; all are one image, which draws quickly."""
    layers = sorted(group(rows, "layer"), reverse=True)
    heads = max(row.head for row in rows) + 1
    queries, keys = ([word for _, word in sorted(group(rows, *pair))] for pair in (_QUERY_WORD, _KEY_WORD))
    image, row_starts, column_starts = arrange(rows, layers, heads, len(queries), len(keys))
    written = max(len(queries), len(keys)) <= _MOST_WORDS
    names = [label_words(words) if written else _number(words) for words in (queries, keys)]
    width, height = (
        max(
            _LONGEST_NAME, count * (max(_NARROWEST, _INCHES_PER_WORD * len(words)) if written else _TILE_OF_MANY) + 0.05
        )
        for count, words in ((heads, keys), (len(layers), queries))
    )
    left, bottom = (0.5 + _INCHES_PER_LETTER * max(map(len, words)) for words in names)
    total = left + width + 0.95, bottom + height + 0.3
    with open_figure(path, *total, "--output") as figure:
        figure.set_layout_engine("none")  # margins are known
        axes = figure.add_axes((left / total[0], bottom / total[1], width / total[0], height / total[1]))
        colormap = importlib.import_module("matplotlib").colormaps["Greys"].with_extremes(bad=_GAP_COLOR)
        drawn = axes.imshow(image, cmap=colormap, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.tick_params(length=0 if written else 2, labelsize=6, pad=1)
        axes.spines[:].set_visible(False)
        _label(axes.set_yticks, row_starts, names[0])
        _label(axes.set_xticks, column_starts, names[1])
        axes.tick_params(axis="x", rotation=90 if written else 0)
        for head, start in enumerate(column_starts):
            axes.text(start + (len(keys) - 1) / 2, -0.8, f"head {head}", ha="center", va="bottom", fontsize=8)

        def write_beside(text: str, height: float, coordinates: Any, gap: float) -> None:
            axes.annotate(
                text,
                (0, height),
                xycoords=coordinates,
                xytext=(-72 * left + gap, 0),
                textcoords="offset points",
                rotation=90,
                ha="left",
                va="center",
                fontsize=8,
            )

        write_beside(_QUERY, 0.5, "axes fraction", 4)
        for layer, start in zip(layers, row_starts, strict=True):
            write_beside(f"layer {layer}", start + (len(queries) - 1) / 2, ("axes fraction", "data"), 16)
        axes.set_xlabel(_KEY, fontsize=8)
        bar = figure.add_axes((1 - 0.8 / total[0], 1 - (0.3 + _BAR) / total[1], 0.12 / total[0], _BAR / total[1]))
        figure.colorbar(drawn, cax=bar, label="weight (0 to 1)")
        bar.tick_params(labelsize=8)


def arrange(
    rows: Sequence[MapRow], layers: Sequence[int], heads: int, num_queries: int, num_keys: int
) -> tuple[np.ndarray, list[int], list[int]]:
    """Puts the tiles of one side of one model into one image, a pixel for each weight, with NaN between tiles.

    Returns:
        The image, the first row of each of ``layers``, from the top, and the first column of each head.
    """
    image = np.full((len(layers) * (num_queries + 1) - 1, heads * (num_keys + 1) - 1), math.nan)
    row_starts = [place * (num_queries + 1) for place in range(len(layers))]
    column_starts = [place * (num_keys + 1) for place in range(heads)]
    starts = dict(zip(layers, row_starts, strict=True))
    for row in rows:
        image[starts[row.layer] + row.query, column_starts[row.head] + row.key] = row.weight
    return image, row_starts, column_starts


def _label(set_ticks: Callable[..., Any], starts: Sequence[int], words: Sequence[str]) -> None:
    shown = [(start + place, word) for start in starts for place, word in enumerate(words) if word]
    set_ticks([place for place, _ in shown], [word for _, word in shown])


def _number(words: Sequence[str]) -> list[str]:
    """Positions instead of words, every tenth."""
    return [str(place) if place % 10 == 0 else "" for place in range(len(words))]
