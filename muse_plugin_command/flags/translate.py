"""The flags of ``muse-plugin translate``."""

import argparse

from muse_plugin_command.flags.shared import (
    add_batch_arguments,
    add_path_argument,
    add_search_arguments,
    add_stream_arguments,
    add_translation_data_argument,
)

INFERENCE_BACKENDS = ("torch", "onnxruntime")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin translate`` on ``parser``."""
    parser.description = "Translate raw text, one sentence a line, from standard input to standard output."
    add_path_argument(parser)
    add_translation_data_argument(parser)
    add_stream_arguments(parser)
    add_search_arguments(parser)
    add_batch_arguments(parser)
    parser.add_argument(
        "--inference-backend",
        choices=INFERENCE_BACKENDS,
        help="what runs the model: torch, or onnxruntime, on the CPU alone (needs the extra 'export'); the same "
        "translations (default: as the model was trained with, else torch)",
    )
    parser.add_argument(
        "--constraints",
        nargs="?",
        choices=("ordered", "unordered"),
        const="ordered",
        help="phrases that must occur in a translation follow its line, each after a tab; in their order "
        "(default), or unordered: in any",
    )
