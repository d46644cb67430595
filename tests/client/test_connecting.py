"""A run's way to its server: whatever the environment says of it, training goes on, and one line says what is so."""

import logging
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import gradsight
from gradsight import run as run_module
from gradsight import wire
from gradsight.errors import ConfigurationError, ServerRefusedError, ServerUnreachableError
from gradsight.transport import HttpTransport
from tests.client.conftest import NOBODY, rows, sent

ELSEWHERE = "http://192.0.2.1:8420"
"""Of a network that is for documentation only; the proxies below are asked first."""
KEY_AND_CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgWqvEOkOGj0vL8khW
GND8zNnMd3Frmfmj9+uRbPeqoKChRANCAAQOz5HUhLAxmki8KKvNtYnfZzrMMm6r
fKgdoCPWxDrRRMrVWBUEjNY6I0h+2bpH8Ff6b5PE6yaDtcaMAB0rKe7e
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBejCCASCgAwIBAgIUXY24TUUk4ncdUNQx3yoUGSX8pbEwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI0MDEwMTAwMDAwMFoYDzIxMjQwMTAx
MDAwMDAwWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQOz5HUhLAxmki8KKvNtYnfZzrMMm6rfKgdoCPWxDrRRMrVWBUEjNY6
I0h+2bpH8Ff6b5PE6yaDtcaMAB0rKe7eo04wTDAPBgNVHRMBAf8EBTADAQH/MBoG
A1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAdBgNVHQ4EFgQUr6S+HCcJIZQZpeCk
MvyvOwouwEIwCgYIKoZIzj0EAwIDSAAwRQIgVTGSg29VlzOr/yc8ZIzo/Bgnvjl8
Et/56NbWms81sWgCIQCIzZIft1sTreOOPwwap/k+Xie15uPPEtNG5j7Tv+TjIQ==
-----END CERTIFICATE-----
"""
"""Self-signed, of localhost and 127.0.0.1, from 2024 to 2124; it guards nothing."""


@pytest.fixture(autouse=True)
def plain_environment(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def greeting_of_a_training(tmp_path: Path, capfd: pytest.CaptureFixture[str], **arguments: Any) -> str:
    """What a training of ten steps says, in one line; none of its steps is lost."""
    with gradsight.Run(spool_dir=tmp_path, **arguments) as run:
        for step in range(10):
            run.log_step(step, loss=1.0)
    (line,) = capfd.readouterr().err.splitlines()
    assert rows(sent(run))["step"] == list(range(10))
    assert f"; spooling to {tmp_path}" in line
    return line.removeprefix("gradsight: ").partition("; spooling")[0]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        pytest.param("ALL_PROXY", "socks5://127.0.0.1:1", "needs more: pip install 'httpx[socks]'", id="SOCKS"),
        pytest.param("HTTP_PROXY", "htp://x", "cannot be used: it is no address like http://proxy:8080", id="scheme"),
        pytest.param("http_proxy", "me:secret@foo:bar", "cannot be used: it is no address like", id="port"),
        pytest.param("HTTPS_PROXY", b"http://\xff", "cannot be used: it is no address like", id="bytes"),
        pytest.param("NO_PROXY", "[::1", "cannot be used: something in it is no host", id="NO_PROXY"),
    ],
)
def test_a_wrong_proxy_setting_is_named_and_ends_no_training(
    name: str,
    value: str | bytes,
    told: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "ALL_PROXY":
        monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(name, os.fsdecode(value))
    with caplog.at_level(logging.WARNING, "gradsight"):
        said = greeting_of_a_training(tmp_path, capfd, server=ELSEWHERE)
    assert said.startswith(f"{name} ")
    assert told in said
    assert "secret" not in said
    assert [record.getMessage() for record in caplog.records] == [f"gradsight cannot send, spooling: {said}"]


def test_of_a_proxy_setting_a_server_on_this_machine_hears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "htp://x")
    with pytest.raises(ServerUnreachableError, match=f"no server answers at {NOBODY}"):
        HttpTransport(NOBODY).put_run("a" * 32, b"")


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", f"http://{'a' * 300}", "http://xn--/a"])
def test_a_proxy_that_is_not_there_is_told(
    proxy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    said = greeting_of_a_training(tmp_path, capfd, server=ELSEWHERE)
    assert said == f"the proxy on the way to {ELSEWHERE} does not answer"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("SSL_CERT_FILE", None, "No such file or directory"),
        ("SSL_CERT_FILE", "rubbish", "there is no certificate in it"),
        ("SSLKEYLOGFILE", None, "No such file or directory"),
    ],
)
def test_certificates_that_cannot_be_read_are_named_and_end_no_training(
    name: str,
    content: str | None,
    told: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "folder" / "file"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content)
    monkeypatch.setenv(name, str(path))
    said = greeting_of_a_training(tmp_path / "spool", capfd, server="https://127.0.0.1:9")
    assert said == f"{name} cannot be used: {told}"


class Taking(BaseHTTPRequestHandler):
    """Answers every PUT with the server's `status`."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests look at what is on stderr."""


@contextmanager
def answering(status: int = 200, certificate: Path | None = None) -> Iterator[int]:
    """The port of a server that is none of ours; by https where it has a certificate."""
    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        server.status = status  # type: ignore[attr-defined]
        server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # who refuses leaves
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.pem"
    path.write_text(KEY_AND_CERTIFICATE)
    return path


def test_a_certificate_that_is_refused_is_told_with_its_reason(
    certificate: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with answering(certificate=certificate) as port:
        said = greeting_of_a_training(tmp_path, capfd, server=f"https://127.0.0.1:{port}")
    told = said.replace("self signed", "self-signed")  # as older OpenSSL writes it
    assert told == f"the certificate of https://127.0.0.1:{port} is refused: self-signed certificate"


def test_a_certificate_named_by_the_environment_is_trusted_on_this_machine_too(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with answering(certificate=certificate) as port:
        transport = HttpTransport(f"https://127.0.0.1:{port}")
        transport.put_run("a" * 32, b"")
        transport.close()


def test_https_of_a_server_without_it_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with answering() as port:
        said = greeting_of_a_training(tmp_path, capfd, server=f"https://127.0.0.1:{port}")
    assert said == f"https://127.0.0.1:{port} does not answer by https"


def test_another_service_is_told_by_its_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with answering(502) as port:
        said = greeting_of_a_training(tmp_path, capfd, server=f"http://127.0.0.1:{port}")
    assert said == f"http://127.0.0.1:{port} answered 502 Bad Gateway"


def test_a_server_that_hangs_is_told_as_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "FIRST_CONTACT_S", 0.25)
    monkeypatch.setattr(run_module, "FINISH_WITHIN_S", 0.25)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system takes the connection, and nobody reads it
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = greeting_of_a_training(tmp_path, capfd, server=server)
    assert said == f"no answer from {server} within 0.25 s"


def test_what_was_wrong_around_a_transport_may_be_mended_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", "/nowhere/at/all")
    transport = HttpTransport("https://127.0.0.1:9")
    with pytest.raises(ServerUnreachableError, match="SSLKEYLOGFILE"):
        transport.put_run("a" * 32, b"")
    monkeypatch.delenv("SSLKEYLOGFILE")
    with pytest.raises(ServerUnreachableError, match="no server answers"):
        transport.put_run("a" * 32, b"")
    transport.close()


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8420",
        "",
        7,
        "http://",
        "http://a:b",
        "http://a:70000",
        "http://a b",
        "http://a..b",
        f"http://{'a' * 300}",
        "http://xn--/a",
        "http://\udcff",
        "http://a?b=c",
    ],
)
def test_an_address_that_no_request_can_have_is_refused_at_construction(
    address: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"^server must be an address like"):
        gradsight.Run(server=address, mode="disabled")
    if isinstance(address, str):
        monkeypatch.setenv("GRADSIGHT_SERVER", address)
        with pytest.raises(ConfigurationError, match=r"^GRADSIGHT_SERVER must be an address like"):
            gradsight.Run(mode="disabled")


@pytest.mark.parametrize("address", ["http://a_b:1/x", "https://ü.example", "http://[::1]:1", " http://a:1/\n"])
def test_addresses_as_people_have_them_are_taken(address: str) -> None:
    assert gradsight.Run(server=address, mode="disabled").server == address.strip().rstrip("/")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (7, "must be a text, got a int"),
        ("my\udcffword", "must be text in UTF-8"),
        ("my\nword", "must be one line without control characters"),
    ],
)
def test_a_token_that_no_request_can_have_is_refused_and_not_shown(
    token: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=f"^token {told}") as refused:
        gradsight.Run(token=token, mode="disabled")
    assert "word" not in str(refused.value)
    if isinstance(token, str):
        monkeypatch.setenv("GRADSIGHT_TOKEN", token)
        with pytest.raises(ConfigurationError, match=f"^GRADSIGHT_TOKEN {told}"):
            gradsight.Run(mode="disabled")


def test_a_stream_that_no_server_takes_is_refused_before_it_is_sent() -> None:
    transport = HttpTransport(NOBODY)
    with pytest.raises(ServerRefusedError, match="stream must be a text") as refused:
        transport.post_batch("a" * 32, "..", wire.encode(wire.Batch()))
    assert refused.value.status == 422
