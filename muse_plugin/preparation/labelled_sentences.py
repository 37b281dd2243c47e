"""From the examples of a file to words and checked labels: where tokenizer and the rules for labels meet."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from muse_plugin.preparation.corpus_formats import CorpusFormat, Example
from muse_plugin.preparation.label_dictionary import check_label, check_number
from muse_plugin.preparation.tag_sequences import check_bio
from muse_plugin.text.tokenizer import Tokenizer


class LabelledSentence(NamedTuple):
    """One example, ready to be written.

    Attributes:
        sides: the words of its text, or of its two texts; none is empty.
        labels: its label or number, or the tag of each word.
        lines: the line in the file of each label.
    """

    sides: tuple[list[str], ...]
    labels: list[str]
    lines: tuple[int, ...]


@dataclass
class SentenceReader:
    """Reads the sentences of files of one format.

    Attributes:
        corpus_format: how the files are written.
        tokenizer: how text becomes words.
        numbers: whether labels are numbers.
        check_tags: whether tags must be BIO.
        repair_tags: see ``tag_sequences.check_bio``.
        skip_empty: whether an example with an empty text is passed over; otherwise it is refused.
        skipped: examples passed over so far.
        repaired: tags changed so far.
    """

    corpus_format: CorpusFormat
    tokenizer: Tokenizer
    numbers: bool = False
    check_tags: bool = False
    repair_tags: bool = False
    skip_empty: bool = False
    skipped: int = 0
    repaired: int = 0

    def read(self, path: Path, flag: str) -> Iterator[LabelledSentence]:
        """Yields the sentences of a file.

        Args:
            path: the file.
            flag: what names it on the command line, for messages.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if a line is not as it must be, or no sentence is left; the sentence names file and line.
        """
        count = 0
        for example in self.corpus_format.read(path, flag):
            sides = self._split(example)
            if all(sides):
                count += 1
                yield LabelledSentence(sides, self._check_labels(example, path), example.lines)
            elif self.skip_empty:
                self.skipped += 1
            else:
                which = "text" if len(sides) == 1 else ("first text", "second text")[sides.index([])]
                raise ValueError(
                    f"each example needs a text, but the {which} in line {example.lines[0]} of {path} is empty; "
                    "correct the file or give --empty skip."
                )
        if not count:
            raise ValueError(f"{flag} must name a file with examples, but {path} has none; check how it was made.")

    def _split(self, example: Example) -> tuple[list[str], ...]:
        if example.words:
            return (self.tokenizer.clean_words(example.words),)
        return tuple(map(self.tokenizer.split, example.texts))

    def _check_labels(self, example: Example, path: Path) -> list[str]:
        check = check_number if self.numbers else check_label
        labels = [check(label, line, path) for label, line in zip(example.labels, example.lines, strict=True)]
        if self.check_tags:
            labels, repaired = check_bio(labels, example.lines, path, self.repair_tags)
            self.repaired += repaired
        return labels
