"""What a repair is, and the ways in which repairs reach the code that runs."""

import functools
import inspect
import operator
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress
from types import ModuleType
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


@dataclass
class Repair:
    """One defect of fairseq and its remedy.

    A defect is removed once for each process, and where a command has it, once for each module that the command was
    loaded as. One that modules which are loaded later bring back has a ``probe``.

    Attributes:
        why: what goes wrong without it.
        remedy: removes the defect; with ``command``, from the module that it is given.
        probe: whether the defect is present; quick, changes nothing, and is false after ``remedy``. None for a defect
            that is removed once.
        concerns: without a probe, whether this machine can have the defect.
        command: without a probe, the module of ``fairseq_cli`` that has the defect; None if loaded modules have it.
    """

    why: str
    remedy: Callable[..., None]
    probe: Callable[[], bool] | None = None
    concerns: Callable[[], bool] = lambda: True
    command: str | None = None
    _done: list[tuple[ModuleType, ...]] = field(default_factory=list, init=False)

    def is_needed(self) -> bool:
        """Whether the defect is present in the modules loaded so far."""
        return self.probe() if self.probe is not None else self.concerns() and bool(self._open_calls())

    def apply(self) -> None:
        """Removes the defect, so that ``is_needed`` is false afterwards."""
        for call in self._open_calls():
            self.remedy(*call)
            if self.probe is None:
                self._done.append(call)

    def _open_calls(self) -> list[tuple[ModuleType, ...]]:
        """Arguments of the calls of ``remedy`` that are not done."""
        calls = [()] if self.command is None else [(module,) for module in loaded_command(self.command)]
        return [call for call in calls if call not in self._done]


def replace(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """A decorator that puts a function in the place of ``owner.name``, which becomes its first argument.

    Args:
        owner: a class or a module. What a module holds is replaced in all modules of fairseq, under
            whatever name they imported it.
        name: of the method or function.
    """
    held = inspect.getattr_static(owner, name)
    original = getattr(held, "__func__", held)
    is_original = functools.partial(operator.is_, original)

    def put(replacement: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def wrapper(*rest: Any, **named: Any) -> Any:
            return replacement(original, *rest, **named)

        setattr(owner, name, type(held)(wrapper) if held is not original else wrapper)
        for module_name, module in list(sys.modules.items()) if isinstance(owner, ModuleType) else []:
            if module_name == "__main__" or module_name.partition(".")[0] in ("fairseq", "fairseq_cli"):
                for attribute in list(compress(vars(module), map(is_original, vars(module).values()))):
                    setattr(module, attribute, wrapper)

    return put


def find_cause(error: BaseException | None, kind: type[E]) -> E | None:
    """The error of a kind that is ``error`` or its cause; None if there is none."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def loaded_command(name: str) -> list[ModuleType]:
    """Finds the loaded modules that are a fairseq command, such as ``interactive``, without loading any.

    A command runs as ``fairseq_cli.<name>`` when a console script imports it, and as ``__main__`` under
    ``python -m fairseq_cli.<name>``; a process started by the latter has it as ``__mp_main__``.
    """
    end = os.path.join(os.sep, "fairseq_cli", f"{name}.py")
    found = [sys.modules.get(module) for module in (f"fairseq_cli.{name}", "__main__", "__mp_main__")]
    modules = {id(module): module for module in found if module is not None}.values()
    return [module for module in modules if str(getattr(module, "__file__", None)).endswith(end)]
