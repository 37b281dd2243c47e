"""One line per flag in the config classes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields, make_dataclass
from enum import Enum
from typing import Any, TypeVar

from fairseq.dataclass import FairseqDataclass

Config = TypeVar("Config", bound=type)
_NAMED = (ValueError, RuntimeError, ImportError)


def flag(default: Any, help: str) -> Any:
    """A field of a fairseq config: its default and its line in ``--help``."""
    return field(default=default, metadata={"help": help})


def size(default: Any, help: str) -> Any:
    """A flag that must be at least 1, if it has a value; see ``find_wrong_values``."""
    return field(default=default, metadata={"help": help, "range": "size"})


def rate(default: Any, help: str, advice: str = "", alias: str | None = None) -> Any:
    """A flag that must lie in [0, 1), if it has a value; ``advice`` ends the sentence of ``find_wrong_values``."""
    return field(default=default, metadata={"help": help, "range": "rate", "advice": advice, "argparse_alias": alias})


def nonnegative(default: Any, help: str) -> Any:
    """A flag that must be a finite number of at least 0, if it has a value; see ``find_wrong_values``."""
    return field(default=default, metadata={"help": help, "range": "nonnegative"})


def remembered(what: str) -> Any:
    """A field that is no flag: a model reads it from files, its task stores it, and a checkpoint brings it back."""
    return field(default=None, metadata={"help": what, "remembered": True})


def flag_name(name: str) -> str:
    """The flag of a field as people type it."""
    return "--" + name.replace("_", "-")


def find_wrong_values(cfg: Any, config: Any) -> list[str]:
    """One sentence for each flag of ``config`` whose value in ``cfg`` is out of its range or not among its choices."""
    faults = []
    for entry in fields(config):
        value, kind = getattr(cfg, entry.name, None), entry.metadata.get("range")
        rule = None
        if isinstance(entry.type, type) and issubclass(entry.type, Enum):
            known, value = [choice.value for choice in entry.type], str(value)
            rule = None if value in known else f"be one of {', '.join(known)}, but got {value!r}"
        elif kind == "size" and value is not None and value < 1:
            rule = f"be at least 1, but got {value}"
        elif kind == "rate" and value is not None and not 0 <= value < 1:
            rule = f"lie in [0, 1), but got {value}{entry.metadata['advice']}"
        elif kind == "nonnegative" and value is not None and not 0 <= value < math.inf:
            rule = f"be a number of at least 0, but got {value}"
        if rule:
            faults.append(f"{flag_name(entry.name)} must {rule}.")
    return faults


def check_values(cfg: Any, config: Any) -> None:
    """Raises a ValueError with all sentences of ``find_wrong_values``."""
    if faults := find_wrong_values(cfg, config):
        raise ValueError("\n".join(faults))


def fault_of(read: Callable[..., Any], *args: Any) -> list[str]:
    """What a function refuses with a ValueError, in at most one sentence."""
    try:
        read(*args)
    except ValueError as error:
        return [str(error)]
    return []


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


def config_of_side(module: str, side: str, name: str, flags: Iterable[tuple[str, Any, Any]]) -> type:
    """Makes a config of flags that encoder and decoder both have.

    Args:
        module: ``__name__`` of the file that keeps it.
        side: "encoder" or "decoder", with which the name of each flag begins.
        name: of the config, behind the side.
        flags: name without the side, type and field of each.
    """
    own = [(f"{side}_{key}", kind, entry) for key, kind, entry in flags]
    namespace = {"__module__": module, "__doc__": f"Flags of one side of a model: those of its {side}."}
    return make_dataclass(side.capitalize() + name, own, bases=(FairseqDataclass,), namespace=namespace)


def with_defaults(**defaults: Any) -> Callable[[Config], Config]:
    """Gives inherited flags of a config other defaults. Stands below ``@dataclass``; see ``inherit_flags``."""

    def change(config: Config) -> Config:
        for name, (kind, changed) in inherit_flags(config.__bases__, defaults).items():
            config.__annotations__[name] = kind
            setattr(config, name, changed)
        return config

    return change
