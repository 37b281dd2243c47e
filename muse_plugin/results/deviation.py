"""Several values of one number, such as those of several seeds, as their mean and deviation."""

import statistics
from collections.abc import Sequence
from typing import Optional


def mean_and_deviation(values: Sequence[float]) -> tuple[float, Optional[float]]:
    """Returns the mean and the sample standard deviation (divided by n - 1), None for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
