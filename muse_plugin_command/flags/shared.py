"""Flags that several sub-commands have."""

import argparse
from pathlib import Path

# What --path looks for in a folder, the first of them first.
CHECKPOINT_NAMES = ("checkpoint_avg.pt", "checkpoint_best.pt", "checkpoint_last.pt")
OUTPUT_FORMATS = ("tsv", "jsonl")
LONG_TEXTS = ("truncate", "refuse")
MAX_TOKENS, BATCH_SIZE = 4000, 64  # of a batch of translations
MAX_LENGTH_FACTOR, MAX_LENGTH_EXTRA = 1.5, 30  # the longest translation, in tokens: times those of the source, plus


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
        help="the folder of the dictionaries and text_pipeline.json (default: that of the checkpoint or, if there is "
        "none in it, of the training data)",
    )


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how translations are searched for, and where."""
    add = parser.add_argument
    add("--beam", type=int, default=5, help="beam size of the search (default: 5)")
    add(
        "--lenpen",
        type=float,
        default=1.0,
        help="length penalty: below 1 favours short translations, above 1 long ones (default: 1)",
    )
    add("--cpu", action="store_true", help="do not use the GPU")


def add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how much is translated at once, and how precisely."""
    add = parser.add_argument
    add(
        "--max-tokens",
        type=int,
        default=MAX_TOKENS,
        help=f"most source tokens translated at once, padding included (default: {MAX_TOKENS})",
    )
    add(
        "--batch-size",
        type=int,
        default=BATCH_SIZE,
        help=f"most sentences translated at once (default: {BATCH_SIZE})",
    )
    add("--fp16", action="store_true", help="compute in half precision, for a GPU, as in fairseq-generate")


def add_language_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares ``--source-lang`` and ``--target-lang``."""
    add = parser.add_argument
    add("--source-lang", required=True, metavar="SOURCE", help="language to translate from, such as de")
    add("--target-lang", required=True, metavar="TARGET", help="language to translate into, such as en")


def add_translation_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what is done to the text of both languages before it is cut into subwords, and after translation."""
    add = parser.add_argument
    add(
        "--tokenizer",
        choices=("none", "moses"),
        help="moses splits words from punctuation (default: moses with byte-pair encoding, none otherwise)",
    )
    add("--normalize", action="store_true", help="first normalise punctuation by Moses' rules")
    add("--aggressive-hyphens", action="store_true", help="with --tokenizer moses: split words at hyphens (@-@)")
    add("--lower-case", action="store_true", help="lower-case both languages; translations are in lower case, too")
    add(
        "--detokenize",
        action="store_true",
        help="for text that is tokenised already: join the words of translations by Moses' rules",
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
        "continues when it is given again",
    )
    parser.add_argument(
        "--restart", action="store_true", help="throw away what a stopped command left next to --output FILE"
    )
