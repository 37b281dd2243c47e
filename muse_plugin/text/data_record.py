"""The record of a data set of sentences: what is in it and how it was made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Union

from muse_plugin.files.json_objects import Kind, find_faults

_SHOWN = 60  # characters of a name in a damaged file
_SPLIT_KINDS: dict[str, Kind] = {"sentences": int, "words": int, "file": str}
_VOCABULARY_KINDS: dict[str, Kind] = {"threshold": int, "size": int, "from": str}


@dataclass(frozen=True)
class DataRecord:
    """What ``muse-plugin prepare-text`` made.

    Attributes:
        numbers: whether labels are numbers in ``label/SPLIT.label``.
        tags: whether each word has a label.
        pair: whether there is a second text, ``input1``.
        characters: whether there are ``characters0`` and, for pairs, ``characters1``.
        format: the value of ``--format``.
        splits: for each split its ``sentences`` and ``words`` (of both texts) and the name of the ``file`` it is from.
        vocabulary: ``threshold``, ``size`` of the dictionary with its special symbols, and what it was counted
            ``from``: ``train``, ``all``, ``earlier`` (taken from an earlier data set), ``vocab.txt`` (word pieces)
            or the name of ``--dictionary``.
        arguments: all flags that the result depends on, as they were given.
    """

    numbers: bool = False
    tags: bool = False
    pair: bool = False
    characters: bool = False
    format: str = "label-tab-text"
    splits: Mapping[str, Mapping[str, Union[int, str]]] = field(default_factory=dict)
    vocabulary: Mapping[str, Union[int, str]] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


RECORD_KINDS: dict[str, Any] = {
    entry.name: entry.type if entry.type in (bool, str) else dict for entry in fields(DataRecord)
}


def find_inner_faults(record: Mapping[str, Any], prefix: str) -> list[str]:
    """Says what is wrong within ``splits`` and ``vocabulary`` of a record whose own fields are right."""
    faults = find_faults(record["vocabulary"], _VOCABULARY_KINDS, f"{prefix}vocabulary.")
    for name, split in record["splits"].items():
        faults += find_faults(split, _SPLIT_KINDS, f"{prefix}splits.{name[:_SHOWN]}.")
    return faults
