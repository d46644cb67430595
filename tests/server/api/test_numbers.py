"""Numbers that no column holds, wherever an address or a cursor takes one, are a 422 that names it, never a 500."""

import base64
import json
from typing import Any

import httpx
import pytest

from tests.server.api.kit import RUN, Running

INTEGERS = (2**31, 2**40, 2**63 - 1, 2**63, 2**64, 10**30, -1, -(2**63), -(2**64))
NUMBERS = (1e308, -1e308, float("nan"), float("inf"), -float("inf"), 1.5, 10**400)
WORDS = ("1e400", "-1e400", "nan", "inf", "-inf", "1e308", "0x10", "9" * 5000)
PATHS = {"run_id": RUN, "stream": "main", "alert_id": "1", "step": "1", "name": "norm"}
LISTS = ("runs", "runs?sort=severity", "runs?sort=-severity", "runs?sort=name", "alerts", f"runs/{RUN}/alerts")


def numbers_of(server: Running) -> list[tuple[str, str, str, str]]:
    """(method, path, where, name) of every number in an address of the API, as it documents itself."""
    found = []
    for path, methods in server.client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                kinds = [parameter["schema"], *parameter["schema"].get("anyOf", [])]
                if any(kind.get("type") in ("integer", "number") for kind in kinds):
                    found.append((method.upper(), path, parameter["in"], parameter["name"]))
    return [asked for asked in found if asked[1].startswith("/api/")]


def test_no_number_in_an_address_breaks_the_server(run_server: Running) -> None:
    run_server.send({"step": [0, 1], "loss": [1.0, 2.0], "grad_norm_before_clip": [1.0, 2.0]})
    numbers = numbers_of(run_server)
    wanted = {"first_step", "last_step", "attempt", "points", "limit", "alert_id", "step", "after", "max_norm"}
    assert wanted <= {name for *_, name in numbers}
    for method, path, where, name in numbers:
        for value in (*INTEGERS, *WORDS):
            url, query, headers = path, {"clip": "1.0", "runs": RUN}, {}
            if where == "path":
                url = url.replace(f"{{{name}}}", str(value))
            elif where == "query":
                query[name] = str(value)
            else:
                headers[name] = str(value)
            for known, text in PATHS.items():
                url = url.replace(f"{{{known}}}", text)
            with run_server.client.stream(method, url, params=query, headers=headers) as answer:
                assert answer.status_code < 500, (method, path, name, value)


def page_after(server: Running, path: str, key: Any) -> httpx.Response:
    """What a list answers to a cursor that holds this key."""
    cursor = base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")
    return server.client.get(f"/api/v1/{path}{'&' if '?' in path else '?'}cursor={cursor}")


@pytest.mark.parametrize("path", [*LISTS, f"runs/{RUN}/events"])
def test_a_number_in_a_cursor_that_no_column_holds_is_refused(run_server: Running, path: str) -> None:
    """In any place of a cursor; a time may be as large as a number can be."""
    sort = path.partition("sort=")[2]
    for number in (*INTEGERS, *NUMBERS):
        for key in (
            [number, RUN],
            [1.0, RUN, number],
            [number, RUN, 1],
            ["-started_at_s", number, RUN],
            [sort, number, RUN],
            [sort, number, 1.0, RUN],
            [sort, 1, number, RUN],
        ):
            answer = page_after(run_server, path, key)
            assert answer.status_code in (200, 422), (key, answer.text)
            assert answer.status_code == 200 or "cursor must be a next_cursor" in answer.json()["detail"]


def test_an_integer_beyond_what_there_can_be_names_the_cursor(run_server: Running) -> None:
    of_alerts = [(path, [1.0, RUN, number]) for path in LISTS[-2:] for number in (0, *INTEGERS)]
    sorts = ("severity", "-severity")
    of_runs = [(f"runs?sort={sort}", [sort, number, 1.0, RUN]) for sort in sorts for number in (-2, 4, 2**15)]
    for path, key in of_alerts + of_runs:
        answer = page_after(run_server, path, key)
        assert (answer.status_code, "cursor" in answer.json()["detail"]) == (422, True), (path, key)
