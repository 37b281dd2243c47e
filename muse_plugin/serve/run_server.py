"""Runs an application until it is told to end: takes the port first, answers last what it has accepted."""

import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

_WAITING = 2048  # connections that wait until they are accepted; the system's own limit may be lower
_MOST_CONNECTIONS = 2000
_LAST_WAIT = 3  # seconds that a finished server still waits for clients to take their answers


@contextmanager
def take_port(host: str, port: int) -> Iterator[socket.socket]:
    """Listens on an address, so that whether it is free is known before a model is loaded.

    Args:
        host: name or number of the address.
        port: 0 for any that is free.

    Raises:
        ValueError: if the port is not a port, or is taken, or the address is none of this machine.
        PermissionError: if the system keeps the port for itself.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be a number from 0 (any free port) to 65535, but got {port}.")
    taken = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
        taken.listen(_WAITING)
    except OSError as error:
        if taken is not None:
            taken.close()
        if isinstance(error, PermissionError):
            raise PermissionError(
                f"--port must be one that you may use, but got {port} ({error.strerror}); use one above 1023."
            ) from error
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"--port must be free, but another program uses {port}; name another one, or 0 for any that is free."
            ) from error
        raise ValueError(
            f"--host must be an address of this machine, but got {host} ({error.strerror}); 127.0.0.1 is for this "
            "machine alone, 0.0.0.0 for all."
        ) from error
    with taken:
        yield taken


class Server(uvicorn.Server):
    """Serves until Ctrl-C or SIGTERM; requests that were accepted by then are answered.

    Args:
        app: the application.
        seconds: that an answer may take.
        announce: called once requests are answered.
    """

    def __init__(self, app: ASGIApp, seconds: float, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                server_header=False,
                lifespan="off",
                http="h11",  # the strictest about what is no HTTP
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(seconds) + _LAST_WAIT,
            )
        )
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to answer."""
        await super().startup(sockets)
        self._announce()

    def serve_on(self, listening: socket.socket) -> None:
        """Serves on what ``take_port`` gave."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: None)  # which uvicorn raises again after it has ended
        with suppress(KeyboardInterrupt):  # the same
            self.run(sockets=[listening])
