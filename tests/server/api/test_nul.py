"""PostgreSQL has no NUL in a text: one in an address or a body is a 422 that names it, on either database."""

from typing import Any

import msgspec
import pytest

from gradsight_server.store import cursors
from tests.server.api.kit import RUN, Running

BODIES: list[tuple[str, str, dict[str, Any], str]] = [
    ("PATCH", "", {"name": "a\0b"}, "name"),
    ("PATCH", "", {"notes": "a\0b"}, "notes"),
    ("PATCH", "", {"tags": ["a\0b"]}, "tags"),
    ("PUT", "", {"project": "a\0b"}, "project"),
    ("PUT", "/control", {"max_norm": 1.0, "stream": "a\0b"}, "stream"),
    ("PUT", "/control", {"max_norm": 1.0, "pattern": "a\0b"}, "pattern"),
    ("PUT", "/control", {"max_norm": 1.0, "by": "a\0b"}, "by"),
    ("POST", "/alerts/1/acknowledge", {"by": "a\0b"}, "by"),
    ("POST", "/streams/main/batches", {"events": [{"kind": "a\0b"}]}, "kind"),
]


def asked_for(server: Running) -> list[tuple[str, str, str, str]]:
    """(method, path, where, name) of every text in an address of the API, as it documents itself."""
    paths = server.client.get("/openapi.json").json()["paths"]
    found = []
    for path, methods in paths.items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", []):
                kinds = [parameter["schema"], *parameter["schema"].get("anyOf", [])]
                if parameter["in"] in ("path", "query") and any(kind.get("type") == "string" for kind in kinds):
                    found.append((method.upper(), path, parameter["in"], parameter["name"]))
    return [asked for asked in found if asked[1].startswith("/api/")]


def test_a_nul_in_any_text_of_an_address_is_named(run_server: Running) -> None:
    texts = asked_for(run_server)
    assert {("GET", "/api/v1/alerts", "query", "project"), ("GET", "/api/v1/runs", "query", "q")} <= set(texts)
    for method, path, where, name in texts:
        url, query = path, {}
        if where == "path":
            url = url.replace(f"{{{name}}}", "a%00b")
        else:
            query = {name: "a\0b"}
        for known, value in (("run_id", RUN), ("stream", "main"), ("alert_id", "1"), ("step", "1"), ("name", "norm")):
            url = url.replace(f"{{{known}}}", value)
        answer = run_server.client.request(method, url, params=query or None, json={})
        said = answer.json()["detail"]
        assert answer.status_code == 422, (method, path, name, said)
        assert name.replace("_", " ") in said, (method, path, name, said)
        assert "a\\x00b" in said, (method, path, name, said)


@pytest.mark.parametrize(("method", "path", "body", "name"), BODIES)
def test_a_nul_in_a_body_is_named(run_server: Running, method: str, path: str, body: dict[str, Any], name: str) -> None:
    answer = run_server.client.request(method, f"/api/v1/runs/{RUN}{path}", json=body)
    assert (answer.status_code, name in answer.json()["detail"]) == (422, True), answer.text
    assert "a\\x00b" in answer.json()["detail"]


def test_a_nul_within_a_cursor_or_a_rule_is_refused_too(run_server: Running) -> None:
    for path, cursor in (
        ("runs", cursors.encode(1.0, "a\0b")),
        ("alerts", cursors.encode(1.0, "a\0b", 1)),
        (f"runs/{RUN}/events", cursors.encode(1.0, "a\0b")),
    ):
        answer = run_server.client.get(f"/api/v1/{path}", params={"cursor": cursor})
        assert (answer.status_code, "cursor" in answer.text) == (422, True), answer.text
    rules = msgspec.json.encode({"rules": [{"kind": "a\0b"}]})
    answer = run_server.client.put("/api/v1/alert-rules", content=rules, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


def test_a_config_may_hold_one(run_server: Running) -> None:
    run_server.put(config={"delimiter": "a\0b"})
    assert run_server.get(f"runs/{RUN}")["config"] == {"delimiter": "a\0b"}
