"""The flags of ``muse-plugin translate``."""

import argparse

from muse_plugin_command.flags.shared import (
    add_path_argument,
    add_stream_arguments,
    add_translation_data_argument,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin translate`` on ``parser``."""
    parser.description = "Translate raw text, one sentence a line, from standard input to standard output."
    add_path_argument(parser)
    add_translation_data_argument(parser)
    add_stream_arguments(parser)
    parser.add_argument("--beam", type=int, default=5, help="beam size of the search (default: 5)")
    parser.add_argument(
        "--lenpen",
        type=float,
        default=1.0,
        help="length penalty: below 1 favours short translations, above 1 long ones (default: 1)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=4000,
        help="most source tokens translated at once, padding included (default: 4000)",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="most sentences translated at once (default: 64)")
    parser.add_argument(
        "--constraints",
        nargs="?",
        choices=("ordered", "unordered"),
        const="ordered",
        help="phrases that must occur in a translation stand behind its line, each after a tab; in their order "
        "(default), or unordered: in any",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
