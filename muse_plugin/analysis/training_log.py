"""Reads what fairseq-train reports: its log, of --log-format simple, tqdm or json, or its TensorBoard events.

Also the validation that authors published, as recipes keep it: ``published_validation.tsv``.

Losses are in bits, as fairseq logs them.
"""

import contextlib
import importlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from muse_plugin.files.lines import iterate_stream

# By fairseq's name: ours, and the label of an axis. Other numbers, such as words per second, are passed over.
_MEASURES = {
    "loss": ("loss_bits", "loss (bits)"),
    "nll_loss": ("nll_loss_bits", "negative log-likelihood (bits)"),
    "ppl": ("perplexity", "perplexity"),
    "bleu": ("bleu", "BLEU (0 to 100)"),
    "accuracy": ("accuracy_percent", "accuracy (%)"),
    "lr": ("learning_rate", "learning rate"),
    "gnorm": ("gradient_norm", "gradient norm"),
}
LABELS = dict(_MEASURES.values())
INNER, EPOCH = "train_inner", "train"  # means since the last line of the log, and over an epoch
_PUBLISHED = ".tsv"
_EVENTS = "events.out.tfevents.*"

# Logs of fairseq-train, of fairseq-hydra-train, and of Python where something else has set it up before fairseq.
_START = r"(?:^(?:[A-Z]+:[\w.]+:)?|\| |\] - )"
_INNER_LINE = re.compile(_START + r"epoch \d+:\s+\d+ / \d+ (\S+=.*)$")
_VALID_LINE = re.compile(_START + r"epoch \d+ \| valid on '([^']+)' subset \| (.*)$")
_EPOCH_LINE = re.compile(_START + r"epoch \d+ \| (\S+ \S+ \| .*)$")
_JSON_LINE = re.compile(_START + r"(\{\"epoch\": .*\})$")


class TrainingRow(NamedTuple):
    """One number of a training run.

    ``part`` is train_inner (means since the last line of the log), train (means over an epoch) or a validation set;
    ``measure`` has its unit in its name.
    """

    run: str
    part: str
    updates: int
    measure: str
    value: float


def read_run(path: Path, name: str) -> list[TrainingRow]:
    """Reads one training run.

    Args:
        path: a log, a folder with TensorBoard events (``--tensorboard-logdir``), or a published validation (.tsv).
        name: of the run.

    Returns:
        Rows by part, measure and number of updates; where a run was resumed, the later of two numbers.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if events are to be read and the package tensorboard is missing.
        ValueError: if nothing is found in it, or a number of updates is not finite.
    """
    if not path.exists():
        raise FileNotFoundError(f"--logs must name logs of fairseq-train, but {path} does not exist; check the path.")
    found: dict[tuple[str, str, int], float] = {}
    read = _read_events if path.is_dir() else _read_published if path.suffix == _PUBLISHED else _read_log
    for part, updates, measure, value in read(path):
        if measure in _MEASURES and math.isfinite(value):
            found[part, _MEASURES[measure][0], updates] = value
    if not found:
        raise ValueError(
            f"--logs must name the output of fairseq-train, or a folder of its TensorBoard events, but {path} has no "
            "numbers of a training; log with --log-format simple or json."
        )
    return [TrainingRow(name, part, count, measure, value) for (part, measure, count), value in sorted(found.items())]


def _read_log(path: Path) -> Iterator[tuple[str, int, str, float]]:
    with path.open("rb") as file:
        for number, (line, _) in enumerate(iterate_stream(file), start=1):
            part, stats = _read_line(line)
            updates = stats.pop("num_updates", None)
            if updates is not None:
                count = _to_count(updates, path, number)
                yield from ((part, count, measure, value) for measure, value in stats.items())


def _read_published(path: Path) -> Iterator[tuple[str, int, str, float]]:
    """Columns by their names in the first line that is no comment; lines without updates are passed over."""
    with path.open("rb") as file:
        numbered = enumerate(iterate_stream(file), start=1)
        lines = [(number, line.split("\t")) for number, (line, _) in numbered if not line.startswith("#")]
    for number, line in lines[1:]:
        names = [name.removeprefix("valid_") for name in lines[0][1]]
        stats = _to_numbers(dict(zip(names, line, strict=False)))
        if "updates" in stats:
            count = _to_count(stats["updates"], path, number)
            yield from (("valid", count, measure, value) for measure, value in stats.items())


def _to_count(updates: float, path: Path, line: int) -> int:
    if not math.isfinite(updates):
        raise ValueError(
            f"a number of updates must be finite, but line {line} of {path} has {updates}; correct or remove the line."
        )
    return int(updates)


def _read_line(line: str) -> tuple[str, dict[str, float]]:
    """The part that a line is about and its numbers; none for other lines."""
    if match := _JSON_LINE.search(line):
        return _read_json(match[1])
    if match := _INNER_LINE.search(line):
        return INNER, _to_numbers(dict(part.split("=", 1) for part in match[1].split(", ") if "=" in part))
    if match := _VALID_LINE.search(line):
        return match[1], _read_columns(match[2])
    if match := _EPOCH_LINE.search(line):
        return EPOCH, _read_columns(match[1])
    return "", {}


def _read_columns(text: str) -> dict[str, float]:
    return _to_numbers(dict(part.split(" ", 1) for part in text.split(" | ") if " " in part))


def _read_json(text: str) -> tuple[str, dict[str, float]]:
    try:
        stats = json.loads(text)
    except (ValueError, RecursionError):  # a line that was cut short
        return "", {}
    if "num_updates" in stats:
        return INNER, _to_numbers(stats)
    tag = next((name.removesuffix("_num_updates") for name in stats if name.endswith("_num_updates")), None)
    if tag is None:
        return "", {}
    return tag, _to_numbers({name.removeprefix(f"{tag}_"): value for name, value in stats.items()})


def _to_numbers(stats: dict[str, Any]) -> dict[str, float]:
    """What is a number, of what a line says."""
    numbers = {}
    for name, value in stats.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            numbers[name] = float(value)
    return numbers


def _read_events(folder: Path) -> Iterator[tuple[str, int, str, float]]:
    """fairseq writes the events of each part into a folder of its name."""
    parts = sorted({path.parent for path in folder.rglob(_EVENTS)})
    if not parts:
        return
    try:
        accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    except ImportError as error:
        raise ImportError(
            f"reading TensorBoard events in {folder} needs the package tensorboard, which cannot be imported "
            f"({error}); run 'pip install tensorboard', or give the log of fairseq-train."
        ) from error
    for part in parts:
        events = accumulator.EventAccumulator(str(part), size_guidance={accumulator.SCALARS: 0})
        events.Reload()
        for measure in events.Tags()[accumulator.SCALARS]:
            for event in events.Scalars(measure):
                yield part.name, event.step, measure, event.value
