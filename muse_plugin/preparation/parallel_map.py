"""Maps a function over more items than memory has room for, in several processes, in the order of the items."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Any

_CHUNK = 1000  # items that a process gets at once
_AHEAD = 4  # chunks that wait for each process

_work: Callable[[Any], Any]


def map_in_order(make_work: Callable[[], Callable[[Any], Any]], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """Yields what a function makes of each item; a few thousand items are in memory at once.

    Args:
        make_work: makes the function, once in each process; what it needs may be expensive to make or to send.
        items: read only as far ahead as needed.
        workers: processes; with 1, it is this one.
    """
    if workers == 1:
        yield from map(make_work(), items)
        return
    items = iter(items)
    waiting: deque[Future[list[Any]]] = deque()
    executor = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(make_work,))
    try:
        while chunk := list(islice(items, _CHUNK)):
            waiting.append(executor.submit(_work_on, chunk))
            if len(waiting) > _AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)


def _start_worker(make_work: Callable[[], Callable[[Any], Any]]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = make_work()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work_on(chunk: list[Any]) -> list[Any]:
    return [_work(item) for item in chunk]
