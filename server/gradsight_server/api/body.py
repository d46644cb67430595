"""Request bodies: read as they stream in, within limits, decompressed, and decoded off the event loop where large."""

import asyncio
import zlib
from email.message import Message
from functools import lru_cache
from typing import TypeVar

import anyio
import msgspec
from anyio.to_thread import run_sync
from fastapi import Request

from gradsight import wire
from gradsight_server.errors import BodyTooLargeError, BodyTooSlowError, BrokenBodyError, UnsupportedMediaTypeError
from gradsight_server.settings import Settings

BODY_TIMEOUT_S = 60.0
LARGE_BYTES = 256 * 1024
"""About a millisecond of decoding; more would hold up the live streams."""
GZIP_WINDOW = 16 + zlib.MAX_WBITS

Record = TypeVar("Record", bound=msgspec.Struct)


async def read_record(request: Request, kind: type[Record], *, empty: Record | None = None) -> tuple[Record, int]:
    """The record in the body, and the bytes it took. `empty` stands for no body at all where that is allowed."""
    if empty is None:
        content_type = _content_type(request)  # before the body: nobody should send 16 MB to hear a 415
    body, num_bytes = await read_body(request)
    if not body and empty is not None:
        return empty, num_bytes
    content_type = _content_type(request)
    if len(body) <= LARGE_BYTES:
        return _decode(body, kind, content_type), num_bytes
    return await run_sync(_decode, body, kind, content_type, limiter=_heavy()), num_bytes


def _decode(body: bytes, kind: type[Record], content_type: str) -> Record:
    return wire.decode(body, kind, content_type)  # type: ignore[type-var]  # any record decodes as the wire's do


_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("gradsight_heavy_bodies")


def _heavy() -> anyio.CapacityLimiter:
    """At most two large bodies are decoded at once: each may take ten times its size in memory."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(2)
        _limiter.set(limiter)
        return limiter


def _content_type(request: Request) -> str:
    given = request.headers.get("content-type", "")
    kind, charset = _parsed(given)
    if kind not in (wire.CONTENT_TYPE_JSON, wire.CONTENT_TYPE_MSGPACK) or charset not in ("utf-8", "utf8"):
        raise UnsupportedMediaTypeError(
            f"Content-Type must be {wire.CONTENT_TYPE_JSON} or {wire.CONTENT_TYPE_MSGPACK} (curl: --json), "
            f"got {given or 'none'!r}."
        )
    return kind


@lru_cache(maxsize=64)
def _parsed(given: str) -> tuple[str, str]:
    """Type and charset of a Content-Type; clients send the same again and again."""
    message = Message()
    message["content-type"] = given or "none"
    return message.get_content_type() if given else "", str(message.get_param("charset", "utf-8")).lower()


async def read_body(request: Request) -> tuple[bytes, int]:
    """The body decompressed, and how many bytes were sent for it."""
    settings: Settings = request.app.state.settings
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > settings.max_body_bytes:
        raise _too_large(f"{declared} bytes", settings.max_body_bytes)
    decoder = _decoder(request.headers.get("content-encoding", ""), settings.max_decoded_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > settings.max_body_bytes:
                    raise _too_large("more bytes", settings.max_body_bytes)
                chunks.append(decoder.decode(chunk))
    except TimeoutError:
        raise BodyTooSlowError(f"The body did not arrive within {BODY_TIMEOUT_S:g} s.") from None
    if num_bytes:
        decoder.finish()
    return b"".join(chunks), num_bytes


def _too_large(what: str, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body has {what}, the limit is {limit}: send fewer steps at a time.")


class _Plain:
    def decode(self, chunk: bytes) -> bytes:
        return chunk

    def finish(self) -> None:
        pass


class _Gzip:
    """Decompresses as it comes, never more than the limit, so that a zip bomb stays small."""

    def __init__(self, max_bytes: int) -> None:
        self._inflater = zlib.decompressobj(GZIP_WINDOW)
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def decode(self, chunk: bytes) -> bytes:
        try:
            plain = self._inflater.decompress(chunk, self._max_bytes - self._num_bytes + 1)
        except zlib.error as error:
            raise BrokenBodyError(f"The body is not gzip, as Content-Encoding says: {error}.") from None
        self._num_bytes += len(plain)
        if self._num_bytes > self._max_bytes:
            raise _too_large("more bytes once decompressed", self._max_bytes)
        if self._inflater.unused_data:
            raise BrokenBodyError("The body goes on after the end of its gzip stream.")
        return plain

    def finish(self) -> None:
        if not self._inflater.eof:
            raise BrokenBodyError("The body's gzip stream ends too early.")


def _decoder(encoding: str, max_bytes: int) -> _Plain | _Gzip:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Gzip(max_bytes)
        case other:
            raise UnsupportedMediaTypeError(f"Content-Encoding must be gzip or absent, got {other!r}.")
