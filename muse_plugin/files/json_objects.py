"""Reads and writes JSON files; says what is wrong with one that does not hold one object."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.files.limits import LARGEST_SETTINGS, check_size

_SHOWN = 60  # characters of what a damaged file holds
_NAMED_AT_MOST = 20  # faults
_LONGEST_NAME = 255  # bytes of the name of a file, as systems have it


def read_json_object(path: Path, way_out: str, most_bytes: int = LARGEST_SETTINGS) -> dict[str, Any]:
    """Reads a file.

    Args:
        path: the file.
        way_out: what the user can do about a damaged one, for the message.
        most_bytes: a larger file is not read.

    Raises:
        ValueError: if it is too large, no JSON, or holds something else.
    """
    check_size(path, most_bytes, way_out)
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file, but reading it gave '{error}'; {way_out}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, but got a {type(content).__name__}; {way_out}.")
    return content


def write_json(path: Path, content: Any, **options: Any) -> None:
    """Writes a value and a line end, whole or not at all; ``options`` are those of ``json.dumps``."""
    text = json.dumps(content, **options)
    with open_atomically(path) as file:
        file.write(f"{text}\n".encode())


class FileName(str):
    """In place of a type, for ``find_faults``: the name of a file in the same folder."""


Kind = Union[type, tuple[str, ...]]  # a tuple: one of these strings


def read_settings(path: Path, versions: Collection[int], way_out: str) -> tuple[int, dict[str, Any]]:
    """Reads a file whose ``format_version`` is one of ``versions``; other arguments as for ``read_json_object``.

    Returns:
        The version, and the other fields.

    Raises:
        ValueError: as ``read_json_object``, and if the version is another.
    """
    content = read_json_object(path, way_out, LARGEST_SETTINGS)
    version = content.pop("format_version", None)
    if type(version) is not int or version not in versions:
        raise ValueError(
            f"{path} must have format_version {' or '.join(map(str, versions))}, but got {_show(version)}; make it "
            "again with this version of muse_plugin, or use the version that wrote it."
        )
    return version, content


def read_versioned(path: Path, version: int, kinds: Mapping[str, Kind], way_out: str) -> dict[str, Any]:
    """Reads a file with this ``format_version`` and the other fields in ``kinds``, see ``find_faults``.

    Raises:
        ValueError: as ``read_settings``, and if a field is missing, unknown or of another type.
    """
    _, content = read_settings(path, (version,), way_out)
    check_faults(path, find_faults(content, kinds), way_out)
    return content


def check_faults(path: Path, faults: Sequence[str], way_out: str) -> None:
    """Refuses a file with the faults that ``find_faults`` found, if there are any.

    Raises:
        ValueError: naming them, up to a number.
    """
    if faults:
        more = [f"{len(faults) - _NAMED_AT_MOST:,} more faults"] if len(faults) > _NAMED_AT_MOST else []
        named = "; ".join([*faults[:_NAMED_AT_MOST], *more])
        raise ValueError(f"{path} must be as it was written, but {named}; {way_out}.")


def find_faults(content: Any, kinds: Mapping[str, Kind], prefix: str = "") -> list[str]:
    """Compares an object with the fields that it must have, no more and no less.

    Args:
        content: the object.
        kinds: type of each field, by name; a tuple of strings for one of these, ``FileName`` for such a name.
        prefix: of the names, for the messages, such as ``vocabulary.``.

    Returns:
        What is missing, unknown or of another type; empty if nothing is.
    """
    if not isinstance(content, dict):
        return [f"{prefix[:-1]!r} must be an object but is {_show(content)}"]
    faults = [f"{prefix + name!r} is missing" for name in kinds if name not in content]
    faults += [f"{prefix + name[:_SHOWN]!r} is unknown" for name in content if name not in kinds][:3]
    rules = {name: _find_rule(content[name], kind) for name, kind in kinds.items() if name in content}
    return faults + [
        f"{prefix + name!r} must be {rule} but is {_show(content[name])}" for name, rule in rules.items() if rule
    ]


def _find_rule(value: Any, kind: Kind) -> str:
    """The rule that a value breaks, or nothing."""
    wanted = str if isinstance(kind, tuple) or kind is FileName else kind
    if type(value) is not wanted:
        return wanted.__name__
    if isinstance(kind, tuple):
        return "" if value in kind else f"one of {', '.join(kind)}"
    return "a file name without folders" if kind is FileName and not _is_file_name(value) else ""


def _is_file_name(value: str) -> bool:
    is_here = value not in ("", "..") and value == Path(value).name
    return is_here and value.isprintable() and len(value.encode("utf-8")) <= _LONGEST_NAME


def _show(value: Any) -> str:
    return repr(value)[:_SHOWN]
