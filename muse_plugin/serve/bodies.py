"""Reads the bodies of requests within limits of length and time, and refuses the others in one sentence each."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

JSON = "application/json"
GONE = 499  # the status for a client that went away, as other servers log it
FORM = "application/x-www-form-urlencoded"
_LONGEST_WAIT = 30.0  # seconds for a body
_MOST_DISCARDED = 1 << 20  # bytes that are still read of a refused request
_LONGEST_DISCARD = 1.0  # seconds that they may take
_MOST_FIELDS = 10_000  # of a form


class RequestError(Exception):
    """A request that is not answered as asked.

    Args:
        status: of HTTP.
        sentence: for the reader of the answer.
        headers: further ones.
    """

    def __init__(self, status: HTTPStatus, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        RequestError: if it is too long or comes too slowly.
    """
    claimed = request.headers.get("Content-Length", "0")
    too_long = RequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a request must have at most {most_bytes:,} bytes, but this one has "
        f"{int(claimed) if int(claimed) > most_bytes else most_bytes + 1:,} or more; send the text in parts.",
    )
    stream = request.stream()
    if int(claimed) > most_bytes:
        await _discard(stream)
        raise too_long
    parts, length = [], 0

    async def read() -> None:
        nonlocal length
        async for part in stream:
            parts.append(part)
            length += len(part)
            if length > most_bytes:
                return

    try:
        await asyncio.wait_for(read(), _LONGEST_WAIT)
    except asyncio.TimeoutError as error:
        raise RequestError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"a request must arrive within {_LONGEST_WAIT:.0f} seconds, but after {length:,} bytes nothing more did.",
        ) from error
    if length > most_bytes:
        await _discard(stream)
        raise too_long
    return b"".join(parts)


async def _discard(stream: Any) -> None:
    """Reads some of what is not wanted: a connection that is closed before that is reset, and the answer lost."""

    async def read() -> None:
        length = 0
        async for part in stream:
            length += len(part)
            if length > _MOST_DISCARDED:
                return

    with contextlib.suppress(asyncio.TimeoutError, ClientDisconnect):
        await asyncio.wait_for(read(), _LONGEST_DISCARD)


async def read_json(request: Request, most_bytes: int) -> Any:
    """The JSON value in the body of a request.

    Raises:
        RequestError: if it is no JSON, or as for ``read_body``.
    """
    body = await read_body(request, most_bytes)
    _check_kind(request, JSON)
    return _parse_json(body)


async def read_fields(request: Request, most_bytes: int) -> dict[str, Any]:
    """What a request says, in its address, as a form or as JSON; of a name that occurs there several times, a list.

    Raises:
        RequestError: if it is neither, no object, or as for ``read_body``.
    """
    pairs = list(request.query_params.multi_items())
    body = await read_body(request, most_bytes)
    if not body and "Content-Type" not in request.headers:
        return _collect(pairs)
    _check_kind(request, JSON, FORM)
    if _kind_of(request) == JSON:
        value = _parse_json(body)
        if not isinstance(value, dict):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"a request must be a JSON object, but got a {type(value).__name__}."
            )
        return {**_collect(pairs), **value}
    try:
        pairs += parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise RequestError(
            HTTPStatus.BAD_REQUEST,
            f"a form must be UTF-8 with at most {_MOST_FIELDS:,} fields, but reading it gave '{error}'.",
        ) from error
    return _collect(pairs)


def _kind_of(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _check_kind(request: Request, *kinds: str) -> None:
    if _kind_of(request) not in kinds:
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"a request must be sent as {' or '.join(kinds)}, but got {_kind_of(request)[:100] or 'no type'}.",
        )


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError(
            HTTPStatus.BAD_REQUEST, f"a request must be JSON in UTF-8, but reading it gave '{str(error)[:200]}'."
        ) from error


def _collect(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
