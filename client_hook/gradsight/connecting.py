"""A client for one server: the way there as the environment has it (proxies, certificates), and, where no answer comes,
why, in plain words."""

import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from gradsight import door
from gradsight.errors import GradsightError, NoServerError, ServerUnreachableError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def client(
    server: str, token: str | None, *, headers: Mapping[bytes, bytes] | None = None, timeout_s: float = 10.0
) -> httpx.Client:
    """A client that shows the token.

    Raises:
        ConfigurationError: the address or the token cannot be right.
        ServerUnreachableError: a proxy or the certificates of this environment cannot be used.
    """
    parts = urlsplit(door.server(server))
    token = door.token(token)
    shown = {b"Authorization": f"Bearer {token}".encode()} if token else {}  # bytes: it need not be ASCII
    # Reading all certificates takes 20 ms of the training's interpreter; plain http has no use for them.
    verify = _certificates() if parts.scheme == "https" else False
    # A proxy in the environment must not be asked for a server on this very machine.
    trusted = parts.hostname not in LOOPBACK
    try:
        return httpx.Client(headers={**(headers or {}), **shown}, trust_env=trusted, verify=verify, timeout=timeout_s)
    except Exception as error:  # what each proxy's library, urllib or idna raises: this environment is not our own
        raise ServerUnreachableError(_blamed()) from error


def _certificates() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except (OSError, ValueError) as error:
        raise ServerUnreachableError(_blamed_for_certificates(error)) from error


def _blamed_for_certificates(error: OSError | ValueError) -> str:
    path = error.filename if isinstance(error, OSError) else None  # of certificates ssl tells none
    names = ("SSLKEYLOGFILE",) if path is not None else ("SSL_CERT_FILE", "SSL_CERT_DIR")
    name = next((name for name in names if os.environ.get(name)), "what this system trusts")
    reason = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    return f"{name} cannot be used: {reason or 'there is no certificate in it'}"


def _blamed() -> str:
    """Which proxy setting is wrong, and how; without its value, which may hold a password."""
    for name, value in os.environ.items():
        if name.lower() in PROXIES and value:
            proxy = value if "://" in value else f"http://{value}"
            try:
                httpx.Client(proxy=proxy, trust_env=False, verify=False).close()
            except ImportError:
                return f"{name} is a SOCKS proxy, which needs more: pip install 'httpx[socks]'"
            except Exception:  # as above
                return f"{name} cannot be used: it is no address like http://proxy:8080"
    for name in os.environ:
        if name.lower() == "no_proxy":
            return f"{name} cannot be used: something in it is no host"
    return "the system's proxy settings cannot be used"


@contextmanager
def explaining(server: str, timeout: httpx.Timeout) -> Iterator[None]:
    """Around a request.

    Raises:
        ServerUnreachableError: it was not answered; the message says why.
    """
    try:
        yield
    except GradsightError:
        raise
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:  # ValueError: a name no resolver takes
        raise _explained(error, server, timeout) from error


def _explained(error: Exception, server: str, timeout: httpx.Timeout) -> ServerUnreachableError:
    cause = _first_cause(error)
    if isinstance(error, httpx.TimeoutException):
        waited_s = timeout.connect if isinstance(error, httpx.ConnectTimeout) else timeout.read
        return ServerUnreachableError(f"no answer from {server} within {waited_s:.3g} s")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ServerUnreachableError(f"the certificate of {server} is refused: {cause.verify_message.rstrip('.')}")
    if isinstance(cause, ssl.SSLError):
        return ServerUnreachableError(f"{server} does not answer by https")
    if isinstance(error, httpx.ProxyError):
        return ServerUnreachableError(f"the proxy on the way to {server} refuses: {error or type(error).__name__}")
    if isinstance(error, httpx.ConnectError | UnicodeError) and _is_by_proxy(server):
        return ServerUnreachableError(f"the proxy on the way to {server} does not answer")
    if isinstance(cause, ConnectionRefusedError):
        return NoServerError(f"no server answers at {server}")
    if isinstance(cause, socket.gaierror | UnicodeError):
        return NoServerError(f"no server answers at {server}: its name is not known")
    if isinstance(error, httpx.ConnectError):
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
        return NoServerError(f"no server answers at {server}: {reason}")
    return ServerUnreachableError(f"{server} broke off: {error or type(error).__name__}")


def _is_by_proxy(server: str) -> bool:
    parts = urlsplit(server)
    proxies, host = getproxies(), parts.hostname or ""
    has_one = parts.scheme in proxies or "all" in proxies
    return has_one and host not in LOOPBACK and not proxy_bypass(host)


def _first_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
