"""What the figures of this room have in common: legends, colours of layers, words as labels."""

import importlib
from collections.abc import Sequence
from typing import Any

_LONGEST_WORD = 14  # characters of a label
_LONGEST_NAME = 14  # characters of a model that stands in one line with a side
_LAST_SHADE = 0.88  # viridis without its palest yellow, which paper swallows


def add_legend(panels: Sequence[Any], title: str = "") -> None:
    """Puts one legend for all panels to the right of the last."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    panels[-1].legend(
        found.values(),
        found.keys(),
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        frameon=False,
        title=title or None,
        alignment="left",
    )


def shade(number: int, count: int) -> Any:
    """A colour for entry ``number`` (from 0) of an ordered series: dark first; told apart in grey, too."""
    colormap = importlib.import_module("matplotlib").colormaps["viridis"]
    return colormap(_LAST_SHADE * number / max(1, count - 1))


def label_words(words: Sequence[str]) -> list[str]:
    """Words as labels: long ones are cut, and nothing in them is a formula."""
    cut = [word if len(word) <= _LONGEST_WORD else word[: _LONGEST_WORD - 1] + "…" for word in words]
    return [word.replace("$", r"\$") for word in cut]


def name_panel(model: str, side: str, models: Sequence[str]) -> str:
    """The title of a panel: the side, and the model where there are two; in two lines where it is long."""
    if len(models) == 1:
        return side
    return f"{model}: {side}" if len(model) <= _LONGEST_NAME else f"{model}\n{side}"


def name_by_model(name: str, title: str, model: str, models: Sequence[str]) -> tuple[str, str]:
    """Name and title of a result that each model has its own of: those of the second are told apart."""
    return name + ("" if model == models[0] else "_against"), title + (f" of {model}" if len(models) > 1 else "")
