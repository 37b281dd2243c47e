"""The flags of ``muse-plugin convert``."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``muse-plugin convert``."""
    parser.add_argument("input", metavar="AUTHORS.pt", type=Path, help="checkpoint of the authors' program")
    parser.add_argument("output", metavar="OUT.pt", type=Path, help="where to write the converted checkpoint")
