"""Asking a server from the command line; where no answer comes, one line says why."""

from collections.abc import Mapping
from typing import Any

import httpx

from gradsight.transport import LOOPBACK
from gradsight_server.errors import NothingToReadError, SettingsError


def get_json(server: str, token: str | None, path: str, query: Mapping[str, Any] | None = None) -> Any:
    """The answer to GET /api/v1/{path}.

    Raises:
        NothingToReadError: no server answers, or not as Gradsight, or it does not have what is asked for.
        SettingsError: the server wants a token, or refuses what it is asked.
    """
    headers = {b"Authorization": f"Bearer {token}".encode()} if token else {}  # bytes: it need not be ASCII
    try:
        url = httpx.URL(server)
        answer = httpx.get(
            f"{server.rstrip('/')}/api/v1/{path}",
            params=dict(query or {}),
            headers=headers,
            trust_env=url.host not in LOOPBACK,
            timeout=10,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NothingToReadError(f"no server answers at {server} ({error}); `gradsight serve` starts one.") from error
    if answer.status_code == 401:
        raise SettingsError(f"{server} wants its token: --token, or GRADSIGHT_TOKEN.")
    if not answer.headers.get("content-type", "").startswith("application/json"):
        raise _not_ours(server, answer)
    body = answer.json()
    if answer.status_code == 200:
        return body
    if not isinstance(body, dict) or "detail" not in body:
        raise _not_ours(server, answer)
    raise (SettingsError if answer.status_code == 422 else NothingToReadError)(str(body["detail"]))


def _not_ours(server: str, answer: httpx.Response) -> NothingToReadError:
    return NothingToReadError(f"{server} does not answer as Gradsight: {answer.status_code} {answer.text[:200]}")
