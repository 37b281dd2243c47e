"""fairseq's module of this name, for Python 3.14.

Copied as a package, it is found before fairseq's own module, which it runs. Two things do not work there. fairseq reads
the types of its flags from how they are written, and ``Optional[int]`` is written ``int | None``. And argparse checks
help texts, but hydra 1.3 has one that becomes a text when it is printed.
"""

import argparse
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

SourceFileLoader(__name__, str(Path(__file__).parents[1] / "utils.py")).exec_module(sys.modules[__name__])


def interpret_dc_type(field_type: Any) -> Any:
    """The type that a flag's text becomes: of optional ones the type itself, text where any is allowed.

    Raises:
        RuntimeError: if it is a name instead of a type.
    """
    if isinstance(field_type, str):
        raise RuntimeError(f"the type of a flag must be a type, but is the name {field_type!r}.")
    if field_type is Any:
        return str
    return get_args(field_type)[0] if get_origin(field_type) in (Union, UnionType) else field_type


if hasattr(argparse.ArgumentParser, "_check_help"):
    _check_help = argparse.ArgumentParser._check_help

    def _check_text(self: argparse.ArgumentParser, action: argparse.Action) -> None:
        if isinstance(action.help, str):
            _check_help(self, action)

    argparse.ArgumentParser._check_help = _check_text
