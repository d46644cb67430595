"""What every answer has in common: its JSON, the one form of an error, security headers, and being counted."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradsight.errors import WireError
from gradsight_server.errors import GradsightServerError, ServerBusyError, UnauthorizedError
from gradsight_server.meters import Meters

_logger = logging.getLogger(__name__)

# Who may show the page in a frame: a notebook on the person's own machine (`run.show()`), whatever its port.
FRAME_ANCESTORS = "http://localhost:* https://localhost:* http://127.0.0.1:* https://127.0.0.1:*"
# What plotly.js needs under 'self': styles it writes, and images as data: and blob:.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    f"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self' {FRAME_ANCESTORS}"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: it would make the Origin of our own login form "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NO_STORE = "no-store"
KNOWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Json(Response):
    """JSON by msgspec: fast, and a non-finite number leaves as null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


EXPECTED = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE)
"""What clients meet again and again until it is over: a log line each would fill the disk, if it isn't full already."""


def failure(error: Exception) -> Response:
    """The answer to any error: `{"error": …, "detail": …}` with the right status."""
    status, name, detail, headers = _explain(error)
    if status >= 500 and status not in EXPECTED:
        _logger.error("answered %d", status, exc_info=error)
    return Json({"error": name, "detail": detail}, status_code=status, headers=dict(headers))


async def on_error(request: Request, error: Exception) -> Response:
    """The one error handler of the application."""
    return failure(error)


HANDLED = (GradsightServerError, WireError, RequestValidationError, HTTPException)
"""What the application expects to be raised; all else is our own mistake and becomes a 500 in `Envelope`."""


def _explain(error: Exception) -> tuple[int, str, str, Mapping[str, str]]:
    name = type(error).__name__.removesuffix("Error")
    match error:
        case UnauthorizedError():
            return error.status, name, str(error), {"WWW-Authenticate": "Bearer"}
        case ServerBusyError():
            return error.status, name, str(error), {"Retry-After": "2"}
        case GradsightServerError():
            return error.status, name, str(error), {}
        case WireError():
            return HTTPStatus.UNPROCESSABLE_ENTITY, name, str(error), {}
        case RequestValidationError():
            return HTTPStatus.UNPROCESSABLE_ENTITY, "InvalidRequest", "; ".join(map(_problem, error.errors())), {}
        case HTTPException():
            name = HTTPStatus(error.status_code).phrase.title().replace(" ", "").replace("-", "")
            return error.status_code, name, str(error.detail), error.headers or {}
        case _:
            return 500, "Internal", "The server made a mistake; its log says which.", {}


def _problem(problem: Mapping[str, Any]) -> str:
    """One of pydantic's findings as a sentence: which parameter, what is wrong, what was given."""
    where = ".".join(str(part) for part in problem["loc"][1:]) or str(problem["loc"][0])
    what = problem["msg"].removeprefix("Value error, ")
    shown = repr(problem.get("input"))
    return f"{where}: {what}, got {shown if len(shown) <= 80 else shown[:77] + '…'}"


class Envelope:
    """The outermost layer: whatever happens inside, the answer has our headers and our form, and is counted."""

    def __init__(self, app: ASGIApp, *, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = 0

        async def send_in_envelope(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", NO_STORE)
            await send(message)

        try:
            await self._app(scope, receive, send_in_envelope)
        except ClientDisconnect:
            pass  # half a request: nobody is left to answer
        except Exception as error:
            if status:
                raise
            await failure(error)(scope, receive, send_in_envelope)
        finally:
            endpoint = getattr(scope.get("endpoint"), "__name__", "none")
            method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
            self._meters.requests.labels(method, endpoint, str(status)).inc()
