"""Checks of flags that several commands make."""

import argparse
import importlib.util
from pathlib import Path
from typing import Optional


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Checks that flags, where given, are at least 1.

    Raises:
        ValueError: with a sentence for each that is not.
    """
    given = [(name, value) for name in names if (value := getattr(args, name)) is not None]
    faults = [f"--{name.replace('_', '-')} must be at least 1, but got {value}." for name, value in given if value < 1]
    if faults:
        raise ValueError("\n".join(faults))


def check_apart(output: Optional[Path], *inputs: Optional[Path], flag: str = "--output") -> None:
    """Checks that an output replaces nothing that is read.

    Args:
        output: the file to write; None for standard output.
        *inputs: files and folders to read; None for none.
        flag: that names the output.

    Raises:
        ValueError: if the output is one of the files, or is in one of the folders.
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
            what = f"is in {path}, which is read" if path.is_dir() else "is read too"
            raise ValueError(f"{flag} must not replace what is read, but {output} {what}; name another.")


def check_read_twice(path: Path, flag: str) -> None:
    """Checks that a text can be read, and read again.

    Raises:
        FileNotFoundError: if it does not exist.
        ValueError: if it is no ordinary file.
    """
    if not path.exists():
        raise FileNotFoundError(f"{flag} must name a text file, but {path} does not exist.")
    if not path.is_file():
        raise ValueError(f"{flag} must name an ordinary file, which is read twice, but {path} is none; store it first.")


def check_packages(what: str, *packages: str, extra: str) -> None:
    """Checks that packages are installed, without importing them.

    Args:
        what: needs them.
        *packages: by the names under which they are imported and installed.
        extra: of this package, which has them.

    Raises:
        ImportError: if one is missing.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{what} needs {' and '.join(packages)}, but {' and '.join(missing)} cannot be found; run "
            f"pip install {' '.join(missing)}, or install this package with the extra '{extra}'."
        )


def check_target(path: Optional[Path], flag: str) -> None:
    """Checks that a file can be written; None for a flag that is not given.

    Raises:
        FileNotFoundError: if its folder does not exist.
        IsADirectoryError: if it is a folder.
    """
    if path is not None and path.is_dir():
        raise IsADirectoryError(f"{flag} must name a file, but {path} is a folder; add a file name.")
    if path is not None:
        _check_parent(path, flag)


def check_target_folder(path: Path, flag: str) -> None:
    """Checks that a folder can be made, unless it is there.

    Raises:
        FileNotFoundError: if the folder above does not exist.
        NotADirectoryError: if it is a file.
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{flag} must name a folder, but {path} is a file; name another.")
    _check_parent(path, flag)


def _check_parent(path: Path, flag: str) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"{flag} must be in an existing folder, but {path.absolute().parent} does not exist; make it first."
        )
