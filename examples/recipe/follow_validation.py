"""Shows the progress of fairseq-train, and after each validation how it compares with the authors' run.

Called by recipe.sh: ``fairseq-train ... | python follow_validation.py published_validation.tsv --title RECIPE``. Reads
a log of ``--log-format simple`` on standard input. With ``--warn`` it says once that a run is clearly off: its
perplexity is 1.3 times what the authors' was after as many updates, and still above theirs after half of them.
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import NamedTuple, Optional

from tab_table import read_table

COLUMNS = ["epoch", "updates", "valid_loss", "valid_nll_loss", "valid_ppl"]
PROGRESS = re.compile(r" \| (train_inner|valid|train) \| ")
VALIDATION = re.compile(r"\| epoch \d+ \| valid on 'valid' subset \| (.*)$")
FACTOR = 1.3


class Published(NamedTuple):
    """The authors' validation.

    Attributes:
        curve: updates and perplexity, in order; empty where there is no log.
        best: the lowest perplexity.
    """

    curve: list[tuple[int, float]]
    best: float

    def perplexity(self, updates: int) -> Optional[float]:
        """Theirs after so many updates, interpolated; None before the first and after the last validation."""
        for (start, before), (end, after) in zip(self.curve, self.curve[1:], strict=False):
            if start <= updates <= end:
                share = (updates - start) / (end - start)
                return math.exp((1 - share) * math.log(before) + share * math.log(after))
        return None


def read_published(path: Path) -> Published:
    """Reads ``published_validation.tsv`` of a recipe.

    Raises:
        ValueError: if it has other columns or no number.
    """
    rows = read_table(path, COLUMNS)
    curve = [(int(row["updates"]), float(row["valid_ppl"])) for row in rows if row["updates"] != "-"]
    return Published(curve, min(float(row["valid_ppl"]) for row in rows))


def read_validation(line: str) -> Optional[tuple[int, float]]:
    """Updates and perplexity of a line of the log; None if it is about something else."""
    match = VALIDATION.search(line)
    if match is None:
        return None
    numbers = dict(part.split(" ", 1) for part in match[1].split(" | ") if " " in part)
    try:
        return int(numbers["num_updates"]), float(numbers["ppl"])
    except (KeyError, ValueError):
        return None


def compare(updates: int, perplexity: float, published: Published) -> str:
    """How a validation compares, a sentence."""
    theirs = published.perplexity(updates)
    text = f"validation perplexity {perplexity:.2f} after {updates:,} updates"
    if theirs is not None:
        return f"{text}; the authors' MUSE: {theirs:.2f}, in the end {published.best:.2f}"
    return f"{text}; the authors' MUSE in the end: {published.best:.2f}"


def is_off(updates: int, perplexity: float, published: Published) -> bool:
    """Whether a run is clearly behind the authors'; not a number counts as behind."""
    theirs, earlier = published.perplexity(updates), published.perplexity(updates // 2)
    if theirs is None:
        return False
    return not perplexity <= max(FACTOR * theirs, earlier or 2 * theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("published", type=Path, help="published_validation.tsv of the recipe")
    parser.add_argument("--title", required=True, help="what the lines begin with")
    parser.add_argument("--warn", action="store_true", help="say once if the run is clearly off")
    args = parser.parse_args()
    try:
        published = read_published(args.published)
    except (OSError, ValueError) as error:
        print(f"follow_validation: error: {error}", file=sys.stderr)
        return 2
    warns = args.warn
    for line in sys.stdin:
        if PROGRESS.search(line):
            print(line, end="", flush=True)
        validation = read_validation(line)
        if validation is None:
            continue
        print(f"{args.title}: {compare(*validation, published)}", flush=True)
        if warns and is_off(*validation, published):
            warns = False
            print(
                f"{args.title}: warning: this run is clearly behind the authors'; before training continues, look at "
                "the data (warnings of prepare.sh), the rate and the gradient norm (gnorm)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
