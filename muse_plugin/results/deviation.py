"""Several values of one number, such as those of several seeds, as their mean and deviation."""

import statistics
from collections.abc import Sequence
from typing import Optional


def mean_and_deviation(values: Sequence[float]) -> tuple[float, Optional[float]]:
    """Returns the mean and the sample standard deviation (divided by n - 1), None for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def format_mean(values: Sequence[float], decimals: int = 2) -> str:
    """Writes the mean, and the deviation where there are several values; nothing for none."""
    if not values:
        return ""
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.{decimals}f}" + (f" ± {deviation:.{decimals}f}" if deviation is not None else "")
