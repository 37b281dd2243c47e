"""Collects the sentences of many requests and translates those that wait together."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Optional

_PAUSE = 0.002  # seconds without a new sentence after which no more are waited for


class QueueFullError(RuntimeError):
    """More sentences wait than may wait, or the server is about to end."""


class Batcher:
    """One thread that translates batches of whatever waits, in the order in which it came.

    A thread that has just answered many clients hears from them again within a moment. It waits for that moment, or
    half of them would wait for the other half for ever.

    Args:
        translate: from sentences to as many translations.
        most_at_once: sentences given to it in one call.
        most_waiting: sentences that may wait.

    Attributes:
        observe: is told the size of each batch before it is translated.
    """

    def __init__(self, translate: Callable[[list[str]], list[str]], most_at_once: int, most_waiting: int) -> None:
        self.observe: Callable[[int], None] = lambda size: None
        self._translate = translate
        self._most_at_once, self._most_waiting = most_at_once, most_waiting
        self._waiting: deque[tuple[str, Future[str]]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, sentences: Sequence[str]) -> list["Future[str]"]:
        """Queues sentences, all or none; a future that is cancelled before its batch begins costs nothing.

        Raises:
            QueueFullError: if they would be too many, or the batcher is closed.
        """
        futures: list[Future[str]] = [Future() for _ in sentences]
        with self._changed:
            if self._is_closed or len(self._waiting) + len(sentences) > self._most_waiting:
                raise QueueFullError
            self._waiting.extend(zip(sentences, futures, strict=True))
            self._changed.notify()
        return futures

    def close(self) -> None:
        """Translates what waits and ends; nothing more is taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._collect()) is not None:
            taken = [(sentence, future) for sentence, future in batch if future.set_running_or_notify_cancel()]
            if taken:
                self.observe(len(taken))
                self._answer([sentence for sentence, _ in taken], [future for _, future in taken])

    def _collect(self) -> Optional[list[tuple[str, "Future[str]"]]]:
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            seen = 0
            while seen < len(self._waiting) < self._most_at_once and not self._is_closed:
                seen = len(self._waiting)
                self._changed.wait(_PAUSE)
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most_at_once))]

    def _answer(self, sentences: list[str], futures: list["Future[str]"]) -> None:
        try:
            translations = self._translate(sentences)
        except Exception as error:
            if len(futures) == 1:
                futures[0].set_exception(error)
                return
            for sentence, future in zip(sentences, futures, strict=True):  # so that one of them spoils no other
                self._answer([sentence], [future])
            return
        for future, translation in zip(futures, translations, strict=True):
            future.set_result(translation)
