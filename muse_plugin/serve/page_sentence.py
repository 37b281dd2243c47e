"""The sentence that the page shows: one that is short enough to be drawn."""

from collections.abc import Callable, Sequence

from muse_plugin.files.lines import clean_line
from muse_plugin.runner.run import CHARACTERS_PER_TOKEN

# A picture of more tokens cannot be read, and its weights are millions of numbers.
MAX_SOURCE_TOKENS = 120


def split_sentence(text: str, max_tokens: int, split: Callable[[str], Sequence[str]]) -> Sequence[str]:
    """The tokens of a sentence.

    Args:
        text: raw text; line breaks count as spaces.
        max_tokens: most of them.
        split: the text pipeline of the source language.

    Raises:
        ValueError: if the text is blank or too long.
    """
    line = clean_line(text)
    limit = max_tokens * CHARACTERS_PER_TOKEN
    if len(line) > limit:  # before it is tokenised, which takes quadratic time where there are no words
        raise ValueError(
            f"a sentence must have at most {limit} characters here, but got {len(line)}; shorten it, or use "
            "muse-plugin translate."
        )
    words = split(line)
    if not words:
        raise ValueError("a sentence must have at least one word, but the text is blank; type one.")
    if len(words) > max_tokens:
        raise ValueError(
            f"a sentence must have at most {max_tokens} tokens here, but got {len(words)}; shorten it, or use "
            "muse-plugin translate."
        )
    return words
