"""Ends a process of a training on Ctrl-C although it waits for the others.

Python acts on a signal between two of its own instructions, and a process that waits in torch executes none. A thread
hears of the signal from the system instead.
"""

import os
import signal
import sys
import threading
from typing import Any

from fairseq.distributed import utils as distributed_utils

from muse_plugin.fairseq_repairs.repair import Repair, replace

SECONDS = 2.0  # in which Python can act on the signal itself, unless it waits
EXIT_CODE = 128 + signal.SIGINT


def end_when_interrupted() -> None:
    """Makes SIGINT end this process within ``SECONDS`` where it does not raise KeyboardInterrupt.

    Nothing is done outside the main thread, which alone hears of signals, or where a program handles SIGINT itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # as set_wakeup_fd asks for
    known = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if known != -1:
        signal.set_wakeup_fd(known)
        os.close(reading)
        os.close(writing)
        return
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a worker's signals are not this process's
    acted = threading.Event()

    def interrupt(number: int, frame: Any) -> None:
        acted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=_watch, args=(reading, acted), daemon=True).start()


def _watch(reading: int, acted: threading.Event) -> None:
    while number := os.read(reading, 1):  # of each signal that comes
        if number[0] != signal.SIGINT:
            continue
        if not acted.wait(SECONDS):
            sys.stderr.write(
                "interrupted while waiting for the other processes of the training; start the same command again: "
                "training continues from the last checkpoint.\n"
            )
            sys.stderr.flush()
            os._exit(EXIT_CODE)
        acted.clear()


def _apply() -> None:
    @replace(distributed_utils, "distributed_init")
    def distributed_init(original: Any, cfg: Any) -> Any:
        end_when_interrupted()
        return original(cfg)


REPAIR = Repair(
    why="Ctrl-C does not end a process of a training that waits for others, such as one that never started",
    remedy=_apply,
)
