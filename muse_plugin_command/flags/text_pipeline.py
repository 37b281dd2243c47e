"""The flags of ``muse-plugin text-pipeline``."""

import argparse
from pathlib import Path

from muse_plugin_command.flags.shared import add_language_arguments, add_translation_text_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin text-pipeline`` on ``parser``."""
    parser.description = (
        "Write text_pipeline.json, with which muse-plugin translate and view read raw text, for a model that was "
        "trained on data of fairseq-preprocess: say how its training text was tokenised and name the subwords that cut "
        "it, which are checked against the dictionaries. Without a flag for a file, words are not cut."
    )
    add = parser.add_argument
    add_language_arguments(parser)
    for side, both in (("", "both languages"), ("source-", "the source language"), ("target-", "the target language")):
        add(f"--{side}bpe-codes", type=Path, metavar="FILE", help=f"codes of subword-nmt for {both}")
        add(f"--{side}sentencepiece", type=Path, metavar="FILE", help=f"a .model of SentencePiece for {both}")
    add_translation_text_arguments(parser)
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder of dict.SOURCE.txt and dict.TARGET.txt, which are copied to --output (default: that folder)",
    )
    add(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder of the checkpoints or of the training data, made if missing",
    )
    add("--overwrite", action="store_true", help="replace another text pipeline that is there")
