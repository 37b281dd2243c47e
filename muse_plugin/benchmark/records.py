"""Stores measurements as JSON, with the machine and the command that gave them."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muse_plugin.benchmark.measurement import Measurement
from muse_plugin.files.json_objects import write_json

_FORMAT = 1


@dataclass
class Record:
    """The result of one command.

    Attributes:
        kind: of benchmark, e.g. ``conv``.
        command: that was run.
        settings: its flags, by name.
        run: see ``run_record.describe_run``.
        measurements: one per case.
    """

    kind: str
    command: str
    settings: dict[str, Any]
    run: dict[str, Any]
    measurements: list[Measurement]


def write_record(path: Path, record: Record) -> None:
    """Writes a record; the file appears whole or not at all."""
    write_json(path, {"format": _FORMAT, **dataclasses.asdict(record)}, indent=1)


def read_record(path: Path) -> Record:
    """Reads a record.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
        measurements = [Measurement(**entry) for entry in content.pop("measurements")]
        return Record(**content, measurements=measurements)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {path}; 'muse-plugin benchmark KIND --json {path}' writes it.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} must be what 'muse-plugin benchmark KIND --json FILE' writes, but it cannot be read ({error}); "
            "measure again."
        ) from error
