"""Phrases of a treebank as training examples: ``python phrases.py --trees FILE --sentences FILE --output FILE``.

A tree is a line such as ``(3 (2 It) (4 (2 works) (2 well)))``: a label from 0 to 4 before every phrase. The output has
the lines of --sentences, then one line ``label text`` per phrase: lower-case, each text once, with its most frequent
label. Trees of sentences in --without give none, nor do phrases that are such a sentence as a whole.
"""

import argparse
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional

TOKEN = re.compile(r"[()]|[^\s()]+")
BINARY = {"0": "0", "1": "0", "3": "1", "4": "1"}  # 2 is neutral


class Phrase(NamedTuple):
    """A node of a tree: its label and its words, in lower case."""

    label: str
    text: str


def parse_tree(line: str) -> list[Phrase]:
    """The phrases of a tree, the whole sentence last.

    Raises:
        ValueError: if brackets do not match, or a node has neither a word nor children.
    """
    open_nodes: list[list[str]] = []  # label, then words
    found: list[Phrase] = []
    tokens = TOKEN.findall(line)
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token == "(":
            if found and not open_nodes:
                raise ValueError("there is more than one tree")
            position += 1
            if position == len(tokens) or not re.fullmatch("[0-4]", tokens[position]):
                raise ValueError("a label from 0 to 4 must follow every opening bracket")
            open_nodes.append([tokens[position]])
        elif not open_nodes:
            raise ValueError(f"{token!r} is outside of the tree")
        elif token == ")":
            label, *words = open_nodes.pop()
            if not words:
                raise ValueError("a phrase has no words")
            found.append(Phrase(label, " ".join(words).lower()))
            if open_nodes:
                open_nodes[-1] += words
        else:
            open_nodes[-1].append(token)
        position += 1
    if open_nodes or not found:
        raise ValueError("brackets must match")
    return found


def read_trees(path: Path) -> Iterator[list[Phrase]]:
    """The trees of a file, one per line.

    Raises:
        ValueError: if a line is none; the sentence has its number.
    """
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield parse_tree(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: must be a tree, but {error}: {line[:40]!r}.") from error


def read_texts(path: Path) -> list[Phrase]:
    """Lines ``label text``.

    Raises:
        ValueError: if a line is none; the sentence has its number.
    """
    phrases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        label, _, text = line.partition(" ")
        if line and not text:
            raise ValueError(f"{path}, line {number}: must be a label, a space and a text, but is {line[:40]!r}.")
        if line:
            phrases.append(Phrase(label, text))
    return phrases


def collect_phrases(trees: Iterable[list[Phrase]], binary: bool, without: set[str]) -> dict[str, str]:
    """Text of each phrase -> its label.

    Args:
        trees: with their phrases, the whole sentence last.
        binary: two classes; neutral phrases are left out.
        without: sentences whose trees are left out, and that are no phrases either.
    """
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    for tree in trees:
        if tree[-1].text in without:
            continue
        for phrase in tree:
            label: Optional[str] = BINARY.get(phrase.label) if binary else phrase.label
            if label is not None and phrase.text not in without:
                labels[phrase.text][label] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in labels.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--sentences", type=Path, help="lines 'label text' that come first, as they are")
    parser.add_argument("--without", type=Path, nargs="+", default=[], help="lines 'label text' to keep out")
    parser.add_argument("--binary", action="store_true", help="0 and 1 become 0, 3 and 4 become 1, 2 is left out")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--check", metavar="SHA256", help="only check that --trees is the right file")
    args = parser.parse_args()
    try:
        if args.check:
            digest = hashlib.sha256(args.trees.read_bytes()).hexdigest()
            if digest != args.check:
                raise ValueError(f"{args.trees} must have the SHA-256 {args.check}, but has {digest}.")
            return 0
        if args.sentences is None or args.output is None:
            raise ValueError("--sentences and --output are needed, or --check.")
        sentences = read_texts(args.sentences)
        without = {phrase.text for path in args.without for phrase in read_texts(path)}
        phrases = collect_phrases(read_trees(args.trees), args.binary, without)
        for sentence in sentences:
            phrases.pop(sentence.text, None)
        lines = [f"{label} {text}\n" for label, text in sentences] + [f"{phrases[text]} {text}\n" for text in phrases]
        args.output.write_text("".join(lines), encoding="utf-8", newline="\n")
    except (OSError, ValueError) as error:
        print(f"phrases: error: {error}", file=sys.stderr)
        return 2
    print(f"{len(sentences)} sentences and {len(phrases)} phrases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
