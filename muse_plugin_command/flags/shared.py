"""Flags that several sub-commands have."""

import argparse
from pathlib import Path

# What --path looks for in a folder, the first of them first.
CHECKPOINT_NAMES = ("checkpoint_avg.pt", "checkpoint_best.pt", "checkpoint_last.pt")
OUTPUT_FORMATS = ("tsv", "jsonl")
LONG_TEXTS = ("truncate", "refuse")


def add_path_argument(parser: argparse.ArgumentParser) -> None:
    """Declares ``--path``, a checkpoint or a folder with one."""
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        metavar="DIR_OR_CHECKPOINT",
        help=f"a folder with a checkpoint (the first of {', '.join(CHECKPOINT_NAMES)}), or a checkpoint file",
    )


def add_translation_data_argument(parser: argparse.ArgumentParser) -> None:
    """Declares ``--data`` for a translation model."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder of the dictionaries and text_pipeline.json (default: that of the checkpoint or, if there is none "
        "in it, of the training data)",
    )


def add_sentence_data_argument(parser: argparse.ArgumentParser) -> None:
    """Declares ``--data`` for a sentence model."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder that muse-plugin prepare-text made (default: as trained)"
    )


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares ``--input``, ``--output`` and ``--restart`` on ``parser``."""
    parser.add_argument("--input", type=Path, metavar="FILE", help="read from FILE (default: standard input)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to FILE when all is done (default: standard output); with --input FILE, a command that was stopped "
        "goes on when it is given again",
    )
    parser.add_argument(
        "--restart", action="store_true", help="throw away what a stopped command left beside --output FILE"
    )
