"""Follows the instructions of a pickle without making anything, to see how much reading it would make.

A few bytes can make much in two ways: a call that copies what was made before, such as ``list`` of one repeated number,
and lists that hold each other several times, which take little memory but no end of time to go through. Instructions
are those of ``pickletools``; of values, only what holds what is kept.
"""

import pickletools
from collections.abc import Iterable
from typing import Any, Union

_FREE_ITEMS = 1_000_000
_CHARACTERS_PER_ITEM = 64
_ENDLESS = 1 << 62  # items of a tensor, which may repeat one number
_KEEPS_WHAT_IT_GETS = "torch._utils _rebuild"  # start of the names of functions that copy no items


class _Holder:
    """A list, a dict or a tuple."""

    def __init__(self, items: "list[_Value]") -> None:
        self.items = items


_Value = Union[_Holder, int, str]  # what holds others; the number of items of anything else; a global by its name


def find_excess(instructions: Iterable[tuple[pickletools.OpcodeInfo, Any]]) -> str:
    """Says what a pickle would make that is out of proportion, or nothing.

    Args:
        instructions: (instruction, argument), of one pickle or several after each other; reading stops at the first
            that cannot be followed, where a reader stops, too.
    """
    machine = _Machine()
    try:
        for opcode, argument in instructions:
            if fault := machine.follow(opcode, argument):
                return fault
    except (IndexError, KeyError, AttributeError):  # damaged
        pass
    return machine.find_nesting()


class _Machine:
    def __init__(self) -> None:
        self._holders: list[_Holder] = []
        self._limit = _FREE_ITEMS
        self._copied = 0
        self._begin()

    def _begin(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, _Value] = {}

    def follow(self, opcode: pickletools.OpcodeInfo, argument: Any) -> str:
        """Follows an instruction; says what is wrong with it, or nothing."""
        name, stack = opcode.name, self._stack
        self._limit += 1
        if name == "STOP":
            self._begin()
        elif name.endswith("PUT") or name == "MEMOIZE":
            self._memo[len(self._memo) if argument is None else int(argument)] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self._memo[int(argument)])
        elif name == "GLOBAL":
            stack.append(argument)
        elif name in ("REDUCE", "NEWOBJ", "BUILD"):
            got = stack.pop()
            size = sum(map(_count, got.items)) if isinstance(got, _Holder) else _count(got)
            called = stack.pop()
            keeps = isinstance(called, str) and called.startswith(_KEEPS_WHAT_IT_GETS)
            self._copied += 0 if keeps else size
            stack.append(called if name == "BUILD" else _ENDLESS if keeps else size)
            if self._copied > self._limit:
                return f"copies more than {self._limit:,} items"
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"):
            items = self._pop(opcode)
            stack[-1].items.extend(items)
        else:
            items = self._pop(opcode)
            if name.startswith(("EMPTY_", "TUPLE", "LIST", "DICT", "FROZENSET")):
                self._holders.append(_Holder(items))
                stack.append(self._holders[-1])
            else:
                size = len(argument) // _CHARACTERS_PER_ITEM if isinstance(argument, (str, bytes)) else 0
                stack.extend(None if kind is pickletools.markobject else 1 + size for kind in opcode.stack_after)
        return ""

    def _pop(self, opcode: pickletools.OpcodeInfo) -> "list[_Value]":
        """Takes the values that an instruction uses off the stack, but for the one that it adds them to."""
        kept = 1 if opcode.name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS") else 0
        if pickletools.markobject in opcode.stack_before:
            items = []
            while (value := self._stack.pop()) is not None:
                items.append(value)
            return items
        return [self._stack.pop() for _ in opcode.stack_before[kept:]]

    def find_nesting(self) -> str:
        """Says which lists would take too long to go through, or nothing."""
        sizes: dict[int, int] = {}  # by id; 0 for one that is being gone through
        left: list[tuple[_Holder, bool]] = [(holder, False) for holder in self._holders]
        while left:
            holder, is_counted = left.pop()
            inner = [item for item in holder.items if isinstance(item, _Holder)]
            if is_counted:
                sizes[id(holder)] = 1 + len(holder.items) + sum(sizes[id(item)] for item in inner)
                if sizes[id(holder)] > self._limit:
                    return f"holds lists of more than {self._limit:,} items, counted where they are held again"
            elif id(holder) not in sizes:
                sizes[id(holder)] = 0
                left.append((holder, True))
                for item in inner:
                    if sizes.get(id(item)) == 0:
                        return "holds a list that holds itself"
                    left.append((item, False))
        return ""


def _count(value: _Value) -> int:
    return len(value.items) if isinstance(value, _Holder) else value if isinstance(value, int) else 1
