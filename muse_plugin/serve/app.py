"""Puts the routes of a server together."""

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from muse_plugin.serve.bodies import GONE, RequestError
from muse_plugin.serve.guard import Guard, answer_any_error
from muse_plugin.serve.metrics import KIND, Metrics


def make_app(
    routes: Sequence[Route], count_waiting: Callable[[], int], host: str, port: int, more_hosts: Iterable[str] = ()
) -> tuple[ASGIApp, Guard, Metrics]:
    """Builds the ASGI application of a server.

    Args:
        routes: of translation and of the page.
        count_waiting: the number of sentences that wait.
        host: see ``Guard``.
        port: see ``Guard``.
        more_hosts: see ``Guard``.

    Returns:
        The application, its guard, and its counters.
    """

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.write(), headers={"Content-Type": KIND})

    routes = [*routes, Route("/health", health), Route("/metrics", show_metrics)]
    metrics = Metrics([route.path for route in routes], count_waiting)
    app = Starlette(routes=routes, exception_handlers=_HANDLERS)
    app.router.redirect_slashes = False
    guard = Guard(app, host, port, more_hosts)
    return metrics.watch(guard), guard, metrics


async def _forget(_: Request, __: Exception) -> Response:
    """The client went away while it was asking, and hears nothing."""
    return Response(status_code=GONE)


async def _refuse(request: Request, error: Any) -> Response:
    """What Starlette itself refuses."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = str((error.headers or {}).get("Allow", ""))
        sentence = f"this address takes {allowed}, but got {request.method[:20]}."
        refused = RequestError(HTTPStatus.METHOD_NOT_ALLOWED, sentence, Allow=allowed)
    else:
        refused = RequestError(
            HTTPStatus(error.status_code), "there is no such page; open the address that the server showed."
        )
    return answer_any_error(request, refused)


_HANDLERS: dict[Any, Any] = {RequestError: answer_any_error, HTTPException: _refuse, ClientDisconnect: _forget}
