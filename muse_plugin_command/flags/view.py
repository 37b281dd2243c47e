"""The flags of ``muse-plugin view``."""

import argparse

from muse_plugin_command.flags.shared import add_path_argument, add_translation_data_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin view`` on ``parser``."""
    parser.description = (
        "Serve a page on 127.0.0.1, for this machine only: type a sentence, see its translations with their scores, "
        "cross-attention and gates. Ctrl-C ends."
    )
    add_path_argument(parser)
    add_translation_data_argument(parser)
    parser.add_argument("--port", type=int, default=8000, help="port; 0 for any that is free (default: 8000)")
    parser.add_argument("--beam", type=int, default=5, help="beam size of the search (default: 5)")
    parser.add_argument("--nbest", type=int, help="translations shown of a sentence (default: as many as --beam)")
    parser.add_argument(
        "--lenpen",
        type=float,
        default=1.0,
        help="length penalty: below 1 favours short translations, above 1 long ones (default: 1)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
    parser.add_argument("--no-browser", action="store_true", help="show the address only, open no browser")
