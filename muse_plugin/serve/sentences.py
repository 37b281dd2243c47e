"""Divides a text into sentences and what is between them, which is kept as it is."""

import re
from collections.abc import Callable

from muse_plugin.files.lines import clean_line
from muse_plugin.runner.run import CHARACTERS_PER_TOKEN

_BREAKS = re.compile(r"((?<!\s)\s*\n\s*)")
_ENDS = re.compile(r"(?<=[.!?…。！？])(?P<closing>[\"'”’»)\]]*)(?P<space>\s+)(?=\S)")
# A full stop after a single letter or a number ends no sentence: "z. B. Wasser", "am 3. Mai".
_ABBREVIATED = re.compile(r"(?:^|[\s(])(?:\w|\d+)\.$")


class LongSentenceError(ValueError):
    """A sentence is longer than the model reads."""


def split_whole(sentence: str, most: int, split: Callable[[str], list[str]]) -> list[str]:
    """The tokens of a sentence, where a translator cuts a long one with a warning that no client sees.

    Args:
        sentence: raw.
        most: tokens that the model reads.
        split: the text pipeline of the source language.

    Raises:
        LongSentenceError: if there are more.
    """
    sentence = clean_line(sentence)
    if len(sentence) <= most * CHARACTERS_PER_TOKEN:  # tokenising takes quadratic time where there are no words
        tokens = split(sentence)
        if len(tokens) <= most:
            return tokens
    raise LongSentenceError(
        f"a sentence must have at most {most:,} tokens, but {sentence[:40]!r}... has more; send it in parts."
    )


def divide_text(text: str, within_lines: bool = True) -> list[str]:
    """Divides a text; joined again, the parts are the text.

    Args:
        text: any text.
        within_lines: if false, only line breaks divide.

    Returns:
        Sentences at even places and what is between them at odd ones. A sentence may be empty.
    """
    parts = _BREAKS.split(text)
    if not within_lines:
        return parts
    divided: list[str] = []
    for place, part in enumerate(parts):
        if place % 2:
            divided.append(part)
            continue
        start = seen = 0  # of the sentence; of what the last end left to look at
        for found in _ENDS.finditer(part):
            following = part[found.end()]
            if not following.islower() and not _ABBREVIATED.search(part[seen : found.end("closing")]):
                divided += [part[start : found.end("closing")], found["space"]]
                start = found.end()
            seen = found.end()
        divided.append(part[start:])
    return divided
