"""The page of ``muse-plugin view`` over HTTP, for this machine only.

A web site that is open in the same browser must not get at the server: it listens on the loopback address, answers only
requests that name that address as their host (or a foreign name could be pointed at it), and takes sentences as JSON
only, which a foreign page cannot send without a permission that is never given.
"""

import errno
import json
import logging
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

if TYPE_CHECKING:
    from muse_plugin.view.inspect import Inspector

logger = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
MAX_BODY = 1 << 16  # bytes of a request
_MOST_DISCARDED = 1 << 20  # bytes that are still read of a refused request
_LONGEST_NUMBER = 18  # digits of a length; Python refuses to read thousands
_LONGEST_DISCARD = 1.0  # seconds that they may take
_LONGEST_WAIT = 60  # seconds for the translation before
_SLOWEST_REQUEST = 30  # seconds without a byte

_FOLDER = Path(__file__).resolve().parent
_PAGE = "page.html"
_KINDS = {
    _PAGE: "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_JSON = "application/json"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class RequestError(Exception):
    """A request that is not answered as asked.

    Args:
        status: of HTTP.
        sentence: for the reader of the page.
    """

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Answer(NamedTuple):
    """What is sent back: the content and its media type."""

    content: bytes
    kind: str


class ViewServer(ThreadingHTTPServer):
    """Serves the page and one model; translates one sentence at a time.

    Requests wait until ``serve_forever`` is called; before that, ``inspector`` must be set.

    Args:
        port: TCP port on the loopback address; 0 for any that is free.

    Raises:
        ValueError: if the port is not a port, or is taken.
        PermissionError: if the system keeps the port for itself.
        FileNotFoundError: if the installed package lacks a part of the page.
    """

    daemon_threads = True
    request_queue_size = 512  # connections that wait until they are accepted; the system's own limit may be lower
    inspector: "Inspector"

    def __init__(self, port: int) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"--port must be a number from 0 (any free port) to 65535, but got {port}.")
        self.files = {name: _read_file(name) for name in _KINDS}
        self.lock = threading.Lock()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except PermissionError as error:
            raise PermissionError(
                f"--port must be one that you may use, but got {port} ({error.strerror}); use one above 1023."
            ) from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise ValueError(
                f"--port must be free, but another program uses {port}; name another one, or 0 for any that is free."
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """The names by which a request may call this server."""
        names = (ADDRESS, "localhost")
        return {f"{name}:{self.server_port}" for name in names} | (set(names) if self.server_port == 80 else set())

    def wait_for_translation(self, seconds: float) -> None:
        """Lets the translation that is running end, if it does so in time; later ones are refused."""
        if self.lock.acquire(timeout=seconds):
            logger.debug("no translation is running any more")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; any other error is a defect and keeps its traceback."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            logger.exception("a request could not be answered")


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version, sys_version = "muse-plugin", ""
    timeout = _SLOWEST_REQUEST

    def do_GET(self) -> None:
        self._answer(self._get)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_OPTIONS(self) -> None:
        self._answer(self._refuse_method)

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS  # noqa: N815

    def _answer(self, work: Any) -> None:
        self._unread = self._read_length()
        try:
            self._check_host()
            answer: Answer = work()
        except RequestError as error:
            self._refuse(error.status, str(error))
        else:
            self._send(HTTPStatus.OK, answer)

    def _get(self) -> Answer:
        name = self.path.partition("?")[0].removeprefix("/")
        if name == "model":
            return _make_json(self.server.inspector.describe())
        if name == "translate":
            return self._refuse_method()
        name = name or _PAGE
        if name not in self.server.files:  # a table, not a folder: there is no way out of it
            raise RequestError(
                HTTPStatus.NOT_FOUND, "there is no such page; open the address that muse-plugin view shows."
            )
        return Answer(self.server.files[name], _KINDS[name])

    def _post(self) -> Answer:
        if self.path != "/translate":
            return self._refuse_method() if self.path.removeprefix("/") in ("", "model", *_KINDS) else self._get()
        text = self._read_text()
        if not self.server.lock.acquire(timeout=_LONGEST_WAIT):
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"sentences are translated one at a time, but the one before is still running after {_LONGEST_WAIT} "
                "seconds; try again later.",
            )
        try:
            return _make_json(self.server.inspector.inspect(text))
        except (ValueError, NotImplementedError) as error:
            raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except Exception as error:
            logger.exception("the model failed on a sentence of %d characters", len(text))
            raise RequestError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"the model failed on this sentence ({type(error).__name__}); the terminal in which muse-plugin view "
                "runs shows where.",
            ) from error
        finally:
            self.server.lock.release()

    def _refuse_method(self) -> Answer:
        allowed = "POST" if self.path == "/translate" else "GET, HEAD"
        raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"this address takes {allowed}, but got {self.command}.")

    def _check_host(self) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise RequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"the page must be opened by the address of this machine, but the request names "
                f"{', '.join(hosts) or 'no host'}; open {self.server.url}.",
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.server.hosts}:
            raise RequestError(
                HTTPStatus.FORBIDDEN, f"only the page itself may ask, but {origin} did; open {self.server.url}."
            )

    def _read_text(self) -> str:
        if self.headers.get_content_type() != _JSON or "Content-Type" not in self.headers:
            raise RequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"a sentence must be sent as {_JSON}, but got {self.headers.get('Content-Type', 'no type')}.",
            )
        length = self._unread
        if length is None:
            raise RequestError(
                HTTPStatus.LENGTH_REQUIRED, "a request must say how long it is; send one valid Content-Length."
            )
        if length > MAX_BODY:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request must have at most {MAX_BODY} bytes, but this one has {length}; shorten the sentence.",
            )
        body = self.rfile.read(length)
        self._unread = 0
        try:
            request = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"a request must be JSON in UTF-8, but reading it gave '{error}'."
            ) from error
        if not isinstance(request, dict) or set(request) != {"text"} or not isinstance(request["text"], str):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, 'a request must be {"text": a sentence}, but got something else.'
            )
        return str(request["text"])

    def _read_length(self) -> Optional[int]:
        """Bytes of the body: 0 if there is none; None if its length is not known."""
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or (not lengths and self.command == "POST"):
            return None
        if not lengths:
            return 0
        digits = lengths[0]
        is_valid = len(lengths) == 1 and len(digits) <= _LONGEST_NUMBER and digits.isascii() and digits.isdecimal()
        return int(digits) if is_valid else None

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send(status, _make_json({"error": sentence}))
        self.wfile.flush()
        # A connection that is closed before all was read is reset, and the answer may be lost.
        self.connection.settimeout(_LONGEST_DISCARD)
        remaining = _MOST_DISCARDED if self._unread is None else min(self._unread, _MOST_DISCARDED)
        while remaining > 0 and (part := self.rfile.read(min(remaining, MAX_BODY))):
            remaining -= len(part)

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        self.send_response(status)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST" if self.path == "/translate" else "GET, HEAD")
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def send_error(self, code: int, message: Optional[str] = None, explain: Optional[str] = None) -> None:
        """What http.server itself refuses, such as unknown methods, is JSON with the same headers as the rest."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._send(status, _make_json({"error": f"the request cannot be answered: {status.phrase.lower()}."}))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are logged for debugging only."""
        logger.debug(format, *args)


def _make_json(value: Any) -> Answer:
    return Answer(json.dumps(value, allow_nan=False).encode("ascii"), _JSON)


def _read_file(name: str) -> bytes:
    path = _FOLDER / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is part of this package, but does not exist; install the package again.")
    return path.read_bytes()
