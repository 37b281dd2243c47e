"""The words and labels of each split as plain text, one sentence a line: what is counted and then binarised."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Union

from muse_plugin.preparation.labelled_sentences import Sentence
from muse_plugin.text.text_settings import split_characters


class SplitFiles:
    """The text files of one split, ``FOLDER/SPLIT.KEY``.

    The keys are ``input0``, ``label`` and, as the data has them, ``input1``, ``characters0`` and ``characters1``.

    Attributes:
        name: of the split.
        source: the file that the split was read from.
        first_lines: for each label, the first line of ``source`` that has it.
    """

    def __init__(self, folder: Path, name: str, source: Path, keys: tuple[str, ...]) -> None:
        self.folder = folder
        self.name = name
        self.source = source
        self.keys = keys
        self.first_lines: dict[str, int] = {}

    def path(self, key: str) -> Path:
        """Returns the file of one key."""
        return self.folder / f"{self.name}.{key}"

    def inputs(self, kind: str = "input") -> list[Path]:
        """Returns the files of the texts, or with ``characters`` those of their characters."""
        return [self.path(key) for key in self.keys if key.startswith(kind)]

    def write(self, sentences: Iterable[Sentence]) -> None:
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
                        tokens = split_characters(lists[f"input{key[-1]}"])
                    else:
                        tokens = lists[key]
                    file.write(" ".join(tokens) + "\n")
                for label, line in zip(sentence.labels, sentence.lines, strict=True):
                    self.first_lines.setdefault(label, line)

    def count_sentences(self) -> int:
        """Returns the number of sentences."""
        return sum(1 for _ in iterate_tokens(self.path("label")))

    def move_part(self, name: str, share_or_count: Union[float, int], seed: int) -> "SplitFiles":
        """Moves random sentences to a split of their own; both parts keep the order of the file.

        Args:
            name: of the new split.
            share_or_count: how many: a share of the sentences (float, rounded, at least one) or their number (int).
            seed: the same one chooses the same sentences.

        Raises:
            ValueError: if no sentence would be left here.
        """
        chosen = choose_part(self.count_sentences(), share_or_count, seed, self.source)
        part = SplitFiles(self.folder, name, self.source, self.keys)
        part.first_lines = self.first_lines  # of the same file: a label that only the part has is first met there
        for key in self.keys:
            divide_lines(self.path(key), part.path(key), chosen)
        kept = {label for labels in iterate_tokens(part.path("label")) for label in labels}
        part.first_lines = {label: line for label, line in self.first_lines.items() if label in kept}
        return part


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


def count_split(split: SplitFiles) -> Counts:
    """Counts the words of one split."""
    words: Counter[str] = Counter()
    texts = longest = 0
    for path in split.inputs():
        for tokens in iterate_tokens(path):
            words.update(tokens)
            texts += 1
            longest = max(longest, len(tokens))
    return Counts(texts // len(split.inputs()), texts, words, longest)


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


def choose_part(total: int, share_or_count: Union[float, int], seed: int, source: Path) -> set[int]:
    """Chooses sentences for validation at random.

    Args:
        total: number of sentences.
        share_or_count: how many: a share (float, rounded, at least one) or their number (int).
        seed: the same one chooses the same.
        source: where they are from, for the message.

    Returns:
        Their numbers, from 0.

    Raises:
        ValueError: if none would be left for training.
    """
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
