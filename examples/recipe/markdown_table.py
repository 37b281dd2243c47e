"""Writes results as a Markdown table, values over seeds as mean and deviation.

Nothing of the package is imported: a table of stored results should not wait for torch and fairseq.
"""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev


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


def format_mean(values: Sequence[float], decimals: int = 2) -> str:
    """Writes the mean, and the deviation where there are several values; nothing for none."""
    if not values:
        return ""
    return f"{mean(values):.{decimals}f}" + (f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else "")
