"""Reads JSON files that hold one object, and says what is wrong with one that does not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

_SHOWN = 60  # characters of what a damaged file holds


def read_json_object(path: Path, way_out: str, most_bytes: Optional[int] = None) -> dict[str, Any]:
    """Reads a file.

    Args:
        path: the file.
        way_out: what the user can do about a damaged one, for the message.
        most_bytes: a larger file is not read; None for no limit.

    Raises:
        ValueError: if it is too large, no JSON, or holds something else.
    """
    if most_bytes is not None and path.stat().st_size > most_bytes:
        raise ValueError(f"{path} must have at most {most_bytes:,} bytes, but has {path.stat().st_size:,}; {way_out}.")
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON file, but reading it gave '{error}'; {way_out}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, but got a {type(content).__name__}; {way_out}.")
    return content


def read_versioned(
    path: Path, version: int, kinds: Mapping[str, type], way_out: str, most_bytes: int
) -> dict[str, Any]:
    """Reads a file that this package wrote: an object with ``format_version`` and other fields.

    Args:
        path: the file.
        version: the one that is read.
        kinds: type of each other field, by name.
        way_out: what the user can do about another file, for the message.
        most_bytes: a larger file is not read.

    Returns:
        The fields but the version.

    Raises:
        ValueError: if it is damaged, of another version, or holds something else.
    """
    content = read_json_object(path, way_out, most_bytes)
    found = content.pop("format_version", None)
    if found is None:
        raise ValueError(f"{path} must have a format_version, but it holds something else; {way_out}.")
    if found != version:
        raise ValueError(
            f"{path} must have format_version {version}, but got {_show(found)}; use the version of muse_plugin that "
            f"wrote it, or {way_out}."
        )
    faults = find_faults(content, kinds)
    if faults:
        raise ValueError(f"{path} must be as muse_plugin wrote it, but {'; '.join(faults)}; {way_out}.")
    return content


def find_faults(content: Any, kinds: Mapping[str, type], prefix: str = "") -> list[str]:
    """Compares an object with the fields that it must have, no more and no less.

    Args:
        content: the object.
        kinds: type of each field, by name.
        prefix: of the names, for the messages, such as ``vocabulary.``.

    Returns:
        What is missing, unknown or of another type; empty if nothing is.
    """
    if not isinstance(content, dict):
        return [f"'{prefix[:-1]}' must be an object but is {_show(content)}"]
    faults = [f"'{prefix}{name}' is missing" for name in kinds if name not in content]
    faults += [f"'{prefix}{name[:_SHOWN]}' is unknown" for name in content if name not in kinds][:3]
    faults += [
        f"'{prefix}{name}' must be {kind.__name__} but is {_show(content[name])}"
        for name, kind in kinds.items()
        if name in content and type(content[name]) is not kind
    ]
    return faults


def _show(value: Any) -> str:
    return repr(value)[:_SHOWN]
