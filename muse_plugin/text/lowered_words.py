"""Lower-cased words that remember how they were written: word vectors want the one, an encoder of characters the other.

Source: Ma and Hovy 2016 (arXiv:1603.01354) look words up lower-cased and spell them as they are.
"""

from collections.abc import Callable


class LoweredWord(str):
    """A word in lower case.

    Attributes:
        written: the word as it was.
    """

    written: str


def lower_word(word: str) -> str:
    """Returns a word in lower case; it remembers how it was written if that differs."""
    lowered = LoweredWord(word.lower())
    if lowered == word:
        return word
    lowered.written = word
    return lowered


def written_form(word: str) -> str:
    """Returns a word as it was written, as far as it remembers."""
    return getattr(word, "written", word)


def find_character(character: str, find: Callable[[str], int], unknown: int) -> int:
    """Looks a character of a lower-cased text up, in lower case where it is unknown as it was written.

    So data whose characters were lower-cased themselves still mean what they did.

    Args:
        character: as it was written.
        find: gives its id.
        unknown: the id of what has none.
    """
    found = find(character)
    return found if found != unknown else find(character.lower())
