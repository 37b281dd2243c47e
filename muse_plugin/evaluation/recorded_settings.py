"""Settings of the run behind a score, given on the command line to be stored next to the score."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from muse_plugin.files.lines import read_lines


def collect_settings(pairs: Sequence[str], path: Optional[Path]) -> dict[str, Any]:
    """Joins the settings of ``--record-file`` and ``--record``.

    Args:
        pairs: ``KEY=VALUE`` each; the value is read as JSON where it is JSON, else as text. A key that occurs several
            times with different values gets the list of them.
        path: a JSON file with an object, or None; ``pairs`` win over it.

    Raises:
        FileNotFoundError: if ``path`` does not exist.
        ValueError: if it holds no JSON object, or a pair is not of the form ``KEY=VALUE``.
    """
    settings = {} if path is None else _read_object(path)
    values: dict[str, dict[str, Any]] = {}  # by the JSON of each value
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"--record must be KEY=VALUE, but got '{pair}'; an example is --record seed=1.")
        value: Any = text
        with contextlib.suppress(ValueError, RecursionError):
            value = _parse(text)
        values.setdefault(key.strip(), {})[json.dumps(value, sort_keys=True)] = value  # 1 is not true, nor 1.0
    lists = {key: list(found.values()) for key, found in values.items()}
    return settings | {key: found[0] if len(found) == 1 else found for key, found in lists.items()}


def _parse(text: str) -> Any:
    value = json.loads(text)
    json.dumps(value, allow_nan=False)  # NaN and 1e999 are read, but are not JSON
    return value


def _read_object(path: Path) -> dict[str, Any]:
    text = "\n".join(read_lines(path, "--record-file"))
    try:
        settings = _parse(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--record-file must hold JSON, but reading {path} gave '{error}'; check the file.") from error
    if not isinstance(settings, dict):
        raise ValueError(
            f"--record-file must hold a JSON object, but {path} holds a {type(settings).__name__}; write it as "
            '{"seed": 1}.'
        )
    return settings
