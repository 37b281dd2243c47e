"""Answers raw text line by line, a buffer of lines at a time: what ``muse-plugin translate`` and ``predict`` share.

Where both ends are files, what is done outlives the program (see ``resumable_output.py``), which then goes on at the
end of a buffer: the model sees the same lines together as if it had never been stopped, so the output is the same too.
"""

import argparse
import contextlib
import io
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Optional

from tqdm import tqdm

from muse_plugin.files.lines import check_streams, iterate_stream, open_input, open_output
from muse_plugin.inference.resumable_output import PartialOutput
from muse_plugin_command.flag_checks import check_apart

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 20


class Line(NamedTuple):
    """One line of the input.

    Attributes:
        number: its number, counted from 1.
        text: what it holds, without its line break.
        is_valid: false if it was not valid UTF-8; its invalid bytes are U+FFFD in ``text``.
    """

    number: int
    text: str
    is_valid: bool = True


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares ``--input``, ``--output`` and ``--restart`` on ``parser``."""
    parser.add_argument("--input", type=Path, metavar="FILE", help="read from FILE (default: standard input)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to FILE when all is done (default: standard output); with --input FILE, a command that was stopped "
        "goes on when it is given again",
    )
    parser.add_argument(
        "--restart", action="store_true", help="throw away what a stopped command left beside --output FILE"
    )


def check_stream_arguments(args: argparse.Namespace) -> None:
    """Checks what ``add_stream_arguments`` declared, before anything is loaded.

    Raises:
        FileNotFoundError: if the input, or the folder of the output, does not exist.
        IsADirectoryError: if one of them is a folder.
        ValueError: if both are one file, or ``--restart`` is given but nothing would have been kept.
    """
    check_streams(args.input, args.output)
    check_apart(args.output, args.input)
    if args.restart and (args.input is None or args.output is None):
        missing = "--input" if args.input is None else "--output"
        raise ValueError(f"--restart needs --input FILE and --output FILE, but {missing} is not given; leave it out.")


def run_until_stopped(work: Callable[[], None]) -> int:
    """Calls a function.

    Returns:
        0, or the exit code of an interrupted command: 130 after Ctrl-C, 141 when nobody reads the output any more.
    """
    try:
        work()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 141
    return 0


class LineRun:
    """The lines that are left to answer, a buffer at a time: ``for lines in run: run.write(answers)``.

    Args:
        stream: the input, after the lines that are done.
        write: keeps the answers of a buffer: their bytes and their number.
        bar: shows how many lines are done.
        buffer_size: lines in a buffer; the last one may have fewer.
        done: lines that were answered before.
    """

    def __init__(
        self, stream: BinaryIO, write: Callable[[bytes, int], None], bar: "tqdm[Any]", buffer_size: int, done: int = 0
    ) -> None:
        self._stream = stream
        self._write = write
        self._bar = bar
        self._buffer_size = buffer_size
        self._asked = 0
        self.lines = done

    def __iter__(self) -> Iterator[list[Line]]:
        numbered = enumerate(iterate_stream(self._stream, self.lines + 1), start=self.lines + 1)
        lines = (Line(number, *line) for number, line in numbered)
        while buffer := list(itertools.islice(lines, self._buffer_size)):
            for line in buffer:
                if not line.is_valid:
                    logger.warning(
                        "line %d is not valid UTF-8; its invalid bytes were replaced by U+FFFD.", line.number
                    )
            self._asked = len(buffer)
            yield buffer

    def write(self, answers: Sequence[str]) -> None:
        """Writes the answers of the buffer that was read last, one for each line, none with a line break."""
        assert len(answers) == self._asked, "one answer for each line"
        self._write("".join(f"{text}\n" for text in answers).encode("utf-8"), len(answers))
        self.lines += len(answers)
        self._bar.update(len(answers))


@contextlib.contextmanager
def resume(
    source: Optional[Path],
    target: Optional[Path],
    buffer_size: int,
    made_by: Callable[[], Mapping[str, Any]],
    restart: bool = False,
) -> Iterator[LineRun]:
    """Opens both ends; the block answers the lines that are left. The output is whole when the block ends.

    Args:
        source: a file, or None for standard input.
        target: a file, or None for standard output.
        buffer_size: lines read before the first is answered, unless the input is a terminal.
        made_by: says what the answers depend on; see ``PartialOutput``. Called only if both ends are ordinary files.
        restart: whether what a stopped program left is thrown away.

    Yields:
        The lines, see ``LineRun``.

    Raises:
        FileExistsError: if what a stopped program left was made from something else.
        ValueError: if another program is writing the same file, or what a stopped program left is damaged.
    """
    if source is None or not source.is_file() or target is None or (target.exists() and not target.is_file()):
        with _stream(source, target, buffer_size) as run:
            yield run
        return
    start = time.perf_counter()
    with PartialOutput(source, target, {**made_by(), "lines at a time": buffer_size}, restart) as output:
        done = output.lines
        if output.is_in_place:
            _say(f"{target} was whole already: {done:,} lines.")
        elif done:
            _say(f"{done:,} lines are done already and lie in {output.partial}; going on after them.")
        left: BinaryIO = io.BytesIO() if output.is_in_place else output.source
        try:
            with _make_bar(source, done, hidden=output.is_in_place) as bar:
                run = LineRun(
                    left, lambda text, lines: output.append(text, lines, lines == buffer_size), bar, buffer_size, done
                )
                yield run
            output.finish()
        except BaseException:
            if output.lines:
                _say(f"{output.lines:,} lines are kept in {output.partial}; the same command goes on after them.")
            raise
        if not output.is_in_place:
            seconds, fresh = time.perf_counter() - start, run.lines - done
            _say(
                f"{target}: {run.lines:,} lines, {fresh:,} now in {seconds:.1f} s: "
                f"{fresh / seconds:,.1f} lines per second."
            )


@contextlib.contextmanager
def _stream(source: Optional[Path], target: Optional[Path], buffer_size: int) -> Iterator[LineRun]:
    """As ``resume``, where nothing can be kept: each buffer is written at once."""
    with open_input(source) as stream, open_output(target) as sink:
        if stream.isatty():
            _say("Type a sentence and press Enter; Ctrl-D ends.")

        def write(text: bytes, lines: int) -> None:
            sink.write(text)
            sink.flush()

        with _make_bar(source, hidden=stream.isatty() or sink.isatty()) as bar:
            yield LineRun(stream, write, bar, 1 if stream.isatty() else buffer_size)


def _make_bar(source: Optional[Path], done: int = 0, hidden: bool = False) -> "tqdm[Any]":
    """A bar on standard error, if that is a terminal; hidden where sentences or answers stand in the terminal."""
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
