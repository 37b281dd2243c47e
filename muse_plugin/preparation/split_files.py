"""The words and labels of each split as plain text, one sentence a line: what is counted and then binarised."""

import argparse
import contextlib
import functools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Union

from muse_plugin.preparation.labelled_sentences import LabelledSentence
from muse_plugin.text.lowered_words import written_form
from muse_plugin.text.sentence_pieces import SPACE_MARK


def list_files(args: argparse.Namespace) -> list[tuple[str, Path, str]]:
    """Returns (name of the split, file, flag that names it) of all files, the training split first."""
    files = [("train", args.train, "--train")]
    if args.valid:
        files.append(("valid", args.valid, "--valid"))
    return files + [(f"test{i or ''}", path, "--test") for i, path in enumerate(args.test)]


def spell_characters(words: Iterable[str]) -> list[str]:
    """Spells words as they were written, with a token U+2581 between words; ``ab c`` gives ``a b U+2581 c``.

    A U+2581 within a word becomes ``_``.
    """
    return list(SPACE_MARK.join(written_form(word).replace(SPACE_MARK, "_") for word in words))


class Counts(NamedTuple):
    """What one split holds.

    Attributes:
        sentences: examples; a pair is one.
        texts: texts; a pair has two.
        words: how often each word occurs.
        longest: words of the longest text.
    """

    sentences: int
    texts: int
    words: "Counter[str]"
    longest: int

    @property
    def running(self) -> int:
        """The number of words of all texts."""
        return sum(self.words.values())


@dataclass
class SplitFiles:
    """The text files of one split, ``FOLDER/SPLIT.KEY``.

    The keys are ``input0``, ``label`` and, as the data has them, ``input1``, ``characters0`` and ``characters1``.

    Attributes:
        folder: where they are.
        name: of the split.
        source: the file that the split was read from.
        keys: of the files.
        first_lines: for each label, the first line of ``source`` that has it.
    """

    folder: Path
    name: str
    source: Path
    keys: tuple[str, ...]
    first_lines: dict[str, int] = field(default_factory=dict)

    def path(self, key: str) -> Path:
        """Returns the file of one key."""
        return self.folder / f"{self.name}.{key}"

    def inputs(self, kind: str = "input") -> list[Path]:
        """Returns the files of the texts, or with ``characters`` those of their characters."""
        return [self.path(key) for key in self.keys if key.startswith(kind)]

    @functools.cached_property
    def counts(self) -> Counts:
        """What the texts hold, once they are written."""
        words: Counter[str] = Counter()
        texts = longest = 0
        for path in self.inputs():
            for tokens in iterate_tokens(path):
                words.update(tokens)
                texts += 1
                longest = max(longest, len(tokens))
        return Counts(texts // len(self.inputs()), texts, words, longest)

    def write(self, sentences: Iterable[LabelledSentence]) -> None:
        """Writes all files of the split."""
        with contextlib.ExitStack() as stack:
            files = {
                key: stack.enter_context(self.path(key).open("w", encoding="utf-8", newline="\n")) for key in self.keys
            }
            for sentence in sentences:
                lists = {f"input{i}": words for i, words in enumerate(sentence.sides)}
                lists["label"] = sentence.labels
                for key, file in files.items():
                    if key.startswith("characters"):
                        tokens = spell_characters(lists[f"input{key[-1]}"])
                    else:
                        tokens = lists[key]
                    file.write(" ".join(tokens) + "\n")
                for label, line in zip(sentence.labels, sentence.lines, strict=True):
                    self.first_lines.setdefault(label, line)

    def move_part(self, name: str, part: str, seed: int) -> "SplitFiles":
        """Moves random sentences to a split of their own; both parts keep the order of the file.

        Args:
            name: of the new split.
            part: how many, as ``choose_part`` has it.
            seed: the same one chooses the same sentences.

        Raises:
            ValueError: if no sentence would be left here.
        """
        chosen = choose_part(self.path("label"), part, seed, self.source)
        moved = SplitFiles(self.folder, name, self.source, self.keys)
        for key in self.keys:
            divide_lines(self.path(key), moved.path(key), chosen)
        kept = {label for labels in iterate_tokens(moved.path("label")) for label in labels}
        # of the same file: a label that only the part has is first met there
        moved.first_lines = {label: line for label, line in self.first_lines.items() if label in kept}
        return moved


def count_tokens(paths: Iterable[Path]) -> "Counter[str]":
    """Counts the tokens of several files."""
    counter: Counter[str] = Counter()
    for path in paths:
        for tokens in iterate_tokens(path):
            counter.update(tokens)
    return counter


def iterate_tokens(path: Path) -> Iterator[list[str]]:
    """Yields the tokens of each line of a file of a split."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.split()


def check_validation(args: argparse.Namespace) -> None:
    """Checks the flags that say what is validated on.

    Raises:
        ValueError: if there are two, or ``--valid-from-train`` is no part.
    """
    if args.valid_from_train is not None:
        _parse_part(args.valid_from_train)
        if args.valid:
            raise ValueError(
                f"validation sentences come from one place, but got --valid {args.valid} and --valid-from-train "
                f"{args.valid_from_train}; drop one."
            )


def _parse_part(part: str) -> Union[float, int]:
    if re.fullmatch(r"[1-9][0-9]*", part):
        return int(part)
    if re.fullmatch(r"0?\.[0-9]+", part) and float(part) > 0:
        return float(part)
    raise ValueError(
        f"--valid-from-train must be a share between 0 and 1, such as 0.1, or a number of sentences, but got {part!r}."
    )


def choose_part(lines: Path, part: str, seed: int, source: Path) -> set[int]:
    """Chooses sentences for validation at random.

    Args:
        lines: a file with a line for each sentence.
        part: how many, the value of ``--valid-from-train``: a share (rounded, at least one) or their number.
        seed: the same one chooses the same.
        source: where they are from, for the message.

    Returns:
        Their numbers, from 0.

    Raises:
        ValueError: if none would be left for training.
    """
    total = sum(1 for _ in iterate_tokens(lines))
    share_or_count = _parse_part(part)
    count = max(1, round(total * share_or_count)) if isinstance(share_or_count, float) else share_or_count
    if count >= total:
        raise ValueError(
            f"--valid-from-train must leave sentences for training, but {share_or_count} takes {count} of the "
            f"{total} in {source}; give less or a file of its own with --valid."
        )
    return set(random.Random(seed).sample(range(total), count))


def divide_lines(path: Path, part: Path, chosen: set[int]) -> None:
    """Moves the lines with some numbers, from 0, to a file of their own."""
    rest = path.with_name(f"{path.name}.rest")
    with path.open("rb") as lines, rest.open("wb") as kept, part.open("wb") as moved:
        for i, line in enumerate(lines):
            (moved if i in chosen else kept).write(line)
    rest.replace(path)
