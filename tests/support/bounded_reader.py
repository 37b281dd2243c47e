"""Reads files in a process of its own, within limits, so that a hostile file ends that process and no other."""

import multiprocessing
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from muse_plugin_command.cli import USER_ERRORS

MEBIBYTE = 1 << 20
LONGEST_SENTENCE = 1000  # characters, without the path
_ADDRESSES = 1 << 30  # bytes; what is reserved beyond the limit without being used is not counted
_CALLS = 200  # of one process, whose memory grows a little with each


class RuleError(AssertionError):
    """What a reader did with a file that it must not do."""


class BoundedReader:
    """Calls a reader, again and again, in a process that is started again after each broken rule.

    Args:
        read: takes the path of a file, and returns or raises what the command line turns into one sentence.
        valid: a file that it can read, and that stays as it is; what that takes is not counted.
        memory: bytes that it may take above that.
        seconds: of computing that it may take.
    """

    def __init__(
        self, read: Callable[[Path], object], valid: Path, memory: int = 300 * MEBIBYTE, seconds: float = 10
    ) -> None:
        if sys.platform != "linux":
            pytest.skip("limits the memory of a process by what Linux says of it")
        self._read = read
        self._valid = valid
        self._memory = memory
        self._seconds = seconds
        self._process = None
        self._calls = 0

    def __call__(self, path: Path) -> str:
        """Reads a file.

        Returns:
            The sentence with which it was refused; nothing if it was not.

        Raises:
            RuleError: if the process ended, took more than it may, or raised something else or no sentence.
        """
        if self._process is None or self._calls == _CALLS:
            self._start()
        self._calls += 1
        self._pipe.send(path)
        try:
            kind, text, peak = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            took = f"reading took {self._seconds} s" if code == -signal.SIGPROF else f"reading ended with code {code}"
            raise RuleError(took) from None
        fault = _find_fault(kind, text, path)
        if peak > self._memory:
            fault = f"reading took {peak / MEBIBYTE:.0f} MiB"
        if fault:
            self.close()
            raise RuleError(fault)
        return text if kind == "refused" else ""

    def _start(self) -> None:
        self.close()
        fork = multiprocessing.get_context("fork")  # what is imported already need not be again
        self._pipe, other = fork.Pipe()
        self._process = fork.Process(
            target=_serve, args=(self._read, self._valid, other, self._memory, self._seconds), daemon=True
        )
        self._process.start()
        other.close()

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._process, self._calls = None, 0


def _find_fault(kind: str, text: str, path: Path) -> str:
    """What is wrong with an outcome that took neither too long nor too much."""
    if kind == "raised":
        return f"reading raised no error of the command line:\n{text}"
    if kind != "refused":
        return ""
    if not text.isprintable():
        return f"the sentence would not be on one line: {text!r}"
    if str(path.parent) not in text:
        return f"the sentence does not name the file: {text!r}"
    if len(text.replace(str(path.parent), "")) > LONGEST_SENTENCE:
        return f"the sentence has {len(text)} characters: {text!r}"
    return ""


def _serve(read: Callable[[Path], object], valid: Path, pipe, memory: int, seconds: float) -> None:
    """Reads each file whose path comes, and sends what came of it and how much memory was taken at most."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # libraries write to these past Python
        os.dup2(nothing, stream)
    read(valid)
    with open("/proc/self/statm") as file:
        addresses, before = (int(pages) * resource.getpagesize() for pages in file.read().split()[:2])
    resource.setrlimit(resource.RLIMIT_AS, (addresses + memory + _ADDRESSES, resource.RLIM_INFINITY))
    while True:
        try:
            path = pipe.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)  # computing, in this process; its end is that of the process
        kind, text = _call(read, path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send((kind, text, peak - before))


def _call(read: Callable[[Path], object], path: Path) -> tuple[str, str]:
    try:
        read(path)
    except USER_ERRORS as error:
        return "refused", str(error)
    except BaseException:
        return "raised", traceback.format_exc()
    return "read", ""
