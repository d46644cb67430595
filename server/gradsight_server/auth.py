"""Who may come in: the name the server is asked for, the site that asks, and the token or the cookie made from it."""

import hashlib
import hmac
import time
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gradsight_server.api.answers import failure
from gradsight_server.errors import CrossSiteError, HostNotAllowedError, RefusedRequestError, UnauthorizedError
from gradsight_server.hosts import Hosts, host_name

COOKIE_LIFETIME_S = 30 * 24 * 3600
OPEN_PATHS = ("/healthz", "/readyz", "/login", "/logout", "/favicon.ico")
OPEN_FOLDER = "/static/"
MACHINE_PATHS = ("/api/", "/metrics", "/openapi.json")
"""Asked by programs: they are told 401. A person at any other address is led to the login page."""
READING = ("GET", "HEAD", "OPTIONS")


class Token:
    """The server's one secret: compares it, and makes the cookie that stands for it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        # Cookies ignore ports: two servers on one machine must not overwrite each other's.
        self.cookie_name = f"gradsight_{self._sign('name')[:8]}"

    def is_bearer(self, authorization: bytes) -> bool:
        """Whether an Authorization header (as sent: a token need not be ASCII) carries this token."""
        scheme, _, given = authorization.strip().partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._secret)

    def is_secret(self, given: str) -> bool:
        return hmac.compare_digest(given.strip().encode(errors="surrogatepass"), self._secret)

    def cookie(self, now_s: float) -> str:
        """A value that shows, until it expires, that its bearer knew the token; the token cannot be read from it."""
        expires = str(int(now_s + COOKIE_LIFETIME_S))
        return f"{expires}.{self._sign(expires)}"

    def is_cookie(self, value: str, now_s: float) -> bool:
        expires, _, signature = value.partition(".")
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12 and int(expires) > now_s):
            return False
        return hmac.compare_digest(signature.encode(errors="surrogatepass"), self._sign(expires).encode())

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, f"gradsight cookie {text}".encode(), hashlib.sha256).hexdigest()


class Door:
    """Turns away, before anything else looks at a request, whoever may not come in."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts, token: Token | None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            self._check_host(request.headers)
            self._check_site(request.method, request.headers)
            self._check_token(request)
        except UnauthorizedError as error:
            answer = _to_login(request) if is_person(request) else failure(error)
            return await answer(scope, receive, send)
        except RefusedRequestError as error:
            return await failure(error)(scope, receive, send)
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host")
        if not self._hosts.allow(host):
            raise HostNotAllowedError(
                f"This server does not go by the name {host_name(host or '')!r}; "
                "where it should, start it with --allowed-host NAME."
            )

    def _check_site(self, method: str, headers: Headers) -> None:
        """No other site's page may write. Browsers say who asks: by Sec-Fetch-Site, over plain HTTP only by Origin."""
        if method in READING:
            return
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        if site is not None:
            foreign = site not in ("same-origin", "none")
        elif origin is not None:
            _, _, netloc = origin.lower().partition("://")  # an origin has nothing behind its host
            foreign = netloc != headers.get("host", "").lower() and not self._hosts.allow_by_option(host_name(netloc))
        else:
            foreign = False
        if foreign:
            raise CrossSiteError(f"A page of another site ({origin or site}) may not write here.")

    def _check_token(self, request: Request) -> None:
        path = request.scope["path"]  # never request.url: its path can be bent by the Host header
        if self._token is None or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        authorization = dict(request.scope["headers"]).get(b"authorization")
        if authorization is not None and self._token.is_bearer(authorization):
            return
        if self._token.is_cookie(request.cookies.get(self._token.cookie_name, ""), time.time()):
            return
        how = "is wrong" if authorization is not None else "is missing"
        raise UnauthorizedError(f"The token {how}: send 'Authorization: Bearer …' with this server's GRADSIGHT_TOKEN.")


def is_person(request: Request) -> bool:
    """Whether a person may be reading at this address, not only programs."""
    return request.method in READING and not request.scope["path"].startswith(MACHINE_PATHS)


def _to_login(request: Request) -> RedirectResponse:
    query = request.scope["query_string"].decode("latin-1")
    wanted = quote(request.scope["path"], safe="/") + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?next={quote(wanted, safe='/')}", status_code=303)


def safe_next(path: str) -> str:
    """Where to go after the login: an address on this server, whatever the link said.

    Browsers read `//host` and `/\\host` as another site, and drop control characters before they look.
    """
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_own else "/"
