"""Reads the tables that recipes bring along: columns separated by tabs; lines that open with # are comments."""

from collections.abc import Sequence
from pathlib import Path


def read_table(path: Path, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """The rows of a table, at least one, each by column.

    Args:
        path: a text file whose first line names the columns.
        columns: the names that it must have; empty for any.

    Raises:
        ValueError: if it has others, a row has more or fewer cells, or there is none.
    """
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    rows = [(number, line.split("\t")) for number, line in lines if line and not line.startswith("#")]
    header = list(columns) or (rows[0][1] if rows else [])
    for place, (number, cells) in enumerate(rows):
        if len(cells) != len(header) or (place == 0 and cells != header):
            raise ValueError(f"{path}, line {number}: must have {', '.join(header)}, separated by tabs.")
    if len(rows) < 2:
        raise ValueError(f"{path} must have a line with the names of its columns and rows below it, but has no rows.")
    return [dict(zip(header, cells, strict=True)) for _, cells in rows[1:]]
