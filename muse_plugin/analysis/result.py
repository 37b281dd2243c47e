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
        drawer: draws rows and writes the picture to a path, whose ending is the format.
    """

    name: str
    title: str
    text: str
    rows: Sequence[Any]
    drawer: Callable[[Sequence[Any], Path], None]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.rows[0]._fields

    def draw(self, path: Path) -> None:
        """Draws the rows and writes the picture."""
        self.drawer(self.rows, path)


def group(rows: Sequence[Any], *columns: str) -> dict[Any, list[Any]]:
    """Rows by the value of a column, or the tuple of those of several; in the order of their first occurrence."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        key = tuple(getattr(row, column) for column in columns)
        groups.setdefault(key if len(columns) > 1 else key[0], []).append(row)
    return groups


def make_results_by_model(
    name: str,
    title: str,
    describe: Callable[[Sequence[Any]], str],
    rows: Sequence[Any],
    drawer: Callable[[Sequence[Any], Path], None],
) -> list[Result]:
    """A result for each model, those of the second told apart; arguments as of ``Result``, the text from the rows."""
    models = group(rows, "model")
    return [
        Result(
            name + ("_against" if number else ""),
            title + (f" of {model}" if len(models) > 1 else ""),
            describe(own),
            own,
            drawer,
        )
        for number, (model, own) in enumerate(models.items())
    ]
