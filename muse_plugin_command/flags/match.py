"""The flags of ``muse-plugin match`` and of its kinds."""

import argparse
from pathlib import Path

from muse_plugin_command.flags.shared import (
    LONG_TEXTS,
    OUTPUT_FORMATS,
    add_path_argument,
    add_sentence_data_argument,
)

DTYPES = ("float32", "float16")
DEFAULT_MEMORY = 1024  # MiB
SHOWN_HEADS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the sub-commands of ``muse-plugin match`` and their flags."""
    parser.description = (
        "Encode every sentence once and match many: a model of pairs that reads each sentence by itself needs only "
        "their vectors to compare two."
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", dest="kind", required=True)
    _add_encode_arguments(kinds.add_parser("encode", help="store the vectors of a file of sentences"))
    _add_score_arguments(kinds.add_parser("score", help="score pairs of stored sentences, or all of them"))
    _add_search_arguments(kinds.add_parser("search", help="find the best matches of each query among stored sentences"))
    _add_explain_arguments(kinds.add_parser("explain", help="draw what the heads of a head-wise match model look at"))


def _add_encode_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Encode every sentence of a file once and store the vectors, for match score and match search. A command that "
        "was stopped continues when it is given again."
    )
    _add_model_arguments(parser)
    parser.add_argument(
        "--input", required=True, type=Path, metavar="FILE", help="one sentence a line; blank lines are refused"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="CACHE", help="the folder to make or continue")
    parser.add_argument(
        "--ids", action="store_true", help="lines are ID TAB SENTENCE (default: a sentence's id is its line number)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the stored numbers (default: float32)")
    _add_reading_arguments(parser)


def _add_score_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Score pairs of sentences whose vectors are cached: those that a file names, one ID TAB ID a line, or with "
        "--all every sentence of the first cache with every one of the second."
    )
    _add_model_arguments(parser)
    parser.add_argument("--first", required=True, type=Path, metavar="CACHE", help="first sentences of the pairs")
    parser.add_argument("--second", required=True, type=Path, metavar="CACHE", help="second ones; may be the same")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="score these; written are both ids, the label, and the probability of each label (or the numbers)",
    )
    what.add_argument(
        "--all",
        action="store_true",
        help="score every pair; --output is a NumPy file with the probability of --label, a row per first sentence",
    )
    parser.add_argument("--top", type=int, metavar="K", help="with --all: write only the best K of each row, as search")
    parser.add_argument("--batch-size", type=int, default=1024, help="most of --pairs scored at once (default: 1024)")
    _add_ranking_arguments(parser)


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Find the K sentences of a corpus that match each query best, by the probability of a label. The query is the "
        "first sentence of a pair, that of the corpus the second. Of equal matches the first in the corpus wins."
    )
    _add_model_arguments(parser)
    parser.add_argument(
        "--queries", required=True, type=Path, metavar="FILE_OR_CACHE", help="sentences, one a line, or cached vectors"
    )
    parser.add_argument("--ids", action="store_true", help="lines of the file of queries are ID TAB SENTENCE")
    parser.add_argument("--corpus", required=True, type=Path, metavar="CACHE", help="what is searched")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="matches per query (default: 10)")
    _add_ranking_arguments(parser)
    parser.add_argument(
        "--first-stage",
        choices=("none", "cosine", "faiss"),
        default="none",
        help="how candidates for the model are found: none (it scores the whole corpus), cosine of the whole vectors, "
        "faiss (the same, by an approximate index, which is stored in CACHE) (default: none)",
    )
    parser.add_argument(
        "--candidates", type=int, metavar="N", help="candidates of the first stage (default: 10 K, at least 100)"
    )
    _add_reading_arguments(parser)


def _add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show for one pair what the heads of a head-wise match model look at in either sentence, and how much each "
        "head has of the maximum over heads: a figure, and the numbers next to it as JSON."
    )
    _add_model_arguments(parser)
    parser.add_argument("--input", required=True, type=Path, metavar="FILE", help="pairs, a tab between the texts")
    parser.add_argument("--line", type=int, default=1, metavar="N", help="number of the pair (default: 1)")
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="figure, .png, .pdf or .svg; numbers next to it, .json",
    )
    parser.add_argument(
        "--heads",
        metavar="L.H,...",
        help="heads to show, layer and head counted from 0, such as 0.3,2.11 (default: the "
        f"{SHOWN_HEADS} with the largest shares, or the first of the last layer)",
    )
    _add_length_arguments(parser)


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say which model."""
    add_path_argument(parser)
    add_sentence_data_argument(parser)
    parser.add_argument("--cpu", action="store_true", help="do not use the GPU")


def _add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say how sentences are read."""
    parser.add_argument("--batch-size", type=int, default=128, help="most sentences encoded at once (default: 128)")
    _add_length_arguments(parser)


def _add_length_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say what happens to long sentences."""
    parser.add_argument("--max-words", type=int, help="words read of a sentence (default: as in training)")
    parser.add_argument(
        "--long-texts", choices=LONG_TEXTS, help="what happens to longer ones (default: as in training)"
    )


def _add_ranking_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say what counts, and where it goes."""
    parser.add_argument(
        "--label",
        metavar="NAME",
        help="the label whose probability counts, or which number; may be left out for a single number, and "
        "where one of two labels means yes: 1, true, match, duplicate and the like",
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=DEFAULT_MEMORY,
        metavar="MIB",
        help="for vectors and scores, besides the program and its model (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE when all is done (default: stdout)")
    parser.add_argument("--format", choices=OUTPUT_FORMATS, default="tsv", help="columns or JSON lines (default: tsv)")
