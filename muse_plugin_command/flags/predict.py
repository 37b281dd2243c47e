"""The flags of ``muse-plugin predict``."""

import argparse

from muse_plugin_command.flags.shared import (
    LONG_TEXTS,
    OUTPUT_FORMATS,
    add_path_argument,
    add_sentence_data_argument,
    add_stream_arguments,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin predict`` on ``parser``."""
    parser.description = (
        "Predict labels, numbers or tags for raw text, one sentence a line; the texts of a pair are in one line with "
        "a tab between them. Blank lines get blank answers."
    )
    add_path_argument(parser)
    add_sentence_data_argument(parser)
    add_stream_arguments(parser)
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="instead of raw text, read this split of the prepared data, such as test; with --format jsonl the right "
        "answers are written too, for muse-plugin score-labels",
    )
    parser.add_argument(
        "--format",
        choices=OUTPUT_FORMATS,
        default="tsv",
        help="tsv: the label and then the probability of each, in the order of label/dict.txt (which is shown at the "
        "start), or the numbers, or the tags with spaces between; jsonl: one JSON object a line (default: tsv)",
    )
    parser.add_argument("--batch-size", type=int, default=128, help="most sentences read at once (default: 128)")
    parser.add_argument(
        "--max-words",
        type=int,
        help="words read of a text (default: as in training; all of them where every word gets a tag)",
    )
    parser.add_argument(
        "--long-texts",
        choices=LONG_TEXTS,
        help="what happens to longer ones: truncate (the first words are read; how many texts is said at the end), "
        "refuse (default: as in training)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")
