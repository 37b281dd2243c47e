"""Ends a training of several processes whose dictionaries, data or models are not the same in all of them.

Each process sends a fingerprint of what it has to the others, when it has built its model and whenever it has loaded
training data, and compares what comes back with its own.
"""

import atexit
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from muse_plugin.fairseq_repairs.repair import Repair, replace


class Fingerprint(NamedTuple):
    """What is compared of one thing.

    Attributes:
        size: for the message, such as ``24 words``.
        digest: of what must be the same.
    """

    size: str
    digest: str


def _digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def _dictionaries(task: Any) -> Iterator[tuple[str, Fingerprint]]:
    for name, value in vars(task).items():
        found = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, dictionary in found:
            if isinstance(dictionary, Dictionary):
                label = f"the dictionary {name}[{key}]" if key else f"the dictionary {name}"
                content = "\n".join(dictionary.symbols).encode("utf-8", errors="surrogatepass")
                yield label, Fingerprint(f"{len(dictionary):,} words", _digest(content))


def _data(split: str, dataset: Any) -> Iterator[tuple[str, Fingerprint]]:
    """Nothing for data without a length, which is read as a stream."""
    try:
        count = len(dataset)
    except TypeError:
        return
    sizes = getattr(dataset, "sizes", None)
    # Of pairs, fairseq holds a column for each language; turned round, they need not be copied.
    lengths = np.ascontiguousarray(sizes.T) if isinstance(sizes, np.ndarray) else b""
    yield f"the data of {split}", Fingerprint(f"{count:,} sentences", _digest(lengths))


def _model(model: Any) -> Iterator[tuple[str, Fingerprint]]:
    shapes = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    yield "the model", Fingerprint(f"{numbers:,} parameters", _digest(repr(shapes).encode("utf-8")))


def check_equal(gathered: list[dict[str, Fingerprint]]) -> None:
    """Compares the fingerprints of all processes, by rank.

    Raises:
        ValueError: if one differs from that of process 0.
    """
    for rank, other in enumerate(gathered):
        for what in dict.fromkeys([*gathered[0], *other]):
            first, its = (each.get(what) for each in (gathered[0], other))
            if first != its:
                there, here = (each.size if each else "none" for each in (first, its))
                same = ", but other ones" if there == here else ""
                raise ValueError(
                    f"all processes of a training must have the same dictionaries, data and model, but {what} is not "
                    f"the same: process 0 has {there}, process {rank} (counted from 0) {here}{same}; give all of them "
                    "the same folder of data and the same flags."
                )


def _compare(trainer: Trainer, mine: Iterator[tuple[str, Fingerprint]]) -> None:
    parallel = trainer.cfg.distributed_training.pipeline_model_parallel or trainer.cfg.common.model_parallel_size > 1
    if trainer.tpu or parallel or distributed_utils.get_global_world_size() == 1:
        return
    gathered = distributed_utils.all_gather_list(dict(mine), group=distributed_utils.get_global_group())
    try:
        check_equal(gathered)
    except ValueError:  # in every process, as all of them have gathered the same
        atexit.register(_end)
        raise


def _end() -> None:
    """Ends the process with exit code 1, without ending the interpreter.

    A thread of the process group that needs the interpreter while it ends aborts the process instead.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _apply() -> None:
    @replace(Trainer, "__init__")
    def initialize(original: Any, self: Trainer, *rest: Any, **named: Any) -> None:
        original(self, *rest, **named)

        def describe() -> Iterator[tuple[str, Fingerprint]]:
            yield from _dictionaries(self.task)
            for split, dataset in self.task.datasets.items():
                yield from _data(split, dataset)
            yield from _model(self._model)

        _compare(self, describe())

    @replace(Trainer, "get_train_iterator")
    def get_train_iterator(original: Any, self: Trainer, *rest: Any, **named: Any) -> Any:
        iterator = original(self, *rest, **named)
        split = self.cfg.dataset.train_subset
        _compare(self, _data(split, self.task.dataset(split)))
        return iterator


REPAIR = Repair(
    why="a process with other data, or with a dictionary of the same size in another order, takes part in a training "
    "as if nothing were wrong: the ids mean other words to it, and the model is worthless",
    remedy=_apply,
)
