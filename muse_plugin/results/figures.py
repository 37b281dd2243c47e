"""What all figures have in common: how matplotlib is imported, colours and type, and how a file is written."""

import contextlib
import importlib
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from muse_plugin.files.atomic_files import open_atomically

logger = logging.getLogger(__name__)

# Told apart by the colour-blind, and in grey.
COLORS = ("#1b6ca8", "#d1642b", "#3d8b5f", "#8a5a9e", "#6b6f73", "#b8860b")
MARKERS = ("o", "s", "^", "D", "v", "P")
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e3e6e8",
    "svg.hashsalt": "muse_plugin",
}
# Families with what matplotlib's own lacks: Chinese, Japanese, Korean, then other scripts. The installed ones are used.
_FALLBACKS = (
    *(f"Noto Sans CJK {region}" for region in ("SC", "JP", "KR", "TC", "HK")),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Unifont"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "SimHei", "Yu Gothic", "Malgun Gothic"),
    *("Arial Unicode MS", *(f"Noto Sans {script}" for script in ("Devanagari", "Bengali", "Tamil", "Thai", "Khmer"))),
)
_MISSING = re.compile(r"Glyph (\d+) .* missing from font")
# Without the date that matplotlib would write: the same data give the same file.
_METADATA: dict[str, dict[str, Optional[str]]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def import_matplotlib(flag: str = "--plot") -> ModuleType:
    """Imports matplotlib.

    Args:
        flag: of the command, for the message.

    Raises:
        ImportError: if it is not installed.
    """
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise ImportError(
            f"{flag} needs matplotlib, which cannot be imported ({error}); run 'pip install matplotlib', or install "
            f"this package with its extra 'figures', or leave {flag} out."
        ) from error


def check_format(path: Path, flag: str = "--plot") -> str:
    """Returns the format that the ending of a file name asks for.

    Args:
        path: of the figure.
        flag: of the command, for the message.

    Raises:
        ValueError: if it is none that is supported.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in _METADATA:
        raise ValueError(f"{flag} must end in .{', .'.join(_METADATA)}, but got {path}; the ending chooses the format.")
    return ending


@contextlib.contextmanager
def open_figure(path: Path, width: float, height: float, flag: str = "--plot") -> Iterator[Any]:
    """Makes a figure to draw on, and writes it when the block ends; the file appears whole or not at all.

    Args:
        path: where to; the ending (png, pdf, svg) is the format.
        width: in inches.
        height: in inches.
        flag: of the command, for messages.

    Characters that none of the installed fonts has are drawn as boxes, with one warning for the figure.

    Yields:
        A matplotlib figure.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the ending is unknown.
    """
    ending = check_format(path, flag)
    matplotlib = import_matplotlib(flag)
    figures = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, "font.family": list_families("DejaVu Sans")}):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure
        with open_atomically(path) as file, _count_missing_glyphs(path):
            figure.savefig(file, format=ending, dpi=200, metadata=_METADATA[ending])


def as_written(text: str) -> str:
    """A text for a figure: no part is a formula, and legends have it, which leave out what starts with "_"."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def list_families(first: str) -> list[str]:
    """Font families for a text: the first, then those installed that may have the characters that it lacks."""
    manager = importlib.import_module("matplotlib.font_manager").fontManager
    installed = {font.name for font in manager.ttflist}
    return [first, *(family for family in _FALLBACKS if family in installed)]


@contextlib.contextmanager
def _count_missing_glyphs(path: Path) -> Iterator[None]:
    """Warns once of all the characters that matplotlib would warn of one by one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = set()
    for warning in caught:
        glyph = _MISSING.match(str(warning.message))
        if glyph is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        else:
            missing.add(chr(int(glyph[1])))
    if missing:
        logger.warning(
            "%s shows boxes in place of %d characters, such as %s, which no installed font has; install one that does, "
            "such as Noto Sans CJK for Chinese, Japanese and Korean.",
            path.name,
            len(missing),
            min(missing),
        )
