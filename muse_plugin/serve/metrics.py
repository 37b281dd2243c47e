"""What a monitoring system asks for at ``/metrics``, in the text form of Prometheus."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIND = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
OTHER = "other"  # every address that is no route, or each would be a series of its own


class Metrics:
    """Counters of one server.

    Args:
        routes: its addresses.
        count_waiting: the number of sentences that wait.
    """

    def __init__(self, routes: list[str], count_waiting: Callable[[], int]) -> None:
        self._routes = frozenset(routes)
        self._registry = CollectorRegistry()
        named = {"namespace": "muse_plugin", "registry": self._registry}
        self._requests = Counter("requests", "Requests that were answered.", ["route", "status"], **named)
        self._seconds = Histogram("request_seconds", "From a request to the end of its answer.", ["route"], **named)
        self._batches = Histogram("batch_sentences", "Sentences translated at once.", buckets=_SIZES, **named)
        Gauge("waiting_sentences", "Sentences that wait.", **named).set_function(count_waiting)

    def observe_batch(self, size: int) -> None:
        """Counts a batch of so many sentences."""
        self._batches.observe(size)

    def write(self) -> bytes:
        """All of it, for ``/metrics``."""
        return generate_latest(self._registry)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """An ASGI application that counts what another one answers."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            status, start = "none", time.perf_counter()

            async def note_status(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = str(message["status"])
                await send(message)

            try:
                await app(scope, receive, note_status)
            finally:
                route = scope["path"] if scope["path"] in self._routes else OTHER
                self._requests.labels(route, status).inc()
                self._seconds.labels(route).observe(time.perf_counter() - start)

        return watched
