"""The flags of ``muse-plugin score-labels``."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of ``muse-plugin score-labels`` on ``parser``."""
    parser.description = "Score labels, tags or numbers that muse-plugin predict --split NAME --format jsonl wrote."
    parser.add_argument("predictions", type=Path, help="the file with predictions and right answers")
    parser.add_argument("--entities", action="store_true", help="tags are BIO: score entities as well (needs seqeval)")
    parser.add_argument("--positive", metavar="LABEL", help="also F1, precision and recall of this label")
    parser.add_argument(
        "--group",
        type=Path,
        metavar="FILE",
        help="rank by the probability of --positive: MAP and MRR over groups, such as the answers to one question; "
        "FILE has a line for each prediction, those with the same line are a group; groups without a right answer are "
        "left out; of answers with equal probability the wrong ones come first",
    )
    parser.add_argument(
        "--versus",
        type=Path,
        metavar="FILE",
        help="predictions of another system to compare with (exact McNemar test)",
    )
    parser.add_argument(
        "--length-buckets", metavar="BOUNDS", help="score by length in words: upper bounds, such as 10,20,30"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write everything to FILE as JSON")
    parser.add_argument(
        "--record", action="append", default=[], metavar="KEY=VALUE", help="a setting to store in --output; repeatable"
    )
