"""Who may come in: token, cookie, host and site; and what stays open."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser
from pydantic import SecretStr

from gradsight_server.app import create_app
from gradsight_server.auth import COOKIE_LIFETIME_S, Token, safe_next
from gradsight_server.errors import SettingsError
from gradsight_server.hosts import Hosts, host_name
from gradsight_server.settings import Settings
from tests.server.api.kit import BATCHES, RUN, Running, running

SECRET = "s3cret-ö"
API_PATHS = ("/api/v1/runs", f"/api/v1/runs/{RUN}", "/api/v1/live", "/api/v1/nope", "/metrics", "/openapi.json")
PAGES = ("/", f"/runs/{RUN}", "/docs", "/nope")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a token."""
    with running(tmp_path_factory.mktemp("closed"), token=f" {SECRET}\n") as found:
        yield found


def authorization(value: str) -> dict[bytes, bytes]:
    """As bytes: a token need not be ASCII, and httpx would refuse it as text."""
    return {b"Authorization": value.encode()}


def bearer(secret: str) -> dict[bytes, bytes]:
    return authorization(f"Bearer {secret}")


def log_in(server: Running, **fields: str) -> httpx.Response:
    with httpx.Client(base_url=server.url, trust_env=False) as browser:
        return browser.post("/login", data={"token": SECRET} | fields)


@pytest.mark.parametrize("path", API_PATHS)
def test_programs_without_the_token_hear_401(closed: Running, path: str) -> None:
    for headers in ({}, bearer("wrong"), bearer(SECRET[:-1]), authorization("Basic eDp5"), authorization("Bearer")):
        answer = closed.client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_is_written_without_the_token(closed: Running, method: str) -> None:
    for path in (f"/api/v1/runs/{RUN}", BATCHES, "/", "/docs"):
        assert closed.client.request(method, path).status_code == 401


def test_programs_with_the_token_come_in(closed: Running) -> None:
    for headers in (bearer(SECRET), authorization(f"bearer  {SECRET}")):
        assert closed.client.get("/api/v1/runs", headers=headers).status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_people_are_led_to_the_login_and_back(closed: Running, path: str) -> None:
    answer = closed.client.get(f"{path}?a=1&b=%20")
    assert answer.status_code == 303
    where = urlsplit(answer.headers["location"])
    assert where.path == "/login"
    form = closed.client.get(answer.headers["location"])
    assert f'value="{path}?a=1&amp;b=%20"' in form.text
    assert "<script" not in form.text


def test_what_a_login_page_and_a_health_check_need_is_open(closed: Running) -> None:
    for path in ("/healthz", "/readyz", "/login", "/favicon.ico"):
        assert closed.client.get(path).status_code == 200
    page = closed.client.get("/", headers=bearer(SECRET)).text
    script = page.partition('src="')[2].partition('"')[0]
    assert closed.client.get(script).status_code == 200


def test_the_cookie_lets_a_browser_in_until_it_logs_out(closed: Running) -> None:
    with httpx.Client(base_url=closed.url, trust_env=False) as browser:
        answer = browser.post("/login", data={"token": f" {SECRET} ", "next": f"/runs/{RUN}?x=1"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{RUN}?x=1")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Secure" not in cookie
        assert "s3cret" not in cookie
        assert browser.get("/api/v1/runs").status_code == 200
        assert browser.get("/").status_code == 200
        browser.post("/logout")
        assert browser.get("/api/v1/runs").status_code == 401


def test_over_https_the_cookie_is_secure(closed: Running) -> None:
    answer = closed.client.post("/login", data={"token": SECRET}, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["set-cookie"]
    closed.client.cookies.clear()


@pytest.mark.parametrize("token", ["wrong", "", "s3cret-o", "\ud83d\ude00", "x" * 5000])
def test_a_wrong_token_is_told_so_and_gets_no_cookie(closed: Running, token: str) -> None:
    answer = log_in(closed, token=token.encode("utf-16", "surrogatepass").decode("utf-16"))
    assert answer.status_code == 401
    assert "not this server" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "/\t/evil.example", "evil", ""]
)
def test_the_login_leads_to_no_other_site(closed: Running, target: str) -> None:
    assert safe_next(target) == "/"
    assert log_in(closed, next=target).headers["location"] == "/"
    assert 'name="next" type="hidden" value="/"' in closed.client.get("/login", params={"next": target}).text


def test_markup_in_next_stays_text(closed: Running) -> None:
    page = closed.client.get("/login", params={"next": '/"><script>alert(1)</script>'}).text
    assert "<script>" not in page


def test_without_a_token_the_login_leads_on(server: Running) -> None:
    assert server.client.get("/login?next=/docs").headers["location"] == "/docs"
    assert server.client.post("/login", data={"next": "/docs"}).headers["location"] == "/docs"


def test_a_cookie_expires_and_cannot_be_forged() -> None:
    token, now_s = Token(SECRET), 1e9
    value = token.cookie(now_s)
    assert token.is_cookie(value, now_s + COOKIE_LIFETIME_S - 1)
    assert not token.is_cookie(value, now_s + COOKIE_LIFETIME_S + 1)
    assert not Token("other").is_cookie(value, now_s)
    expires, _, signature = value.partition(".")
    for forged in (
        "",
        ".",
        signature,
        f"{int(expires) + 1}.{signature}",
        f"²{expires}.{signature}",
        f"{expires}.é",
        "9" * 5000,
    ):
        assert not token.is_cookie(forged, now_s)


def test_two_servers_on_one_machine_keep_their_cookies_apart() -> None:
    assert Token("a").cookie_name != Token("b").cookie_name


@pytest.mark.parametrize(
    "path", ["/static/../api/v1/runs", "/static/%2e%2e/api/v1/runs", "//api/v1/runs", "/healthz/../api"]
)
def test_no_bent_path_comes_in(closed: Running, path: str) -> None:
    done = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "--path-as-is", closed.url + path],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout in ("303", "404")


@pytest.mark.parametrize("host", ["localhost:1/static/", "localhost/login?", "127.0.0.1#", "user@localhost", ""])
def test_no_bent_host_header_comes_in(closed: Running, host: str) -> None:
    answer = closed.client.get("/api/v1/runs", headers={"Host": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil"]
)
def test_a_rebound_name_is_turned_away(server: Running, host: str) -> None:
    for path in ("/api/v1/runs", "/", "/healthz", "/static/x/y"):
        answer = server.client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]) == (403, "HostNotAllowed")
        assert "--allowed-host" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1", "127.1.2.3:80", "[::1]:8420", "localhost."])
def test_loopback_names_are_ours(server: Running, host: str) -> None:
    assert server.client.get("/healthz", headers={"Host": host}).status_code == 200


def test_more_names_are_ours_by_option_and_addresses_where_all_are_listened_to() -> None:
    assert Hosts("127.0.0.1", ["grad.example", "*.lan"]).allow("GRAD.example:443")
    assert Hosts("127.0.0.1", ["grad.example", "*.lan"]).allow("box.lan")
    assert not Hosts("127.0.0.1", ["grad.example"]).allow("x.grad.example")
    assert Hosts("0.0.0.0").allow("10.1.2.3:8420")
    assert Hosts("::").allow("[fe80::1]:8420")
    assert not Hosts("0.0.0.0").allow("evil.example")
    assert not Hosts("10.1.2.3").allow("10.1.2.4")
    assert Hosts("10.1.2.3").allow("10.1.2.3")
    assert host_name("[::1") == host_name("a b") == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        *({"Origin": f"http://{broken}"} for broken in ("[::1", "[", "]", "a]b", "[::1%eth0", "[v1.x]", "")),
        {"Origin": "//[::1"},
        {"Origin": ""},
    ],
)
def test_another_sites_page_may_not_write(run_server: Running, headers: dict[str, str]) -> None:
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        answer = run_server.client.request(method, f"/api/v1/runs/{RUN}", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (403, "CrossSite")
    assert run_server.client.get(f"/api/v1/runs/{RUN}", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "value", ["http://[::1", "[", "\xff", ";", '="', "bytes=-", "9" * 5000, 'W/"', "a/b; charset*=x'y'%ff"]
)
@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Origin",
        "Referer",
        "Content-Type",
        "Content-Encoding",
        "Accept",
        "Accept-Encoding",
        "Authorization",
        "Cookie",
        "Range",
        "If-Modified-Since",
        "If-None-Match",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "Last-Event-ID",
    ],
)
def test_no_header_breaks_the_server(run_server: Running, name: str, value: str) -> None:
    headers = {b"Content-Type": b"application/json"} | {name.encode(): value.encode("latin-1")}
    for method, path in (("POST", BATCHES), ("GET", "/api/v1/runs/"), ("GET", "/"), ("POST", "/login")):
        assert run_server.client.request(method, path, headers=headers, content=b"{}").status_code < 500


def test_our_own_page_may_write(run_server: Running) -> None:
    host = run_server.url.removeprefix("http://")
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": f"http://{host}"}):
        assert run_server.client.put(f"/api/v1/runs/{RUN}", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_other_machines_are_served_with_a_token_or_a_spoken_wish_only(host: str) -> None:
    with pytest.raises(SettingsError, match="GRADSIGHT_TOKEN"):
        create_app(Settings(host=host))
    create_app(Settings(host=host, token=SecretStr("x")))
    create_app(Settings(host=host, insecure_no_auth=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    create_app(Settings(host=host))


def test_the_clock_of_a_cookie_is_the_wall_clock(closed: Running) -> None:
    token = Token(SECRET)
    for age_s, status in ((0, 200), (COOKIE_LIFETIME_S + 60, 401)):
        cookie = f"{token.cookie_name}={token.cookie(time.time() - age_s)}"
        assert closed.client.get("/api/v1/runs", headers={"Cookie": cookie}).status_code == status


def test_an_allowed_host_is_let_in(tmp_path: Path) -> None:
    with running(tmp_path, allowed_hosts=("grad.example",)) as server:
        for host, status in (("grad.example:443", 200), ("other.example", 403)):
            assert server.client.get("/healthz", headers={"Host": host}).status_code == status
        # A proxy in front may hand on its own name as Host; the browser still says where the page came from.
        headers = {"Origin": "https://grad.example"}
        assert server.client.put(f"/api/v1/runs/{RUN}", headers=headers).status_code == 200


def test_a_person_signs_in_and_lands_where_they_wanted_to_go(closed: Running, browser: Browser) -> None:
    with browser.new_page() as page:
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"{closed.url}/runs/{RUN}?a=1")
        page.get_by_label("Token").fill(SECRET)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{closed.url}/runs/{RUN}?a=1")
        assert page.evaluate("document.cookie") == "", "the page's scripts cannot read it"
        assert page.evaluate("fetch('/api/v1/runs').then((answer) => answer.status)") == 200
        assert [problem for problem in problems if "Content Security Policy" in problem] == []
