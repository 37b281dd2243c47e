"""Segments whole epochs in processes of their own, one epoch ahead of the training.

The processes are new interpreters that run ``word_segmentation.py``, neither forks of the training process, which has
threads and perhaps a GPU, nor children of ``multiprocessing``, which would import fairseq and torch again. They read
their job from an unnamed temporary file and write to another, so no thread is needed to talk to them, and nothing is
left on the disk however the training ends.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import weakref
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional

import numpy as np

from muse_plugin.tasks.bpe_dropout.training_text import TrainingText

PROGRAM = Path(__file__).with_name("word_segmentation.py")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Side:
    """One language and how to segment it.

    Attributes:
        name: "source" or "target"; random numbers depend on it.
        text: the words.
        codes: content of the codes file of subword-nmt, or of a SentencePiece model in base64.
        indices: symbol to id, of the dictionary.
        unknown: id for symbols that are not in ``indices``.
        end: id that ends each line.
        dropout: probability in [0, 1) of leaving out a merge; of a unigram model, see ``PieceSampler``.
    """

    name: str
    text: TrainingText
    codes: str
    indices: Mapping[str, int]
    unknown: int
    end: int
    dropout: float

    @property
    def typecode(self) -> str:
        """Of the ids: 16 bits where they suffice, else 32."""
        return "H" if max(self.indices.values()) < 1 << 16 else "i"


class SegmentedText(NamedTuple):
    """One language of one epoch.

    Attributes:
        ids: of all lines one after another, each line with the id that ends it.
        lengths: ids per line.
    """

    ids: np.ndarray
    lengths: np.ndarray


class _Process(NamedTuple):
    process: "subprocess.Popen[bytes]"
    output: BinaryIO
    errors: BinaryIO


class EpochSegmentation:
    """One epoch of the text being segmented, in as many processes as the text has shares.

    Args:
        sides: source and target.
        seed: of the training.
        epoch: counted from 1.
        ahead: if true, the processes leave the processor to others that need it, such as the training.
    """

    def __init__(self, sides: tuple[Side, Side], seed: int, epoch: int, ahead: bool = False) -> None:
        for side in sides:
            side.text.check_unchanged()
        self.epoch = epoch
        self._sides = sides
        self._processes: list[_Process] = []
        self._finalizer = weakref.finalize(self, _stop, self._processes)
        job = {"seed": seed, "epoch": epoch, "parent": os.getpid(), "ahead": ahead}
        for number in range(len(sides[0].text.shares)):
            self._processes.append(_start(job, sides, number))

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that were started; some or all may have ended."""
        return [each.process.pid for each in self._processes]

    def stop(self) -> None:
        """Ends the processes, whatever they have done so far."""
        self._finalizer()

    def wait(self) -> list[SegmentedText]:
        """Waits for the processes; gives source and target.

        Raises:
            RuntimeError: if a process failed or was ended by someone else.
        """
        try:
            for each in self._processes:
                code = each.process.wait()
                if code != 0:
                    raise RuntimeError(self._describe_failure(code, each.errors))
            return self._collect()
        finally:
            self.stop()

    def _describe_failure(self, code: int, errors: BinaryIO) -> str:
        errors.seek(0)
        words = errors.read().decode("utf-8", errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return (
            f"segmenting the training text for epoch {self.epoch} failed: a process ended with {how} and said "
            f"'{words[-1] if words else ''}'; check memory and the space for temporary files in "
            f"{tempfile.gettempdir()}, then start the training again, which resumes from the last checkpoint."
        )

    def _collect(self) -> list[SegmentedText]:
        counts = [self._read_counts(number, each.output) for number, each in enumerate(self._processes)]
        texts = []
        for side, own in zip(self._sides, zip(*counts, strict=True), strict=True):
            ids = np.empty(sum(own), dtype=np.dtype(side.typecode))
            lengths = np.empty(side.text.lines, dtype=np.int32)
            at = 0
            for each, count, share in zip(self._processes, own, side.text.shares, strict=True):
                _fill(ids[at : at + count], each.output)
                _fill(lengths[share.first_line : share.first_line + share.lines], each.output)
                at += count
            texts.append(SegmentedText(ids, lengths))
        return texts

    def _read_counts(self, number: int, output: BinaryIO) -> "array[int]":
        """Reads how many ids each side has, at the end of a result; then goes to the beginning."""
        counts = array("q", bytes(8 * len(self._sides)))
        output.seek(-len(counts) * counts.itemsize, os.SEEK_END)
        _fill(counts, output)
        expected = len(counts) * counts.itemsize
        for count, side in zip(counts, self._sides, strict=True):
            expected += count * np.dtype(side.typecode).itemsize + side.text.shares[number].lines * 4
        if output.tell() != expected:
            raise RuntimeError(
                f"a process that segments the training text must write {expected} bytes, but wrote {output.tell()}; "
                f"check the space for temporary files in {tempfile.gettempdir()}."
            )
        output.seek(0)
        return counts


def _start(job: Mapping[str, Any], sides: tuple[Side, Side], number: int) -> _Process:
    entries = []
    for side in sides:
        share = side.text.shares[number]
        entry = {name: getattr(side, name) for name in ("name", "codes", "unknown", "end", "dropout", "typecode")}
        entries.append({**entry, "path": str(side.text.path), "indices": dict(side.indices), **share._asdict()})
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed by _stop)
    with tempfile.TemporaryFile() as order:
        order.write(json.dumps({**job, "sides": entries}).encode("utf-8"))
        order.seek(0)
        process = subprocess.Popen([sys.executable, str(PROGRAM)], stdin=order, stdout=output, stderr=errors)
    return _Process(process, output, errors)


def _fill(numbers: Any, file: BinaryIO) -> None:
    file.readinto(memoryview(numbers).cast("B"))


def _stop(processes: list[_Process]) -> None:
    for each in processes:
        if each.process.poll() is None:  # in a fork, such as a worker of torch's DataLoader, it counts as ended
            each.process.kill()
        each.process.wait()
        each.output.close()
        each.errors.close()
    processes.clear()


class BackgroundSegmenter:
    """Hands out segmented epochs, and has the next one segmented meanwhile.

    Args:
        sides: source and target.
        seed: of the training. An epoch depends on it, on its number and on the text, on nothing else: not on the
            number of processes, and not on which epochs were asked for before.
    """

    def __init__(self, sides: tuple[Side, Side], seed: int) -> None:
        self.sides = sides
        self._seed = seed
        self.running: Optional[EpochSegmentation] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "running": None}  # a copy in another process has no children

    def take(self, epoch: int) -> list[SegmentedText]:
        """Waits until an epoch, counted from 1, is segmented, and starts on the next one; gives source and target.

        Raises:
            RuntimeError: if a process failed, or the text has changed.
        """
        if self.running is not None and self.running.epoch != epoch:
            self.running.stop()
            self.running = None
        ahead = self.running is not None
        started = time.monotonic()
        current = self.running or EpochSegmentation(self.sides, self._seed, epoch)
        self.running = None
        texts = current.wait()
        waited = time.monotonic() - started
        for side, text in zip(self.sides, texts, strict=True):
            logger.info(
                f"epoch {epoch}, {side.name}: BPE-dropout {side.dropout:g}, "
                f"{text.lengths.mean():.2f} tokens per sentence, "
                f"{np.count_nonzero(text.ids == side.unknown) / len(text.ids):.3%} unknown"
            )
        logger.info(
            f"epoch {epoch}: waited {waited:.1f} seconds for the segmentation"
            + ("" if ahead else ", which could not be made ahead")
        )
        self.running = EpochSegmentation(self.sides, self._seed, epoch + 1, ahead=True)
        return texts
