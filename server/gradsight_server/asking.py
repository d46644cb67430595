"""Asking a server from the command line; where no answer comes, one line says why."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from gradsight import connecting
from gradsight.errors import NoServerError, ServerUnreachableError
from gradsight_server.errors import NothingToReadError, SettingsError

TIMEOUT_S = 10.0


def get_json(server: str, token: str | None, path: str, query: Mapping[str, Any] | None = None) -> Any:
    """The answer to GET /api/v1/{path}.

    Raises:
        NothingToReadError: no server answers, or not as Gradsight, or it does not have what is asked for.
        SettingsError: the server wants a token, or refuses what it is asked.
    """
    with asking(server, token, path, query) as answer:
        return _json(server, answer)


def post_json(server: str, token: str | None, path: str, body: Mapping[str, Any], *, timeout_s: float) -> Any:
    """The answer to POST /api/v1/{path}.

    Raises:
        NothingToReadError, SettingsError: as of `get_json`.
    """
    with asking(server, token, path, body=body, timeout_s=timeout_s) as answer:
        return _json(server, answer)


@contextmanager
def asking(
    server: str,
    token: str | None,
    path: str,
    query: Mapping[str, Any] | None = None,
    *,
    body: Mapping[str, Any] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[httpx.Response]:
    """The answer to GET (with a body, POST) /api/v1/{path} before its own body is read, whatever its status.

    Raises:
        ConfigurationError: the address or the token cannot be right.
        NothingToReadError: no server answers.
    """
    with ExitStack() as opened:
        try:
            client = opened.enter_context(connecting.client(server, token, timeout_s=timeout_s))
            url = f"{server.strip().rstrip('/')}/api/v1/{path}"
            method = "GET" if body is None else "POST"
            with connecting.explaining(server, client.timeout):
                answer = opened.enter_context(client.stream(method, url, params=dict(query or {}), json=body))
        except ServerUnreachableError as error:
            raise unanswered(error) from error
        yield answer


def unanswered(error: ServerUnreachableError) -> NothingToReadError:
    """What to raise where no answer came."""
    hint = "; `gradsight serve` starts one" if isinstance(error, NoServerError) else ""
    return NothingToReadError(f"{error}{hint}.")


def _json(server: str, answer: httpx.Response) -> Any:
    try:
        answer.read()
    except httpx.HTTPError as error:
        raise NothingToReadError(f"{server} broke off its answer ({error}).") from error
    if answer.status_code != 200 or not _is_json(answer):
        raise explained(server, answer)
    return answer.json()


def explained(server: str, answer: httpx.Response) -> NothingToReadError | SettingsError:
    """What to raise for an answer that is not what was asked for; its body has been read."""
    if answer.status_code == 401:
        return SettingsError(f"{server} wants its token: --token, or GRADSIGHT_TOKEN.")
    body = answer.json() if _is_json(answer) else None
    if not isinstance(body, dict) or "detail" not in body:
        return NothingToReadError(f"{server} does not answer as Gradsight: {answer.status_code} {answer.text[:200]}")
    return (SettingsError if answer.status_code == 422 else NothingToReadError)(str(body["detail"]))


def _is_json(answer: httpx.Response) -> bool:
    return str(answer.headers.get("content-type", "")).startswith("application/json")
