"""Answers raw text line by line, a buffer of lines at a time: what ``muse-plugin translate`` and ``predict`` share.

Where both ends are files, what is done outlives the program (see ``resumable_output.py``), which then continues at the
end of a buffer: the model sees the same lines together as if it had never been stopped, so the output is the same too.
"""

import argparse
import contextlib
import io
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, Optional, TypeVar

from tqdm import tqdm

from muse_plugin.files.atomic_files import can_be_replaced
from muse_plugin.files.lines import check_file, iterate_stream, open_input, open_output
from muse_plugin.inference.resumable_output import ENDINGS, PartialOutput
from muse_plugin_command.flag_checks import check_apart, check_target

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 20
Item = TypeVar("Item")


class Line(NamedTuple):
    """One line of the input.

    Attributes:
        number: its number, counted from 1.
        text: what it holds, without its line break; bytes that are not UTF-8 are U+FFFD.
    """

    number: int
    text: str


def check_stream_arguments(args: argparse.Namespace) -> None:
    """Checks ``--input``, ``--output`` and ``--restart`` before anything is loaded.

    Raises:
        FileNotFoundError: if the input, or the folder of the output, does not exist.
        IsADirectoryError: if one of them is a folder.
        ValueError: if both are one file, or ``--restart`` is given but nothing would have been kept.
    """
    if args.input is not None:
        check_file(args.input, "--input")
    check_target(args.output, "--output")
    if args.output is not None:
        for ending in ("", *ENDINGS):
            check_apart(args.output.with_name(f"{args.output.name}{ending}"), args.input)
    if args.restart and (args.input is None or args.output is None):
        missing = "--input" if args.input is None else "--output"
        raise ValueError(f"--restart needs --input FILE and --output FILE, but {missing} is not given; leave it out.")


@dataclass
class Run(Generic[Item]):
    """What is left to answer, a buffer at a time: ``for items in run: run.write(answers)``.

    Attributes:
        items: what is left: lines, or sentences with names.
        keep: stores the answers of a buffer.
        bar: shows how many items are done.
        buffer_size: items in a buffer; the last one may have fewer.
    """

    items: Iterator[Item]
    keep: Callable[..., None]
    bar: "tqdm[Any]"
    buffer_size: int
    _asked: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[list[Item]]:
        while buffer := list(itertools.islice(self.items, self.buffer_size)):
            self._asked = len(buffer)
            yield buffer

    def write(self, answers: Sized, *more: Any) -> None:
        """Stores the answers of the buffer that was read last.

        Args:
            answers: one for each item, in their order; answers to lines are text without a line break.
            *more: what else is stored with them.
        """
        assert len(answers) == self._asked, "one answer for each item"
        self.keep(answers, *more)
        self.bar.update(self._asked)


def _read_lines(stream: BinaryIO, done: int = 0) -> Iterator[Line]:
    """Yields the lines of a stream, numbered from ``done`` + 1; warns of those that are not UTF-8."""
    for number, (text, is_valid) in enumerate(iterate_stream(stream, done + 1), start=done + 1):
        if not is_valid:
            logger.warning("line %d is not valid UTF-8; its invalid bytes were replaced by U+FFFD.", number)
        yield Line(number, text)


def _join(answers: Sequence[str]) -> bytes:
    return "".join(f"{text}\n" for text in answers).encode("utf-8")


@contextlib.contextmanager
def resume(
    source: Optional[Path],
    target: Optional[Path],
    buffer_size: int,
    made_by: Callable[[], Mapping[str, Any]],
    restart: bool = False,
) -> Iterator[Run[Line]]:
    """Opens both ends; the block answers the lines that are left. The output is whole when the block ends.

    Args:
        source: a file, or None for standard input.
        target: a file, or None for standard output.
        buffer_size: lines read before the first is answered, unless the input is a terminal.
        made_by: says what the answers depend on; see ``PartialOutput``. Called only if both ends are ordinary files.
        restart: whether what a stopped program left is thrown away.

    Yields:
        The lines, see ``Run``.

    Raises:
        FileExistsError: if what a stopped program left was made from something else.
        ValueError: if another program is writing the same file, or what a stopped program left is damaged.
    """
    if source is None or not source.is_file() or target is None or not can_be_replaced(target):
        with _stream(source, target, buffer_size) as run:
            yield run
        return
    start = time.perf_counter()
    with PartialOutput(source, target, {**made_by(), "lines at a time": buffer_size}, restart) as output:
        done = output.lines
        if output.is_in_place:
            _say(f"{target} was whole already: {done:,} lines.")
        elif done:
            _say(f"{done:,} lines are done already and are in {output.partial}; continuing after them.")
        left: BinaryIO = io.BytesIO() if output.is_in_place else output.source
        try:
            with _make_bar(source, done, hidden=output.is_in_place) as bar:

                def keep(answers: Sequence[str]) -> None:
                    output.append(_join(answers), len(answers), len(answers) == buffer_size)

                yield Run(_read_lines(left, done), keep, bar, buffer_size)
            output.finish()
        except BaseException:
            if output.lines:
                _say(f"{output.lines:,} lines are kept in {output.partial}; the same command continues after them.")
            raise
        if not output.is_in_place:
            seconds, fresh = time.perf_counter() - start, output.lines - done
            _say(
                f"{target}: {output.lines:,} lines, {fresh:,} now in {seconds:.1f} s: "
                f"{fresh / seconds:,.1f} lines per second."
            )


@contextlib.contextmanager
def _stream(source: Optional[Path], target: Optional[Path], buffer_size: int) -> Iterator[Run[Line]]:
    """As ``resume``, where nothing can be kept: each buffer is written at once."""
    with open_input(source) as stream, open_output(target) as sink:
        if stream.isatty():
            _say("Type a sentence and press Enter; Ctrl-D ends.")

        def keep(answers: Sequence[str]) -> None:
            sink.write(_join(answers))
            sink.flush()

        with _make_bar(source, hidden=stream.isatty() or sink.isatty()) as bar:
            yield Run(_read_lines(stream), keep, bar, 1 if stream.isatty() else buffer_size)


def _make_bar(source: Optional[Path], done: int = 0, hidden: bool = False) -> "tqdm[Any]":
    """A bar on standard error, if that is a terminal; hidden where sentences or answers are in the terminal."""
    total = None if source is None or not source.is_file() else _count_lines(source)
    return tqdm(total=total, initial=done, unit=" lines", disable=True if hidden else None)


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _say(sentence: str) -> None:
    tqdm.write(sentence, file=sys.stderr)
