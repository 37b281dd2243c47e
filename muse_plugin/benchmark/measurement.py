"""Measures contestants in turn, A B A B, so that a busy moment of the machine slows all of them; no file is touched."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler, which counts memory, talks on standard error


class Spread(NamedTuple):
    """A median and the range that half of the measurements lie in."""

    median: float
    low: float
    high: float


@dataclass
class Measurement:
    """What was measured in one case, e.g. for one length.

    Attributes:
        case: what distinguishes this case from others, e.g. {"length": 25}.
        baseline: the contestant that others are compared with.
        values: per contestant, one number per round: seconds, or bytes.
        unit: "seconds" or "bytes".
        work: what one round gets done, e.g. {"tokens": 150}; the same for every contestant.
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
        """Median and quartiles of a contestant."""
        return summarise(self.values[name])

    def ratio(self, name: str, baseline: Optional[str] = None) -> Spread:
        """How many times the baseline needs what ``name`` needs, round by round: above 1 is better.

        Args:
            name: the contestant.
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


def measure_time(
    contestants: Mapping[str, Callable[[], object]],
    device: torch.device,
    rounds: int,
    warmups: int = 1,
    max_seconds: float = float("inf"),
) -> dict[str, list[float]]:
    """Runs the contestants in turn and takes the time of each run.

    Args:
        contestants: what to run, by name.
        device: that the work is done on; a GPU is waited for.
        rounds: measured runs of each contestant, at least 1.
        warmups: runs of each contestant before that.
        max_seconds: no further round begins after this time; the first one always runs.

    Returns:
        Seconds of each round by name; all lists are of one length.
    """
    begin = time.perf_counter()
    for _ in range(warmups):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        if time.perf_counter() - begin > max_seconds and all(seconds.values()):
            break
        for name, run in contestants.items():
            _wait_for(device)
            start = time.perf_counter()
            run()
            _wait_for(device)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def measure_memory(
    contestants: Mapping[str, Callable[[], object]], device: torch.device, warmups: int = 1
) -> dict[str, list[float]]:
    """Measures how many bytes PyTorch holds for each contestant at its highest, beyond what it held before the run.

    What PyTorch's allocator gives out counts, on the CPU as on a GPU: no caches, no libraries, no fragments.

    Args:
        contestants: what to run, by name.
        device: that the work is done on.
        warmups: runs of each contestant before that, e.g. for the state of an optimizer.

    Returns:
        One number of bytes by name, in a list.
    """
    peaks = {}
    for name, run in contestants.items():
        for _ in range(warmups):
            run()
        peaks[name] = [float(_peak_on_gpu(run, device) if device.type == "cuda" else _peak_on_cpu(run))]
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
