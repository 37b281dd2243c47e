"""One line per flag in the config classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from typing import Any, TypeVar

Config = TypeVar("Config", bound=type)
_NAMED = (ValueError, RuntimeError, ImportError)


def flag(default: Any, help: str) -> Any:
    """A field of a fairseq config: its default and its line in ``--help``."""
    return field(default=default, metadata={"help": help})


def remembered(what: str) -> Any:
    """A field that is no flag: a model reads it from files, its task stores it, and a checkpoint brings it back."""
    return field(default=None, metadata={"help": what, "remembered": True})


def flag_name(name: str) -> str:
    """The flag of a field as people type it."""
    return "--" + name.replace("_", "-")


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Puts the name of a flag before what code that knows no flags says of its value."""
    try:
        yield
    except _NAMED as error:
        kind = next(kind for kind in _NAMED if isinstance(error, kind))
        raise kind(f"{flag}: {error}") from None


def inherit_flags(bases: Iterable[type], defaults: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Types and fields of flags that configs have, with other defaults; their lines in ``--help`` stay.

    Args:
        bases: configs; the first one that has a flag counts.
        defaults: by name of the flag.

    Raises:
        KeyError: if no base has the flag.
    """
    known = {f.name: f for base in reversed([*bases]) for f in fields(base)}
    return {
        name: (known[name].type, field(default=default, metadata=dict(known[name].metadata)))
        for name, default in defaults.items()
    }


def with_defaults(**defaults: Any) -> Callable[[Config], Config]:
    """Gives inherited flags of a config other defaults. Stands below ``@dataclass``; see ``inherit_flags``."""

    def change(config: Config) -> Config:
        for name, (kind, changed) in inherit_flags(config.__bases__, defaults).items():
            config.__annotations__[name] = kind
            setattr(config, name, changed)
        return config

    return change
