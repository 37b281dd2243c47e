"""Measures systems in turn, A B A B, so that a busy moment of the machine slows all of them; no file is touched."""

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler, which counts memory, talks on standard error


class Spread(NamedTuple):
    """A median and the range that half of the measurements are in."""

    median: float
    low: float
    high: float


@dataclass
class Measurement:
    """What was measured in one case, e.g. for one length.

    Attributes:
        case: what distinguishes this case from others, e.g. {"length": 25}.
        baseline: the system that others are compared with.
        values: per system, one number per round: seconds, or bytes; none of a system that is not installed.
        unit: "seconds" or "bytes".
        work: what one round gets done, e.g. {"tokens": 150}; the same for every system.
    """

    case: dict[str, Any]
    baseline: str
    values: dict[str, list[float]]
    unit: str = "seconds"
    work: dict[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the columns of a table of such measurements are."""
        return (self.unit, self.baseline, *self.case, *self.values)

    def spread(self, name: str) -> Spread:
        """Median and quartiles of a system."""
        return summarise(self.values[name])

    def ratio(self, name: str, baseline: Optional[str] = None) -> Spread:
        """How many times the baseline needs what ``name`` needs, round by round: above 1 is better.

        Args:
            name: the system.
            baseline: instead of the one of the case.
        """
        pairs = zip(self.values[baseline or self.baseline], self.values[name], strict=True)
        return summarise([base / own for base, own in pairs])


def summarise(values: list[float]) -> Spread:
    """Median and quartiles; of one or two numbers, the lower and the upper one."""
    if len(values) < 3:
        return Spread(statistics.median(values), min(values), max(values))
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high)


class Case(NamedTuple):
    """What is to be measured in one case.

    Attributes:
        case: what distinguishes this case from others, e.g. {"length": 25}.
        runs: the systems by name, the baseline first; where memory is measured, each is asked for once the one before
            is done with.
        tokens: that one round works on.
        warmups: runs of each system before its time is taken.
        missing: the systems that a table shows as not measured.
    """

    case: dict[str, Any]
    runs: Iterable[tuple[str, Callable[[], object]]]
    tokens: int
    warmups: int = 1
    missing: tuple[str, ...] = ()


def measure(case: Case, args: Namespace) -> Measurement:
    """Measures one case, in time or with ``--memory`` in bytes.

    Args:
        case: its systems.
        args: ``device``, ``rounds``, ``max_seconds`` and, where a kind has it, ``memory``.
    """
    if getattr(args, "memory", False):
        unit, values = "bytes", measure_memory(case.runs, args.device)
    else:
        unit = "seconds"
        values = measure_time(dict(case.runs), args.device, args.rounds, case.warmups, args.max_seconds)
    baseline = next(iter(values))
    return Measurement(
        case.case, baseline, {**values, **{name: [] for name in case.missing}}, unit, {"tokens": case.tokens}
    )


def measure_time(
    systems: Mapping[str, Callable[[], object]],
    device: torch.device,
    rounds: int,
    warmups: int = 1,
    max_seconds: float = float("inf"),
) -> dict[str, list[float]]:
    """Runs the systems in turn and takes the time of each run.

    Args:
        systems: what to run, by name.
        device: that the work is done on; a GPU is waited for.
        rounds: measured runs of each system, at least 1.
        warmups: runs of each system before that.
        max_seconds: no further round begins after this time; the first one always runs.

    Returns:
        Seconds of each round by name; all lists are of one length.
    """
    begin = time.perf_counter()
    for _ in range(warmups):
        for run in systems.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        if time.perf_counter() - begin > max_seconds and all(seconds.values()):
            break
        for name, run in systems.items():
            _wait_for(device)
            start = time.perf_counter()
            run()
            _wait_for(device)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def measure_memory(systems: Iterable[tuple[str, Callable[[], object]]], device: torch.device) -> dict[str, list[float]]:
    """Measures how many bytes PyTorch holds for each system at its highest, beyond what it held before the run.

    What PyTorch's allocator gives out counts, on the CPU as on a GPU: no caches, no libraries, no fragments. Each runs
    once before that, e.g. for the state of an optimizer. A system with ``count_bytes`` says what it holds all the time,
    which is added.

    Args:
        systems: what to run, by name; one is let go before the next is asked for.
        device: that the work is done on.

    Returns:
        One number of bytes by name, in a list.
    """
    peaks = {}
    for name, run in systems:
        run()
        peak = _peak_on_gpu(run, device) if device.type == "cuda" else _peak_on_cpu(run)
        peaks[name] = [getattr(run, "count_bytes", int)() + float(peak)]
        del run  # before the next is made
    return peaks


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_on_gpu(run: Callable[[], object], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)


def _peak_on_cpu(run: Callable[[], object]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        run()
    result = profiler.profiler.kineto_results  # type: ignore[union-attr]
    changes = [(event.start_ns(), event.nbytes()) for event in result.events() if event.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        held += change
        peak = max(peak, held)
    return peak
