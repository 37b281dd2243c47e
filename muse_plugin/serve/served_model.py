"""What a server needs of a model, wherever it comes from."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Shows(Protocol):
    """Shows one translation from the inside, for the page."""

    def describe(self) -> dict[str, Any]:
        """What the page has to know before the first sentence; see ``inspect.Inspector``."""

    def inspect(self, text: str) -> dict[str, Any]:
        """What it shows of a sentence; see ``inspect.Inspector``."""


class ServedModel(NamedTuple):
    """A translation model.

    Attributes:
        source_lang: code of the language that it reads.
        target_lang: of the one that it writes.
        translate: from sentences to as many translations; not from two threads at once.
        make_inspector: makes what the page asks, for so many hypotheses; the same holds for it.
    """

    source_lang: str
    target_lang: str
    translate: Callable[[list[str]], list[str]]
    make_inspector: Callable[[int], Shows]
