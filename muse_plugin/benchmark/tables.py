"""Shows measurements as a Markdown table: a row per case, and per system its median and how many times as good."""

from collections.abc import Sequence

from muse_plugin.benchmark.measurement import Measurement, Spread

# A contestant of such a name does nothing but move the bytes: the others' share is that of the memory's speed.
FLOOR = "floor"
# The kinds of benchmark whose tables show tokens per second as well.
RATED = ("train",)


def format_table(measurements: Sequence[Measurement], has_header: bool = True, has_rates: bool = False) -> str:
    """Formats measurements of one kind with the same systems.

    Args:
        measurements: at least one.
        has_header: whether the two lines that name the columns come first.
        has_rates: whether columns of tokens per second come last, where time is measured.

    Returns:
        The lines of the table, without the last line break.
    """
    first = measurements[0]
    floor = next((name for name in first.values if name.startswith(FLOOR)), None)
    shared = [name for name in first.values if floor is not None and name != floor]
    others = [name for name in first.values if name != first.baseline]
    rated = [*first.values] if has_rates and first.unit == "seconds" else []
    rows = []
    if has_header:
        unit = {"seconds": "ms", "bytes": "MiB"}[first.unit]
        columns = [*(key.replace("_", " ") for key in first.case), f"{first.baseline} [{unit}]"]
        columns += [column for name in others for column in (f"{name} [{unit}]", "ratio")]
        columns += [f"{name}: share of the floor" for name in shared]
        columns += [f"{name} [tokens/s]" for name in rated]
        rows.append(columns)
    for one in measurements:
        cells = [*map(str, one.case.values()), format_value(one.spread(one.baseline), one.unit)]
        for name in others:
            if not one.values[name]:
                cells += ["not measured", "not measured"]
                continue
            cells += [format_value(one.spread(name), one.unit), format_ratio(one.ratio(name))]
        cells += [f"{100 * one.ratio(name, floor).median:.0f} %" for name in shared]
        cells += [f"{one.work['tokens'] / one.spread(name).median:,.0f}" for name in rated]
        rows.append(cells)
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    if has_header:
        lines.insert(1, "|" + "--:|" * len(rows[0]))
    return "\n".join(lines)


def format_value(spread: Spread, unit: str) -> str:
    """The median in milliseconds or MiB, with three digits."""
    scaled = spread.median * 1e3 if unit == "seconds" else spread.median / 2**20
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f}"


def format_ratio(ratio: Spread) -> str:
    """How many times as fast or as small: the median and, where they differ, the quartiles."""
    text = f"**{ratio.median:.2f}**"
    return text if f"{ratio.low:.2f}" == f"{ratio.high:.2f}" else f"{text} ({ratio.low:.2f}-{ratio.high:.2f})"
