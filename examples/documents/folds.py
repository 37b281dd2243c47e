"""Folds for cross-validation: ``python folds.py FILE... --folds 3 --seed 1 --output DIR``.

Writes DIR/fold<k>/text/train.txt and valid.txt: fold k validates on one part of the lines and trains on the others.
Every part has its share of each class (the text before the first tab), and every line is in one part. The same seed
gives the same parts.
"""

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path

from documents import read_lines


def assign(labels: list[str], folds: int, seed: int) -> list[int]:
    """The fold, from 1 on, that each document validates.

    Raises:
        ValueError: if there are fewer than two folds, or a class has fewer documents than there are folds.
    """
    if folds < 2:
        raise ValueError(f"--folds must be at least 2, but got {folds}.")
    members = defaultdict(list)
    for number, label in enumerate(labels):
        members[label].append(number)
    fold_of = [0] * len(labels)
    next_fold = 0  # continues from class to class, so that parts are of equal size
    for label in sorted(members):
        if len(members[label]) < folds:
            raise ValueError(
                f"every class must have a document for each of the {folds} folds, but {label!r} has "
                f"{len(members[label])}; use fewer folds."
            )
        random.Random(f"{seed} {label}").shuffle(members[label])
        for number in members[label]:
            fold_of[number] = next_fold + 1
            next_fold = (next_fold + 1) % folds
    return fold_of


def read(paths: list[Path]) -> list[str]:
    """The lines of the files.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a line has no tab or is no UTF-8.
    """
    lines = []
    for path in paths:
        for number, line in read_lines(path):
            if "\t" not in line:
                raise ValueError(f"{path}, line {number}: must be a label, a tab and a text, but is {line[:40]!r}.")
            lines.append(line)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--folds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        lines = read(args.files)
        fold_of = assign([line.split("\t", 1)[0] for line in lines], args.folds, args.seed)
    except (OSError, ValueError) as error:
        print(f"folds: error: {error}", file=sys.stderr)
        return 2
    for fold in range(1, args.folds + 1):
        folder = args.output / f"fold{fold}" / "text"
        folder.mkdir(parents=True, exist_ok=True)
        for name, valid in (("train", False), ("valid", True)):
            own = [line for line, number in zip(lines, fold_of, strict=True) if (number == fold) == valid]
            (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in own), encoding="utf-8", newline="\n")
    sizes = [fold_of.count(fold) for fold in range(1, args.folds + 1)]
    print(f"{len(lines):,} documents in {args.folds} folds of {', '.join(f'{size:,}' for size in sizes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
