"""The login page: a form without script, a cookie in return for the token."""

import html
import time
from string import Template
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from gradsight_server.api.body import read_body
from gradsight_server.assets import PAGES
from gradsight_server.auth import COOKIE_LIFETIME_S, Token, safe_next

router = APIRouter(include_in_schema=False)


@router.api_route("/login", methods=["GET", "HEAD"])
def login_page(request: Request, next: str = "/") -> Response:
    token: Token | None = request.app.state.token
    if token is None:
        return RedirectResponse(safe_next(next), status_code=303)
    return _page(next)


@router.post("/login")
async def login(request: Request) -> Response:
    token: Token | None = request.app.state.token
    body, _ = await read_body(request)
    fields = dict(parse_qsl(body.decode(errors="replace"), max_num_fields=8))
    target = safe_next(fields.get("next", "/"))
    if token is None:
        return RedirectResponse(target, status_code=303)
    if not token.is_secret(fields.get("token", "")):
        return _page(target, problem="That is not this server's token.")
    answer = RedirectResponse(target, status_code=303)
    answer.set_cookie(
        token.cookie_name,
        token.cookie(time.time()),
        max_age=COOKIE_LIFETIME_S,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return answer


@router.api_route("/logout", methods=["GET", "POST"])
def logout(request: Request) -> Response:
    token: Token | None = request.app.state.token
    answer = RedirectResponse("/login", status_code=303)
    if token is not None:
        answer.delete_cookie(token.cookie_name, httponly=True, samesite="lax")
    return answer


def _page(next: str, *, problem: str = "") -> HTMLResponse:
    page = Template((PAGES / "login.html").read_text(encoding="utf-8"))
    shown = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    return HTMLResponse(
        page.substitute(problem=shown, next=html.escape(safe_next(next))), status_code=401 if problem else 200
    )
