"""One domain of MTL-16 as UTF-8: ``python split_domain.py --train FILE [--test FILE | --hold-out 400] --output DIR``.

Some lines of the source are ISO 8859-1, the others UTF-8. Says how many training texts are in the test set, too, word
for word. Writes DIR/train.txt and DIR/test.txt.
"""

import argparse
import sys
from pathlib import Path


def read_lines(path: Path) -> list[str]:
    """The lines of a file; those that are no UTF-8 are ISO 8859-1.

    Raises:
        ValueError: if a line is no label, tab and text.
    """
    lines = []
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("iso-8859-1")
        if text[:2] not in ("0\t", "1\t"):
            raise ValueError(f"{path}, line {number}: must be 0 or 1, a tab and a text, but is {text[:40]!r}.")
        lines.append(text.rstrip("\r"))
    return lines


def find_copies(train: list[str], test: list[str]) -> list[bool]:
    """For each training line whether its text is that of a test line."""
    texts = {line[2:].strip() for line in test}
    return [line[2:].strip() in texts for line in train]


def split(train: list[str], hold_out: int) -> tuple[list[str], list[str]]:
    """The last ``hold_out`` lines are the test set.

    Raises:
        ValueError: if nothing else is left.
    """
    if not 0 < hold_out < len(train):
        raise ValueError(f"--hold-out must lie between 1 and {len(train) - 1}, but got {hold_out}.")
    return train[:-hold_out], train[-hold_out:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--test", type=Path)
    source.add_argument("--hold-out", type=int, metavar="N", help="test on the last N training lines")
    parser.add_argument("--drop-copies", action="store_true", help="drop training texts that the test set has, too")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        train = read_lines(args.train)
        if args.test is not None:
            test = read_lines(args.test)
        else:
            train, test = split(train, args.hold_out)
    except (OSError, ValueError) as error:
        print(f"split_domain: error: {error}", file=sys.stderr)
        return 2
    copies = find_copies(train, test)
    what = "dropped" if args.drop_copies else "kept"
    print(
        f"{len(train)} training and {len(test)} test texts; {sum(copies)} training texts also in the test set, {what}"
    )
    if args.drop_copies:
        train = [line for line, is_copy in zip(train, copies, strict=True) if not is_copy]
    args.output.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", train), ("test", test)):
        (args.output / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
