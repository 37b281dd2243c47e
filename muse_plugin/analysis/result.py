"""What an analysis gives: a table, a picture of it, and a few words; see ``report.py`` for how it is written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Result(NamedTuple):
    """One figure with its numbers.

    Attributes:
        name: of its files, without their ending.
        title: for the report.
        text: what is seen, with the units.
        rows: the numbers; named tuples of one class, at least one; field names are the columns and have the units.
        draw: draws ``rows`` and writes the picture to a path, whose ending is the format.
    """

    name: str
    title: str
    text: str
    rows: Sequence[Any]
    draw: Callable[[Path], None]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        fields: tuple[str, ...] = self.rows[0]._fields
        return fields


class Missing(NamedTuple):
    """An analysis that has nothing to show.

    Attributes:
        name: its name in ``--only``.
        reason: a clause that completes "it does not apply: ...".
    """

    name: str
    reason: str


def unique(values: Sequence[Any]) -> list[Any]:
    """The values without repetition, in the order of their first occurrence."""
    return list(dict.fromkeys(values))
