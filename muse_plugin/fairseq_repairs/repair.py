"""What a repair is, and the two ways in which repairs reach the code that runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Repair:
    """One defect of fairseq and its remedy.

    Attributes:
        name: short name, as returned by ``fairseq_repairs.apply``.
        why: what goes wrong without it.
        is_needed: tries out whether the defect is present; quick, and changes nothing.
        apply: removes the defect, so that ``is_needed`` is false afterwards.
    """

    name: str
    why: str
    is_needed: Callable[[], bool]
    apply: Callable[[], None]


def rebind(original: Any, replacement: Any) -> None:
    """Puts ``replacement`` wherever a loaded fairseq module holds ``original``, under whatever name it imported it."""
    for name, module in list(sys.modules.items()):
        if name == "__main__" or name.partition(".")[0] in ("fairseq", "fairseq_cli"):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, replacement)


def loaded_command(name: str) -> list[ModuleType]:
    """Finds the loaded modules that are a fairseq command, without loading any.

    A command runs as ``fairseq_cli.<name>`` when a console script imports it, and as ``__main__`` under
    ``python -m fairseq_cli.<name>``; a process started by the latter has it as ``__mp_main__``.

    Args:
        name: module name in ``fairseq_cli``, such as ``interactive``.
    """
    # By the end of the path, as text: taking apart the paths of all modules is noticed when a command starts.
    end = os.path.join(os.sep, "fairseq_cli", f"{name}.py")
    modules = {id(module): module for module in list(sys.modules.values())}.values()
    return [module for module in modules if str(getattr(module, "__file__", None)).endswith(end)]
