"""Labels: what one may look like, and the dictionary in which each has its number.

Label ``i`` of the sorted labels of the training split has id ``i + 4`` in the dictionary, behind fairseq's special
symbols, and is class ``i`` of the model. There is no padding to a multiple of eight, so the number of classes is what
the file has lines.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fairseq.data import Dictionary

from muse_plugin.files.lines import clean_line
from muse_plugin.text import FILLER, SPECIAL_SYMBOLS

_SHOWN = 40  # characters of a label in messages
_HEADERS = frozenset("label labels gold_label class category sentiment target tag".split())


def check_label(label: str, line: int, path: Path) -> str:
    """Returns a label without invisible characters.

    Args:
        label: as in the file.
        line: its line there, for messages.
        path: the file.

    Raises:
        ValueError: if it is empty, has white space, or is a symbol that dictionaries reserve.
    """
    cleaned = clean_line(label)
    if not cleaned:
        raise ValueError(f"each example needs a label, but that in line {line} of {path} is empty; add one.")
    if " " in cleaned:
        raise ValueError(
            f"a label must have no white space, but line {line} of {path} has {label[:_SHOWN]!r}; if that is "
            "the text, name the columns, such as --format tsv:text=1,label=2; else replace it, for example by '_'."
        )
    if cleaned in SPECIAL_SYMBOLS or FILLER.fullmatch(cleaned):
        raise ValueError(
            f"a label must be no symbol that fairseq's dictionaries reserve ({', '.join(SPECIAL_SYMBOLS)}, "
            f"madeupword0000), but line {line} of {path} has {label[:_SHOWN]!r}; rename it."
        )
    return cleaned


def check_header(counts: Mapping[str, int], first_lines: Mapping[str, int], path: Path) -> None:
    """Refuses a first line that names columns.

    Args:
        counts: how often each label occurs in the training file.
        first_lines: where each occurs first.
        path: the file.

    Raises:
        ValueError: if the label of line 1 occurs nowhere else and is what columns of labels are called.
    """
    for label, line in first_lines.items():
        if line == 1 and counts[label] == 1 and label.lower() in _HEADERS:
            raise ValueError(
                f"every line must be an example, but line 1 of {path} has the label {label!r}, which is in no other "
                "line and looks like the name of a column; give --header, or rename the label."
            )


def check_number(label: str, line: int, path: Path) -> str:
    """Returns a number in the shortest form that reads back as the same float.

    Args:
        label: as in the file.
        line: its line there, for messages.
        path: the file.

    Raises:
        ValueError: if it is no finite number.
    """
    try:
        number = float(label) if "_" not in label else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"with --numbers a label must be a finite number, but line {line} of {path} has {label[:_SHOWN]!r}; "
            "correct it or leave out --numbers."
        )
    return repr(number)


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Returns labels in the order of their classes: by value if all are numbers, by code points otherwise."""
    labels = list(labels)
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return sorted(labels)
    if not all(map(math.isfinite, values.values())):
        return sorted(labels)
    return sorted(labels, key=lambda label: (values[label], label))


def build_label_dictionary(counts: Mapping[str, int]) -> Dictionary:
    """Makes the dictionary of labels.

    Args:
        counts: how often each label occurs in the training split.
    """
    dictionary = Dictionary()
    for label in sort_labels(counts):
        dictionary.add_symbol(label, n=counts[label])
    return dictionary


def check_several(known: Collection[str], path: Path) -> None:
    """Checks that there is something to tell apart.

    Args:
        known: the labels of the dictionary.
        path: the file that the training split comes from.

    Raises:
        ValueError: if there are fewer than two labels.
    """
    if len(known) < 2:
        raise ValueError(
            f"there must be at least two labels to tell apart, but {path} has only {_list(known)}; check the file "
            "and --format, or give --numbers if labels are numbers to be predicted."
        )


def check_known(first_lines: Mapping[str, int], known: Collection[str], path: Path, where: str) -> None:
    """Checks that every label of a split is in the dictionary.

    Args:
        first_lines: for each label of the split, the first line of ``path`` that has it.
        known: the labels of the dictionary.
        path: the file that the split comes from.
        where: what the dictionary was made from, for messages.

    Raises:
        ValueError: naming the first unknown label and its line.
    """
    unknown = [(line, label) for label, line in first_lines.items() if label not in known]
    if unknown:
        line, label = min(unknown)
        raise ValueError(
            f"every label must occur in {where}, but line {line} of {path} has {label[:_SHOWN]!r}; known are "
            f"{_list(sort_labels(known)[:20])}; correct the label, remove the example or add training examples."
        )


def _list(labels: Iterable[str]) -> str:
    return ", ".join(label[:_SHOWN] for label in labels)
