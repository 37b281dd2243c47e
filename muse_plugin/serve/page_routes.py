"""The page that shows one translation from the inside."""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muse_plugin.serve.bodies import RequestError, read_json
from muse_plugin.serve.served_model import Shows

logger = logging.getLogger(__name__)

MAX_BODY = 1 << 16  # bytes of a request
_LONGEST_WAIT = 60  # seconds for the translation before
_FOLDER = Path(__file__).resolve().parent
_PAGE = "page.html"
_KINDS = {
    _PAGE: "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class PageRoutes:
    """The files of the page, and what it asks for.

    Args:
        inspector: of the model.
        lock: held while the model works.

    Raises:
        FileNotFoundError: if the installed package lacks a part of the page.
    """

    def __init__(self, inspector: Shows, lock: threading.Lock) -> None:
        self._inspector, self._lock = inspector, lock
        self._files = {name: _read_file(name) for name in _KINDS}

    def list_routes(self) -> list[Route]:
        """The routes, for Starlette."""
        files = [Route(f"/{name}", self._make_sender(name)) for name in _KINDS]
        return [
            Route("/", self._make_sender(_PAGE)),
            *files,
            Route("/model", self._describe),
            Route("/inspect", self._inspect, methods=["POST"]),
        ]

    def _make_sender(self, name: str) -> Callable[[Request], Response]:
        return lambda _: Response(self._files[name], headers={"Content-Type": _KINDS[name]})

    async def _describe(self, _: Request) -> Response:
        return JSONResponse(self._inspector.describe())

    async def _inspect(self, request: Request) -> Response:
        value = await read_json(request, MAX_BODY)
        if not isinstance(value, dict) or set(value) != {"text"} or not isinstance(value["text"], str):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, 'a request must be {"text": a sentence}, but got something else.'
            )
        return await run_in_threadpool(self._work, value["text"])

    def _work(self, text: str) -> Response:
        if not self._lock.acquire(timeout=_LONGEST_WAIT):
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the model does one thing at a time, but what came before still runs after {_LONGEST_WAIT} seconds; "
                "try again later.",
            )
        try:
            return Response(json.dumps(self._inspector.inspect(text), allow_nan=False), media_type="application/json")
        except (ValueError, NotImplementedError) as error:
            raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except Exception as error:
            logger.exception("the model failed on a sentence of %d characters", len(text))
            raise RequestError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"the model failed on this sentence ({type(error).__name__}); the terminal of the server shows where.",
            ) from error
        finally:
            self._lock.release()


def _read_file(name: str) -> bytes:
    path = _FOLDER / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is part of this package, but does not exist; install the package again.")
    return path.read_bytes()
