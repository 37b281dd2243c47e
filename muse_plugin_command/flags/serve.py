"""The flags of ``muse-plugin serve``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from muse_plugin_command.flags.shared import (
    CHECKPOINT_NAMES,
    add_batch_arguments,
    add_path_argument,
    add_search_arguments,
    add_translation_data_argument,
)

PORT = 8080
GRAPHS = ("encoder.onnx", "decoder_step.onnx")  # of an exported folder; if one is missing, that is said by name


def is_exported(path: Path) -> bool:
    """Whether ``--path`` names a folder of ``muse-plugin export`` rather than one with a checkpoint."""
    return _holds(path, GRAPHS) and not _holds(path, CHECKPOINT_NAMES)


def _holds(folder: Path, names: Sequence[str]) -> bool:
    return any((folder / name).is_file() for name in names)


def needs_fairseq(args: argparse.Namespace) -> bool:
    """Whether fairseq and torch have to be imported for the work."""
    return not is_exported(args.path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin serve`` on ``parser``."""
    parser.description = (
        "Serve a translation model, a checkpoint or a folder of muse-plugin export, over HTTP, with the routes of "
        "LibreTranslate (/translate, /languages) and DeepL (/v2/translate), /health and /metrics. Sentences "
        "of all requests that wait are translated together. Ctrl-C or SIGTERM ends, once what was accepted is answered."
    )
    add_path_argument(parser)
    add_translation_data_argument(parser)
    add_search_arguments(parser)
    add_batch_arguments(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address; 0.0.0.0 for all of this machine (default: 127.0.0.1)")
    add("--port", type=int, default=PORT, help=f"port; 0 for any that is free (default: {PORT})")
    add("--allow-host", nargs="+", default=[], metavar="NAME", help="further names that requests may call it by")
    add("--api-key-file", type=Path, metavar="FILE", help="a file whose first line is the key that requests must give")
    add("--page", action="store_true", help="also serve the page of muse-plugin view")
    add("--nbest", type=int, help="translations shown of a sentence on the page (default: as many as --beam)")
    add(
        "--split",
        choices=("sentences", "lines"),
        default="sentences",
        help="what is translated by itself: each sentence of a text, or each line (default: sentences)",
    )
    add("--max-characters", type=int, default=100_000, help="of a request (default: 100000)")
    add("--max-sentences", type=int, default=2000, help="of a request (default: 2000)")
    add("--max-waiting", type=int, default=10_000, help="sentences that wait; more are refused (default: 10000)")
    add("--timeout", type=int, default=60, metavar="SECONDS", help="until a request is answered (default: 60)")
