"""Checks of flags that several commands make."""

import argparse


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Checks that flags, where given, are at least 1.

    Raises:
        ValueError: if one is not.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, but got {value}.")
