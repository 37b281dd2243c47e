"""Who may ask: requests that name this server by its own name, and pages only from itself.

A web site that is open in a browser must not get at a server on the same machine. Its requests name the site as their
origin; if the site points a name of its own at this machine, they name that as their host.
"""

import ipaddress
import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muse_plugin.serve.bodies import RequestError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "Server": "muse-plugin",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application around another: checks hosts and origins, and adds headers to every answer.

    Args:
        app: the other one.
        host: address that the server listens on. On all addresses (0.0.0.0), requests may name any address.
        port: of the server.
        more_hosts: names by which it may be called, with any port.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, more_hosts: Iterable[str] = ()) -> None:
        self._app, self._port, self._more = app, port, {name.lower() for name in more_hosts}
        name = _spell(host)
        self._names = {*LOOPBACK, name}
        self._is_open = name in ("0.0.0.0", "[::]")
        self.url = f"http://{LOOPBACK[0] if self._is_open else name}:{port}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._app
        try:
            self._check(Headers(scope=scope))
        except RequestError as error:
            app = answer_error(error)
        await app(scope, receive, send_with_headers)

    def _check(self, headers: Headers) -> None:
        host = headers.get("Host", "").lower()
        if not self._knows(host):
            raise RequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"the server must be called by its own address, but the request names {host[:100] or 'no host'}; open "
                f"{self.url}, or start the server with --allow-host.",
            )
        origin = headers.get("Origin")
        # A server in front of this one may have encrypted what was said to a name of its own.
        schemes = ("http", "https") if host.partition(":")[0] in self._more else ("http",)
        if origin is not None and origin.lower() not in [f"{scheme}://{host}" for scheme in schemes]:
            raise RequestError(
                HTTPStatus.FORBIDDEN, f"only a page of this server may ask, but {origin[:100]} did; open {self.url}."
            )

    def _knows(self, host: str) -> bool:
        name, has_port, port = host.rpartition(":")
        if not has_port or port.endswith("]"):
            name, port = host, "80"
        if name in self._more:
            return True
        return port == str(self._port) and (name in self._names or (self._is_open and is_address(name)))


def _spell(host: str) -> str:
    """A name or an address as browsers write it."""
    if not is_address(host):
        return host.lower()
    address = ipaddress.ip_address(host.strip("[]"))
    return f"[{address}]" if address.version == 6 else str(address)


def is_address(name: str) -> bool:
    """Whether a name is an address in numbers, which nobody can point at another machine."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def answer_error(error: RequestError, key: str = "error") -> Response:
    """The answer to a request that is refused: its sentence under ``key``."""
    content = json.dumps({key: str(error)})  # ASCII: it can say half a character of a request that is refused
    headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
    return Response(content, error.status, headers, "application/json")


def answer_any_error(request: Any, error: Exception) -> Response:
    """The answer to a request that is refused, in the form that clients of its route expect."""
    assert isinstance(error, RequestError)
    return answer_error(error, "message" if request.url.path.startswith("/v2/") else "error")
