"""What became of each step of ``examples/benchmark/gpu.sh``: a JSON a step, and the section of BENCHMARKS.md on them.

A step that was not begun has no file, and is "not measured" if the list of all steps, ``steps.json``, names it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from muse_plugin.files.json_objects import write_json
from muse_plugin.results.run_record import format_gpu

LIST = "steps.json"
DONE = "done"
NOT_MEASURED = "not measured"


@dataclass
class Step:
    """One step.

    Attributes:
        name: "part/step".
        state: ``DONE``, or in words what became of it.
        seconds: that it took.
        command: what ran, as a user would type it.
        result: what it says about itself, in a few words.
        table: lines of a Markdown table that it printed.
        run: see ``run_record.describe_run``.
    """

    name: str
    state: str = NOT_MEASURED
    seconds: float = 0.0
    command: str = ""
    result: str = ""
    table: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)


def _find_path(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '-')}.json"


def write_list(folder: Path, names: list[str]) -> None:
    """Notes all steps that there are, in order."""
    write_json(folder / LIST, names, indent=1)


def write_step(folder: Path, step: Step) -> None:
    """Writes the state of a step; the file appears whole or not at all."""
    write_json(_find_path(folder, step.name), asdict(step), indent=1)


def read_step(folder: Path, name: str) -> Step:
    """Reads the state of a step; one without a file is not measured.

    Raises:
        ValueError: if the file holds something else.
    """
    path = _find_path(folder, name)
    try:
        step = Step(**json.loads(path.read_text(encoding="utf-8")))
        texts = (step.name, step.state, step.command, step.result, *step.table)
        if not all(isinstance(text, str) for text in texts) or not isinstance(step.seconds, (int, float)):
            raise ValueError("a field of another kind")
        return step
    except FileNotFoundError:
        return Step(name)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} must be the state of a step as gpu.sh writes it, but it cannot be read ({error}); delete it."
        ) from error


def read_steps(folder: Path) -> list[Step]:
    """Reads the states of all steps.

    Raises:
        FileNotFoundError: if there is no list of them.
        ValueError: if a file holds something else.
    """
    path = folder / LIST
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {path}; 'bash examples/benchmark/gpu.sh' writes it.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be what gpu.sh writes, but it cannot be read ({error}); delete it.") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path} must be a list of names, but is not; delete it and run gpu.sh again.")
    return [read_step(folder, name) for name in names]


def format_steps(steps: list[Step]) -> str:
    """The section of BENCHMARKS.md."""
    lines = ["## The GPU run, step by step", ""]
    lines += [
        "| step | state | seconds | result | device, driver, clocks, torch, Triton, commit |",
        "|---|---|--:|---|---|",
    ]
    for step in steps:
        seconds = f"{step.seconds:.0f}" if step.seconds else ""
        cells = [step.name, step.state, seconds, step.result, _describe(step.run)]
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    for step in steps:
        if step.table:
            lines += ["", f"`{step.command}`:", "", *step.table]
    return "\n".join(lines) + "\n"


def _describe(run: dict[str, Any]) -> str:
    if not run:
        return ""
    hardware, versions, git = run["hardware"], run["versions"], run["git"]
    gpus = [format_gpu(gpu) for gpu in hardware["gpus"]]
    commit = git["commit"][:10] if git else "commit unknown"
    triton = f"triton {versions['triton']}" if versions.get("triton") else "no triton"
    return ", ".join([*(gpus or [hardware["cpu"]]), f"torch {versions['torch']}", triton, commit])
