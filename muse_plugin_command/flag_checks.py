"""Checks of flags that several commands make."""

import argparse
from pathlib import Path
from typing import Optional


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Checks that flags, where given, are at least 1.

    Raises:
        ValueError: if one is not.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, but got {value}.")


def check_apart(output: Optional[Path], *inputs: Optional[Path]) -> None:
    """Checks that ``--output`` replaces nothing that is read.

    Args:
        output: the file to write; None for standard output.
        *inputs: files and folders to read; None for none.

    Raises:
        ValueError: if the output is one of the files, or lies in one of the folders.
    """
    if output is None or not output.is_file():
        return
    for path in inputs:
        if path is None or not path.exists():
            continue
        if path.is_dir():
            is_read = path.resolve() in output.resolve().parents
        else:
            is_read = output.samefile(path)
        if is_read:
            what = f"lies in {path}, which is read" if path.is_dir() else "is read too"
            raise ValueError(f"--output must not replace what is read, but {output} {what}; name another file.")
