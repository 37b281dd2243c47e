"""The flags of ``muse-plugin path``: there are none."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the command."""
    parser.description = 'Print the folder of this package: fairseq-train --user-dir "$(muse-plugin path)" ...'
