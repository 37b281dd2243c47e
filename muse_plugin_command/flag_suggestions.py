"""Proposes the known flag or choice that a misspelt one is nearest to. Standard library only, as ``cli`` needs it."""

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

CLOSENESS = 0.75  # of difflib; --encoder-kernel-size and --encoder-kernel-sizes have 0.98

_UNKNOWN = "unrecognized arguments: "
MISSING = "the following arguments are required: "  # argparse says this first, also where one of them is misspelt
_INVALID_CHOICE = re.compile(r"^argument (?P<flag>[^:]+): invalid choice: (?P<quote>['\"])(?P<value>.*?)(?P=quote)")


def find_near(word: str, known: Iterable[str]) -> str:
    """The known word nearest to ``word``, or an empty text if none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=CLOSENESS)), "")


def add_suggestions(message: str, parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> str:
    """Adds "did you mean --x?" to what a parser says of an unknown flag or a choice that does not exist.

    Args:
        message: as argparse would print it.
        parser: whose flags are known, those of its sub-commands included.
        words: the command line, in which flags that the message says are missing may be misspelt.

    Returns:
        The message; as it was if nothing is near.
    """
    pairs = []
    if message.startswith((_UNKNOWN, MISSING)):
        given = message[len(_UNKNOWN) :].split() if message.startswith(_UNKNOWN) else words
        known = sorted({flag for action in _actions(parser) for flag in action.option_strings if flag[:2] == "--"})
        flags = dict.fromkeys(word.partition("=")[0] for word in given if word.startswith("--") and word != "--")
        pairs = [(flag, find_near(flag, known)) for flag in flags if flag not in known]
    elif match := _INVALID_CHOICE.match(message):
        choices = {
            str(choice) for action in _actions(parser) if _is(action, match["flag"]) for choice in action.choices
        }
        pairs = [(match["value"], find_near(match["value"], sorted(choices)))]
    found = [(word, near) for word, near in pairs if near]
    if not found:
        return message
    alone = len(pairs) == 1 and not message.startswith(MISSING)
    texts = [near if alone else f"{near} for {word}" for word, near in found]
    return f"{message}; did you mean {', '.join(texts)}?"


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


def _is(action: Any, name: str) -> bool:
    """Whether argparse calls ``action`` by this name in its messages."""
    names = ("/".join(action.option_strings), action.metavar, action.dest)
    return bool(action.choices) and name in names


class SuggestingParser(argparse.ArgumentParser):
    """Refuses abbreviated flags, as fairseq's commands do, and proposes the flag that an unknown one may stand for."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **named})
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reads a command line as argparse does, and remembers it for ``error``."""
        args = sys.argv[1:] if args is None else list(args)
        self._words = args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        """Ends the command with the message; see ``add_suggestions``."""
        super().error(add_suggestions(message, self, self._words))
