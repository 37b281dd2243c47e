"""Programs that die at a step of a test's choice."""

from typing import Any

import pytest


class Killed(BaseException):
    """Not an Exception: nothing catches it by accident."""


def die_at(patch: pytest.MonkeyPatch, call: int, *places: tuple[Any, str], also_after: bool = False) -> list[int]:
    """Lets the ``call``-th step that touches the disk raise; returns the counter of steps, in a list.

    Args:
        patch: undoes it.
        call: from 1; -1 for none.
        *places: the functions that count as such steps, by their owners and names.
        also_after: whether all later steps raise, too.
    """
    count = [0]

    def count_calls(function):
        def wrapped(*args, **kwargs):
            count[0] += 1
            if count[0] == call or (also_after and 0 < call < count[0]):
                raise Killed
            return function(*args, **kwargs)

        return wrapped

    for owner, name in places:
        patch.setattr(owner, name, count_calls(getattr(owner, name)))
    return count
