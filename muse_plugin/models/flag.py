"""One line per flag in the config classes."""

from dataclasses import field
from typing import Any


def flag(default: Any, help: str) -> Any:
    """A field of a fairseq config: its default and its line in ``--help``."""
    return field(default=default, metadata={"help": help})
