"""The API's documentation: Swagger UI from local files, started by a file of ours because no inline script may run."""

from string import Template
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from gradsight_server.api.answers import Json
from gradsight_server.api.openapi import describe
from gradsight_server.assets import PAGES, Assets, find_package_file

router = APIRouter(include_in_schema=False)


def docs_files() -> Assets:
    """Swagger UI, out of the package that carries it, and what starts it."""
    names = ("swagger-ui-bundle.js", "swagger-ui.css")
    swagger = {name: find_package_file("fastapi_offline", "static", name) for name in names}
    return Assets.of_files({**swagger, "docs.js": PAGES / "docs.js"})


@router.api_route("/docs", methods=["GET", "HEAD"])
def docs(request: Request) -> Response:
    files: Assets = request.app.state.page_files.docs
    page = Template((PAGES / "docs.html").read_text(encoding="utf-8"))
    return HTMLResponse(page.substitute(static=f"/static/{files.hash()}"))


@router.get("/openapi.json")
def openapi(request: Request) -> Response:
    app = request.app
    if app.openapi_schema is None:
        app.openapi_schema = describe(app, has_token=app.state.token is not None)
    document: dict[str, Any] = app.openapi_schema
    return Json(document)
