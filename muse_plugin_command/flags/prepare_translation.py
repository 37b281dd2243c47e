"""The flags of ``muse-plugin prepare-translation``."""

import argparse
from pathlib import Path

from muse_plugin_command.flags.shared import add_language_arguments, add_translation_text_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin prepare-translation`` on ``parser``."""
    parser.description = (
        "Turn parallel text into training data for translation: subwords, dictionaries, fairseq's binary files and "
        "text_pipeline.json, with which muse-plugin translate reads raw text. PREFIX stands for two files of UTF-8 "
        "text, PREFIX.SOURCE and PREFIX.TARGET, in which line n of one translates line n of the other; each may be "
        "compressed with gzip (PREFIX.SOURCE.gz)."
    )
    add = parser.add_argument
    add_language_arguments(parser)
    add("--train", type=Path, required=True, metavar="PREFIX", help="sentences to train on")
    add("--valid", type=Path, metavar="PREFIX", help="sentences to validate on")
    add("--valid-from-train", metavar="SHARE|COUNT", help="validate on a random part of --train: 0.01 or 1000")
    add("--seed", type=int, default=1, help="chooses the part of --valid-from-train (default: 1)")
    add(
        "--test",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="PREFIX",
        help="sentences to test on: test, test1, ...",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the data, made if missing")
    add(
        "--subwords",
        default="sentencepiece:8000",
        metavar="KIND:N",
        help="sentencepiece:N (its unigram model), sentencepiece:bpe:N, bpe:N (subword-nmt) or none; N pieces or "
        "merges, learned on the training text alone (default: sentencepiece:8000)",
    )
    add("--separate", action="store_true", help="subwords and a dictionary for each language instead of joint ones")
    add_translation_text_arguments(parser)
    add("--empty", choices=("refuse", "skip"), default="refuse", help="for pairs with an empty line (default: refuse)")
    add("--max-length", type=int, default=1000, metavar="N", help="most tokens of a sentence (default: 1000)")
    add("--long", choices=("refuse", "skip"), default="refuse", help="for pairs with a longer one (default: refuse)")
    add("--keep-train-text", action="store_true", help="keep train.tok.LANG, which the task with BPE-dropout reads")
    add("--workers", type=int, default=1, metavar="N", help="processes; their number changes no result (default: 1)")
    add("--overwrite", action="store_true", help="replace data that this command made before")
