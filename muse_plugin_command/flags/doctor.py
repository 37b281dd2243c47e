"""The flags of ``muse-plugin doctor``."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin doctor`` on ``parser``."""
    parser.description = (
        "Check python, torch, fairseq and the rest, say what each missing thing costs and which command fixes it. "
        "The exit code is 0 when training can work and 1 when it cannot."
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=180.0,
        metavar="S",
        help="seconds before an import counts as hanging (%(default)s)",
    )
