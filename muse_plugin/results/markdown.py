"""Writes results as a Markdown table."""

from collections.abc import Iterable, Sequence


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]], num_left: int = 1) -> str:
    """Writes a Markdown table.

    Args:
        header: names of the columns.
        rows: as many cells each; what would end a cell there is replaced.
        num_left: so many first columns are words, which begin on the left; the others are numbers, on the right.

    Returns:
        The table without the last line break.
    """
    lines = [make_row(header), "|" + "---|" * num_left + "--:|" * (len(header) - num_left)]
    return "\n".join([*lines, *map(make_row, rows)])


def make_row(cells: Iterable[str]) -> str:
    """Writes a line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"
