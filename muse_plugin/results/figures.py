"""What all figures have in common: how matplotlib is imported, colours and type, and how a file is written."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from muse_plugin.files.atomic_files import open_atomically

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

    Yields:
        A matplotlib figure.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the ending is unknown.
    """
    ending = check_format(path, flag)
    matplotlib = import_matplotlib(flag)
    figures = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(_STYLE):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure
        with open_atomically(path) as file:
            figure.savefig(file, format=ending, dpi=200, metadata=_METADATA[ending])
