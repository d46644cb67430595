"""The page's files, the API's docs, health: what a browser and an operator find, under the security headers."""

import gzip
import hashlib
import json
import posixpath
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import OpenAPI
from playwright.sync_api import Browser

from gradsight_server.api.answers import CONTENT_SECURITY_POLICY
from gradsight_server.assets import Assets, find_package_file, find_web
from gradsight_server.store.retention import Keep, sweep
from tests.server.api.kit import BATCHES, RUN, Running, running, wait_until

PATHS = (
    "/",
    f"/runs/{RUN}",
    "/docs",
    "/api/v1/runs",
    "/healthz",
    "/nope",
    "/openapi.json",
    "/favicon.ico",
    "/static/x/y",
)


def addresses(server: Running) -> list[str]:
    """Every address the page itself names."""
    page = server.client.get("/").text
    return re.findall(r'(?:href|src|content)="(/static/[^"]+)"', page)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_security_headers(server: Running, path: str) -> None:
    headers = server.client.get(path).headers
    policy = headers["content-security-policy"]
    for part in (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
    ):
        assert part in policy.split("; ")
    frames = policy.partition("frame-ancestors ")[2].split()
    assert frames[0] == "'self'"
    assert {frame.split("//")[1] for frame in frames[1:]} == {"localhost:*", "127.0.0.1:*"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_errors_before_any_route_have_them_too(server: Running) -> None:
    answer = server.client.get("/", headers={"Host": "evil.example"})
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_the_page_names_hashed_files_that_are_there(server: Running) -> None:
    found = addresses(server)
    assert any(address.endswith("/plotly.min.js") for address in found)
    assert any(address.endswith("/main.js") for address in found)
    for address in found:
        answer = server.client.get(address)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"].split(";")[0] in ("text/javascript", "text/css", "image/svg+xml")


def preloads(server: Running, path: str) -> tuple[list[str], list[str]]:
    """Modules and scripts that the page names before anything asks for them."""
    links = re.findall(r'<link rel="(modulepreload|preload)"[^>]* href="(/static/[^"]+)"', server.client.get(path).text)
    return [url for kind, url in links if kind == "modulepreload"], [url for kind, url in links if kind == "preload"]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/", "run-list.js"),
        (f"/runs/{RUN}", "run-page.js"),
        ("/compare", "compare-page.js"),
        ("/alerts", "alerts-page.js"),
        ("/settings", "settings-page.js"),
    ],
)
def test_each_page_names_its_own_modules_at_once(server: Running, path: str, part: str) -> None:
    named, _ = preloads(server, path)
    assert len(named) == len(set(named))
    names = {posixpath.basename(name) for name in named}
    assert names >= {"main.js", "top-bar.js", "en.js", part}
    pages = {"run-list.js", "run-page.js", "compare-page.js", "alerts-page.js", "settings-page.js"}
    assert names & pages == {part}
    for name in named:
        for address in re.findall(r"""^import\b[^"']*["'](\.[^"']+)["']""", server.client.get(name).text, re.MULTILINE):
            assert posixpath.normpath(posixpath.join(posixpath.dirname(name), address)) in named


def test_only_the_page_of_a_run_names_plotly_before_it_is_asked_for(server: Running) -> None:
    _, of_run = preloads(server, f"/runs/{RUN}")
    _, of_list = preloads(server, "/")
    assert [posixpath.basename(url) for url in of_run] == ["plotly.min.js"]
    assert of_list == []


def test_an_address_that_leads_nowhere_is_the_page_to_a_person_and_an_error_to_a_program(server: Running) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    shown = server.client.get("/nope", headers=browser)
    assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "/main.js" in shown.text
    for path in ("/runs/", "/runs/a/b", "/runs/a%2Fb", "/runs/%E0%A4%A", "/compare/x"):
        assert server.client.get(path, headers=browser).status_code == 404, path
    for path in ("/compare/", "/alerts/", "/settings/", f"/runs/{RUN}/"):
        assert server.client.get(path, headers=browser).status_code == 200, path
    asked = (("/nope", {"Accept": "*/*"}), ("/api/v1/nope", browser), (f"/api/v1/runs/{'f' * 32}", browser))
    for path, headers in asked:
        answer = server.client.get(path, headers=headers)
        assert (answer.status_code, answer.json().keys()) == (404, {"error", "detail"})
    assert server.client.post("/nope", headers=browser).json()["error"] == "NotFound"


@pytest.mark.parametrize("path", ["/", f"/runs/{RUN}", "/api/v1/runs", "/login"])
def test_what_may_change_is_not_kept(server: Running, path: str) -> None:
    assert server.client.get(path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/docs"])
def test_head_is_answered_where_checks_use_it(server: Running, path: str) -> None:
    answer = server.client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_plotly_is_the_packages_own_file_compressed_behind_a_hint_to_compile_it(server: Running) -> None:
    (address,) = {address for address in addresses(server) if address.endswith("/plotly.min.js")}
    original = find_package_file("plotly", "package_data", "plotly.min.js").read_bytes()
    with server.client.stream("GET", address, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        sent = b"".join(answer.iter_raw())
    assert len(sent) < len(original) / 3
    plain = server.client.get(address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert hashlib.sha256(gzip.decompress(sent)).digest() == hashlib.sha256(plain.content).digest()
    assert plain.content == b"//# allFunctionsCalledOnLoad\n" + original


@pytest.mark.parametrize(
    "name", ["../pyproject.toml", "%2e%2e/pyproject.toml", "/etc/passwd", ".gitignore", "nope.js", ""]
)
def test_nothing_but_the_pages_own_files_is_served(server: Running, name: str) -> None:
    folder = next(address for address in addresses(server) if address.endswith("/main.js")).removesuffix("main.js")
    assert server.client.get(folder + name).status_code in (404, 422)


def test_an_old_hash_is_not_served_by_a_new_file(server: Running) -> None:
    assert server.client.get("/static/0123456789abcdef/main.js").status_code == 404


def test_an_edited_file_gets_a_new_address(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("one")
    assets = Assets.of_folder(tmp_path)
    before = assets.hash()
    assert assets.hash() == before
    (tmp_path / "a.js").write_text("three")
    (tmp_path / "b.js").write_text("new")
    after = assets.hash()
    assert after != before
    assert assets.get(before, "a.js") is None
    found = assets.get(after, "a.js")
    assert found is not None
    assert found.body(accepts_gzip=False) == (b"three", False)
    assert assets.get(after, "b.js") is not None


def test_json_is_compressed_for_who_accepts_it(server: Running) -> None:
    answer = server.client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["info"]["title"] == "Gradsight"


def test_the_web_folder_of_a_checkout_is_the_repositorys_own() -> None:
    assert find_web() == Path(__file__).parents[3] / "web"


def test_the_docs_load_under_the_policy_from_this_server_alone(server: Running, browser: Browser) -> None:
    with browser.new_page() as page:
        problems: list[str] = []
        foreign: list[str] = []
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith((server.url, "data:")) else foreign.append(asked.url)
        )
        page.goto(f"{server.url}/docs")
        page.get_by_role("heading", name="Gradsight").wait_for()
        page.locator("#operations-ingest-post_batch_api_v1_runs__run_id__streams__stream__batches_post").get_by_role(
            "button"
        ).first.click()
        page.get_by_text("grad_norm_before_clip").first.wait_for()
        assert problems == []
        assert foreign == []


def references(node: Any) -> set[str]:
    match node:
        case {"$ref": str(target), **rest}:
            return {target} | references(rest)
        case dict():
            return set().union(*map(references, node.values())) if node else set()
        case list():
            return set().union(*map(references, node)) if node else set()
    return set()


def test_the_openapi_document_is_valid_and_knows_the_wire(server: Running) -> None:
    document = server.client.get("/openapi.json").json()
    OpenAPI.model_validate(document)
    schemas = document["components"]["schemas"]
    for target in references(document):
        assert target.removeprefix("#/components/schemas/") in schemas
    post = document["paths"][BATCHES.replace(RUN, "{run_id}").replace("main", "{stream}")]["post"]
    body = post["requestBody"]["content"]
    assert body.keys() == {"application/json", "application/msgpack"}
    assert body["application/json"]["schema"] == {"$ref": "#/components/schemas/Batch"}
    assert "grad_norm_before_clip" in schemas["Batch"]["properties"]
    assert "allow_control" in schemas["StreamRecord"]["properties"]
    assert not document["paths"]["/api/v1/runs/{run_id}"]["put"]["requestBody"]["required"]
    for path, operations in document["paths"].items():
        assert path.startswith("/api/v1/")
        for operation in operations.values():
            assert "4XX" in operation["responses"]
            assert operation["description"]


def test_documented_examples_are_taken(server: Running) -> None:
    document = server.client.get("/openapi.json").json()
    path = BATCHES.replace(RUN, "{run_id}").replace("main", "{stream}")
    server.put()
    for example in document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"].values():
        server.send(example["value"])
    server.client.delete(f"/api/v1/runs/{RUN}")


def test_health_is_told_and_metrics_are_counted(run_server: Running) -> None:
    for path in ("/healthz", "/readyz"):
        assert run_server.checked(run_server.client.get(path)) == {"status": "ok"}
    before = metrics(run_server)
    run_server.send({"step": [0, 1], "loss": [1.0, 2.0]})
    with run_server.live(RUN) as events:
        next(events)
        after = metrics(run_server)
    assert after["gradsight_ingested_steps_total"] - before["gradsight_ingested_steps_total"] == 2
    assert after["gradsight_ingested_bytes_total"] > before["gradsight_ingested_bytes_total"]
    assert after["gradsight_live_subscribers"] == 1
    wait_until(lambda: metrics(run_server)["gradsight_writer_queue_depth"] == 0)  # background work may be in it
    assert after["gradsight_sealed_steps_total"] == before["gradsight_sealed_steps_total"]
    assert after['gradsight_requests_total{endpoint="post_batch",method="POST",status="200"}'] >= 1


def test_steps_that_come_too_late_for_a_sealed_part_are_counted(run_server: Running) -> None:
    num_steps = 3000
    run_server.send({"step": list(range(num_steps)), "loss": [1.0] * num_steps})
    assert sweep(run_server.app.state.database, Keep(steps=1000), now_s=0.0)
    before = metrics(run_server)["gradsight_sealed_steps_total"]
    answer = run_server.send({"step": [5, num_steps], "loss": [1.0, 1.0]})
    assert answer["accepted_steps"] == 1
    assert metrics(run_server)["gradsight_sealed_steps_total"] - before == 1


def metrics(server: Running) -> dict[str, float]:
    answer: httpx.Response = server.client.get("/metrics")
    lines = (line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_a_closed_database_is_not_ready(url: str) -> None:
    with running(db=url) as server:
        server.app.state.database.close()
        answer = server.client.get("/readyz")
        assert (answer.status_code, answer.json()["error"]) == (503, "DatabaseClosed")
        assert server.client.get("/healthz").status_code == 200


def test_json_of_an_answer_is_utf8(run_server: Running) -> None:
    run_server.put(name="ñ ✓")
    assert json.loads(run_server.client.get(f"/api/v1/runs/{RUN}").content.decode())["name"] == "ñ ✓"
