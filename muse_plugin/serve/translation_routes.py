"""Translation as LibreTranslate and DeepL offer it, so that their clients work with this server as they are."""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Optional

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from muse_plugin.serve.batcher import Batcher, QueueFullError
from muse_plugin.serve.bodies import GONE, RequestError, read_fields
from muse_plugin.serve.sentences import LongSentenceError, divide_text

logger = logging.getLogger(__name__)

STREAM = "application/x-ndjson"
_BYTES_PER_CHARACTER = 12  # of JSON at most: a character beyond the first plane is two escapes
_OTHER_BYTES = 1 << 16  # names, keys, quotes
# What a client of DeepL may ask for and would miss: what to do instead, and values that ask for nothing.
_NOT_OFFERED: dict[str, tuple[str, tuple[str, ...]]] = {
    "tag_handling": ("send plain text", ()),
    "glossary_id": ("this model has no glossaries", ()),
    "formality": (
        "this model knows one; 'prefer_more' and 'prefer_less' are taken as wishes",
        ("default", "prefer_more", "prefer_less"),  # DeepL, too, ignores them where a language has no choice
    ),
}


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Attributes:
        characters: of all its texts.
        sentences: of all its texts.
        seconds: until it is answered.
    """

    characters: int
    sentences: int
    seconds: float


@dataclass(frozen=True)
class TranslationRoutes:
    """The routes of one model.

    Attributes:
        source_lang: code of the language that it reads.
        target_lang: of the one that it writes.
        batcher: translates.
        limits: of a request.
        api_key: that a request must give; None for no key.
        within_lines: whether lines are divided into sentences.
    """

    source_lang: str
    target_lang: str
    batcher: Batcher
    limits: Limits
    api_key: Optional[str] = None
    within_lines: bool = True

    def list_routes(self) -> list[Route]:
        """The routes, for Starlette."""
        return [
            Route("/translate", self._libretranslate, methods=["POST"]),
            Route("/languages", self._list_languages),
            Route("/v2/translate", self._deepl, methods=["POST"]),
        ]

    async def _list_languages(self, _: Request) -> Response:
        source = {"code": self.source_lang, "name": self.source_lang, "targets": [self.target_lang]}
        return JSONResponse([source, {"code": self.target_lang, "name": self.target_lang, "targets": []}])

    async def _libretranslate(self, request: Request) -> Response:
        fields = await self._read(request)
        self._check_key(str(fields.get("api_key", "")))
        texts = _list_texts(fields, "q")
        source = fields.get("source") or "auto"  # null, too
        self._check_language("source", source, self.source_lang, "auto")
        self._check_language("target", fields.get("target"), self.target_lang)
        if fields.get("format", "text") != "text":
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"'format' must be text, but got {str(fields['format'])[:50]}; send plain text."
            )
        work = self._submit(texts)
        if STREAM in request.headers.get("Accept", ""):
            return StreamingResponse(self._stream(work), media_type=STREAM)
        translations = await self._wait(request, work)
        if translations is None:
            return Response(status_code=GONE)
        is_list = isinstance(fields["q"], list)
        answer: dict[str, Any] = {"translatedText": translations if is_list else translations[0]}
        if source == "auto":
            found = {"language": self.source_lang, "confidence": 100}  # there is no other
            answer["detectedLanguage"] = [found] * len(texts) if is_list else found
        return JSONResponse(answer)

    async def _deepl(self, request: Request) -> Response:
        fields = await self._read(request)
        header = request.headers.get("Authorization", "").removeprefix("DeepL-Auth-Key ")
        self._check_key(header or str(fields.get("auth_key", "")))
        texts = _list_texts(fields, "text")
        self._check_language("source_lang", fields.get("source_lang") or self.source_lang, self.source_lang)
        self._check_language("target_lang", fields.get("target_lang"), self.target_lang)
        for name, (advice, harmless) in _NOT_OFFERED.items():
            value = fields.get(name)
            if value and value not in harmless:
                raise RequestError(HTTPStatus.BAD_REQUEST, f"{name!r} must not be given; {advice}.")
        translations = await self._wait(request, self._submit(texts, str(fields.get("split_sentences", "1")) != "0"))
        if translations is None:
            return Response(status_code=GONE)
        language = self.source_lang.upper()
        return JSONResponse(
            {"translations": [{"detected_source_language": language, "text": text} for text in translations]}
        )

    async def _read(self, request: Request) -> dict[str, Any]:
        return await read_fields(request, _BYTES_PER_CHARACTER * self.limits.characters + _OTHER_BYTES)

    def _check_key(self, given: str) -> None:
        key = given.encode("utf-8", "surrogatepass")
        if self.api_key is not None and not hmac.compare_digest(key, self.api_key.encode()):
            raise RequestError(HTTPStatus.FORBIDDEN, "a request must give the right API key; ask who runs the server.")

    def _check_language(self, name: str, given: Any, wanted: str, *others: str) -> None:
        code, own = (str(language).lower().replace("_", "-") for language in (given, wanted))
        if code not in (own, *others) and code.partition("-")[0] != own:
            raise RequestError(
                HTTPStatus.BAD_REQUEST,
                f"'{name}' must be {' or '.join((wanted, *others))}, but got {str(given)[:50]}; this model translates "
                f"from {self.source_lang} to {self.target_lang}.",
            )

    def _submit(self, texts: Sequence[str], is_divided: bool = True) -> list[tuple[list[str], list["Future[str]"]]]:
        """Queues the sentences of texts; of each text its parts and the translations of those at even places."""
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request must have at most {self.limits.characters:,} characters, but this one has {characters:,}; "
                "send the text in parts.",
            )
        divided = [divide_text(text, self.within_lines and is_divided) for text in texts]
        sentences = [sentence for parts in divided for sentence in parts[::2]]
        if len(sentences) > self.limits.sentences:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request must have at most {self.limits.sentences:,} sentences, but this one has "
                f"{len(sentences):,}; send the text in parts.",
            )
        try:
            futures = iter(self.batcher.submit(sentences))
        except QueueFullError as error:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{len(self.batcher):,} sentences wait already, and {len(sentences):,} more are too many; try again "
                "later.",
                Retry_After="1",
            ) from error
        return [(parts, [next(futures) for _ in parts[::2]]) for parts in divided]

    async def _wait(self, request: Request, work: list[tuple[list[str], list["Future[str]"]]]) -> Optional[list[str]]:
        """The translations of texts; None if the client went away, whose sentences are forgotten."""
        results = asyncio.gather(*(asyncio.wrap_future(future) for _, futures in work for future in futures))
        results.add_done_callback(lambda done: done.cancelled() or done.exception())  # or nobody has seen it
        gone = asyncio.ensure_future(_wait_until_gone(request))
        try:
            await asyncio.wait((results, gone), timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if results.done():
                with _failures():
                    translated = iter(results.result())
                return [_join(parts, [next(translated) for _ in futures]) for parts, futures in work]
            if gone.done():
                return None
        finally:
            gone.cancel()
            results.cancel()
        raise self._say_late()

    def _say_late(self) -> RequestError:
        return RequestError(
            HTTPStatus.GATEWAY_TIMEOUT,
            f"a request must be answered within {self.limits.seconds:g} seconds, but {len(self.batcher):,} sentences "
            "wait; try again later, or send less text.",
        )

    async def _stream(self, work: list[tuple[list[str], list["Future[str]"]]]) -> AsyncIterator[bytes]:
        """A line of JSON for each sentence, as soon as it and those before it are translated."""
        end = asyncio.get_running_loop().time() + self.limits.seconds
        pending = [asyncio.wrap_future(future) for _, futures in work for future in futures]
        waiting = iter(pending)
        try:
            for index, (parts, futures) in enumerate(work):
                for place in range(len(futures)):
                    left = end - asyncio.get_running_loop().time()
                    with _failures():
                        translation = await asyncio.wait_for(next(waiting), max(left, 0))
                    separator = "".join(parts[2 * place + 1 : 2 * place + 2])
                    yield _make_line(index=index, translatedText=translation, separator=separator)
        except asyncio.TimeoutError:
            yield _make_line(error=str(self._say_late()))
        except RequestError as error:
            yield _make_line(error=str(error))
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what the model raises into a sentence, and logs it."""
    try:
        yield
    except asyncio.TimeoutError:
        raise
    except LongSentenceError as error:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except Exception as error:
        logger.error("the model failed on a sentence", exc_info=error)
        raise RequestError(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f"the model failed on a sentence ({type(error).__name__}); the terminal of the server shows where.",
        ) from error


def _list_texts(fields: dict[str, Any], name: str) -> list[str]:
    value = fields.get(name)
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(
            HTTPStatus.BAD_REQUEST, f"'{name}' must be a text or a list of texts, but got {json.dumps(value)[:50]}."
        )
    return texts


def _join(parts: Sequence[str], translations: Sequence[str]) -> str:
    separators = [*parts[1::2], ""]
    return "".join(text + separator for text, separator in zip(translations, separators, strict=True))


def _make_line(**fields: Any) -> bytes:
    return json.dumps(fields).encode("ascii") + b"\n"


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
