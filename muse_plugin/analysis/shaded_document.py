"""One document, its words shaded by what the heads of a pooling give them, head by head and on average."""

import importlib
import math
import unicodedata
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Optional

from torch import Tensor

from muse_plugin.analysis.result import Result, group, make_results_by_model
from muse_plugin.results.figures import list_families, open_figure

_MOST_WORDS = 400  # of the picture
_COLUMNS = 3
_CHARACTERS = 58  # of a line
_POINTS = 6.0
_LETTER = 0.602 * _POINTS / 72  # inches; a letter of the font is 0.602 of its size
_LINE = 0.135
_SHADED = 0.122  # of a line
_GAP = 0.25  # between columns
_TITLE = 0.2
_BELOW = 0.1  # a block
_BAR = 0.9  # width of what is right of the blocks
_FONT = "DejaVu Sans Mono"
_DARKEST = 0.8  # of the colour map
_WHITE_BELOW = 0.46  # grey of the shade, 0 for black: where black and white stand out equally


class ShadedRow(NamedTuple):
    """The weight (0 to 1) that a head gives a word of the document, and the mean over heads; positions from 0."""

    model: str
    document: int
    label: Optional[str]
    predicted: Optional[str]
    head: int
    position: int
    word: str
    weight: float
    mean_weight: float


def read_document(
    name: str,
    weights: Tensor,
    words: Sequence[str],
    document: int,
    label: Optional[str] = None,
    predicted: Optional[str] = None,
) -> list[ShadedRow]:
    """Weights of the heads, shape (m, T), to rows; for the other arguments see ``ShadedRow``."""
    means = weights.double().mean(dim=0).tolist()
    return [
        ShadedRow(name, document, label, predicted, head, place, words[place], weight, means[place])
        for head, row in enumerate(weights.double().tolist())
        for place, weight in enumerate(row)
    ]


def make_results(rows: Sequence[ShadedRow]) -> list[Result]:
    """Rows to results, one for each model."""
    title = "A document as the pooling's heads see it"
    return make_results_by_model("shaded_document", title, _describe, rows, draw)


def _describe(rows: Sequence[ShadedRow]) -> str:
    about = f"Document {rows[0].document} of the split"
    if rows[0].label is not None:
        about += f", of class {rows[0].label}, taken for {rows[0].predicted}"
    words = max(row.position for row in rows) + 1
    if words > _MOST_WORDS:
        about += f"; the picture has the first {_MOST_WORDS} of its {words:,} words"
    return (
        f"{about}. Words are shaded by their weight, on average and of each head: darker is more, from the smallest "
        "weight in the picture to the largest. Weights of a head have a sum of 1 over the document."
    )


class Place(NamedTuple):
    """Where a word is in a block: line and column in characters, from 0, and what is written."""

    line: int
    column: int
    text: str


def arrange(words: Sequence[str], width: int = _CHARACTERS) -> list[Place]:
    """Puts words in lines of at most ``width`` characters, a space between them."""
    places: list[Place] = []
    line, column = 0, 0
    for word in words:
        if measure_width(word) > width:
            while measure_width(word) >= width:
                word = word[:-1]
            word += "…"
        size = measure_width(word)
        if column > 0 and column + size > width:
            line, column = line + 1, 0
        places.append(Place(line, column, word))
        column += size + 1
    return places


def measure_width(text: str) -> int:
    """Columns of a text: two for the characters of East Asian writing that are two wide, one for others."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def draw(rows: Sequence[ShadedRow], path: Path) -> None:
    """Draws the text once with the means and once for every head; a patch behind each word has its shade."""
    heads = group([row for row in rows if row.position < _MOST_WORDS], "head")
    blocks = {"mean of the heads": [row.mean_weight for row in heads[0]]}
    if len(heads) > 1:
        blocks.update({f"head {head}": [row.weight for row in own] for head, own in heads.items()})
    places = arrange([row.word for row in heads[0]])
    columns = min(_COLUMNS, len(blocks))
    lines = math.ceil(len(blocks) / columns)
    width = max(place.column + measure_width(place.text) + 1 for place in places) * _LETTER
    height = (places[-1].line + 1) * _LINE
    total = columns * (width + _GAP) + _BAR, max(lines * (height + _TITLE + _BELOW), 1.5)
    with open_figure(path, *total, "--output") as figure:
        figure.set_layout_engine("none")  # places are known
        mappable = _make_scale(min(map(min, blocks.values())), max(map(max, blocks.values())))
        for number, (title, weights) in enumerate(blocks.items()):
            left = 0.1 + (number % columns) * (width + _GAP)
            bottom = total[1] - (number // columns + 1) * (height + _TITLE + _BELOW) + _BELOW
            axes = figure.add_axes((left / total[0], bottom / total[1], width / total[0], height / total[1]))
            axes.set(xlim=(0, width), ylim=(height, 0))
            axes.set_axis_off()
            axes.set_title(title, loc="left", fontsize=8, fontweight="bold" if number == 0 else "normal", pad=2)
            _write(axes, places, mappable.to_rgba(weights))
        bar = figure.add_axes((1 - _BAR / total[0], 1 - 1.3 / total[1], 0.12 / total[0], 1.1 / total[1]))
        figure.colorbar(mappable, cax=bar, label="weight (0 to 1)").ax.tick_params(labelsize=7)


def _make_scale(lowest: float, highest: float) -> Any:
    """Shades from the smallest to the largest weight; from 0 if they are one."""
    matplotlib = importlib.import_module("matplotlib")
    colors = importlib.import_module("matplotlib.colors")
    cm = importlib.import_module("matplotlib.cm")
    greys = matplotlib.colormaps["Greys"]
    shades = colors.ListedColormap([greys(_DARKEST * i / 255) for i in range(256)])
    return cm.ScalarMappable(colors.Normalize(lowest if lowest < highest else 0.0, highest), shades)


def _write(axes: Any, places: Sequence[Place], shades: Sequence[tuple[float, ...]]) -> None:
    boxes = []
    for line, column, text in places:
        left, right = column * _LETTER, (column + measure_width(text) + 0.6) * _LETTER
        top, bottom = line * _LINE, line * _LINE + _SHADED
        boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    collections = importlib.import_module("matplotlib.collections")
    axes.add_collection(collections.PolyCollection(boxes, facecolors=shades, edgecolors="none"))
    families = list_families(_FONT)
    for color, line in product(("black", "white"), range(places[-1].line + 1)):
        words = [p for p, shade in zip(places, shades, strict=True) if p.line == line and _ink(shade) == color]
        wide = any(measure_width(word.text) != len(word.text) for word in words)
        for run in [[word] for word in words] if wide else [words]:  # a wide character is not exactly two letters wide
            axes.text(
                0.3 * _LETTER,
                line * _LINE + _SHADED / 2,
                fill_line(run),
                family=families,
                fontsize=_POINTS,
                va="center_baseline",
                color=color,
                parse_math=False,
            )


def _ink(shade: tuple[float, ...]) -> str:
    return "white" if shade[0] < _WHITE_BELOW else "black"


def fill_line(places: Sequence[Place]) -> str:
    """The words of a line that have one colour, with spaces where the others are; drawn quicker than word by word."""
    line = ""
    for place in places:
        line = line.ljust(place.column) + place.text
    return line
