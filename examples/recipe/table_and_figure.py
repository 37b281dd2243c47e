"""The end of programs that write a table and a figure of the same runs."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import results_table

from muse_plugin.results.figures import check_format

Curves = TypeVar("Curves")


def run(
    name: str,
    description: str,
    collect: Callable[[list[Path]], Curves],
    make_table: Callable[[Curves], str],
    draw: Callable[[Curves, Path], None],
) -> int:
    """Reads the flags, writes both and prints the table.

    Args:
        name: of the program, for messages.
        description: what it is for.
        collect: from the files of results to what is shown.
        make_table: from that to Markdown.
        draw: writes the figure.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        check_format(args.output, "--output")
        curves = collect(args.results)
        table = make_table(curves)
        results_table.write(args.table, table + "\n")
        print(table)
        draw(curves, args.output)
    except (OSError, ValueError, ImportError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    return 0
