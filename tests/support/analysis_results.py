"""Tables and figures of ``muse-plugin analyze``, for the tests that read them."""

import csv
from pathlib import Path
from typing import Any

import pytest

from muse_plugin.analysis.result import Result


def skip_drawing(patch: pytest.MonkeyPatch) -> None:
    """Pictures take their time, and test_tables.py and test_pooling.py draw each kind."""
    pytest.importorskip("matplotlib", reason="needs the extra 'figures'")
    patch.setattr(Result, "draw", lambda result, path: path.write_bytes(b"drawn"))


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table in CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ticks_of(axis: Any) -> list[str]:
    """The labels of an axis of a figure."""
    return [label.get_text() for label in axis.get_ticklabels()]
