"""The page: one HTML file for every address a person may open, and the files it loads."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from gradsight_server.api.answers import failure
from gradsight_server.assets import Asset, Assets, find_package_file, find_web, media_type
from gradsight_server.auth import is_person
from gradsight_server.modules import imported

router = APIRouter(include_in_schema=False)

IMMUTABLE = "public, max-age=31536000, immutable"
PLOTLY = "plotly.min.js"
MAIN = "main.js"
RUN = "run"
COMPILE_AT_ONCE = b"//# allFunctionsCalledOnLoad\n"
"""Chromium's compile hint. Most of plotly runs as it loads: compiled while it arrives, on another thread, it holds the
page up by a fifth of what it does otherwise. To other browsers it is a comment."""


class PageFiles:
    """Everything below /static/: the page's own files, plotly's, and those of the API's docs."""

    def __init__(self, docs: Assets) -> None:
        self.web = Assets.of_folder(find_web())
        # Found, not imported: importing plotly takes memory and time only to hand out one file.
        plotly = find_package_file("plotly", "package_data", PLOTLY)
        self.plotly = Assets.of_files({PLOTLY: plotly}, first_line=COMPILE_AT_ONCE)
        self.docs = docs
        self._preloads: dict[tuple[str, str | None], str] = {}

    def find(self, hashed: str, name: str) -> Asset | None:
        for assets in (self.web, self.plotly, self.docs):
            if (found := assets.get(hashed, name)) is not None:
                return found
        return None

    def warm_up(self) -> None:
        """Compresses plotly.min.js before the first person waits for it."""
        self.plotly.get(self.plotly.hash(), PLOTLY)

    def index(self, page: str | None) -> str:
        """The HTML with the addresses of its files filled in, and those that this page needs named at once.

        Args:
            page: Which of `web/pages/`; None for an address that leads nowhere.
        """
        html = (find_web() / "index.html").read_text(encoding="utf-8")
        html = html.replace("  <!-- preloads -->\n", self._links(page))
        plotly = f"/static/{self.plotly.hash()}/{PLOTLY}"
        return html.replace("__STATIC__", f"/static/{self.web.hash()}").replace("__PLOTLY__", plotly)

    def _links(self, page: str | None) -> str:
        """Made anew when a file of the page has changed."""
        key = (self.web.hash(), page)
        if key not in self._preloads:
            self._preloads = {known: links for known, links in self._preloads.items() if known[0] == key[0]}
            names = imported(self.web.files, [MAIN] if page is None else [MAIN, f"pages/{page}.js"])
            links = [f'<link rel="modulepreload" href="__STATIC__/{name}">' for name in names]
            if page == RUN:
                links.append('<link rel="preload" as="script" href="__PLOTLY__" fetchpriority="low" data-plotly>')
            self._preloads[key] = "".join(f"  {link}\n" for link in links)
        return self._preloads[key]


def index(request: Request) -> Response:
    files: PageFiles = request.app.state.page_files
    path = request.scope["path"]
    if "\ufffd" in path:
        raise HTTPException(404, "The address is not UTF-8.")
    name = path.split("/")[1]
    return HTMLResponse(files.index({"": "runs", "runs": RUN}.get(name, name)))


for _path in ("/", "/runs/{run_id}", "/compare", "/alerts", "/settings"):
    # A slash at the end changes nothing: the page's router has the same addresses.
    for _address in {_path, _path.rstrip("/") + "/"}:
        router.add_api_route(_address, index, methods=["GET", "HEAD"])


def on_not_found(request: Request, error: Exception) -> Response:
    """To a person the page, which says that the address leads nowhere; to a program the error."""
    if not is_person(request) or "text/html" not in request.headers.get("accept", ""):
        return failure(error)
    files: PageFiles = request.app.state.page_files
    return HTMLResponse(files.index(None), status_code=404)


@router.api_route("/static/{hashed}/{name:path}", methods=["GET", "HEAD"])
def static(request: Request, hashed: str, name: str) -> Response:
    files: PageFiles = request.app.state.page_files
    asset = files.find(hashed, name)
    if asset is None:
        raise HTTPException(404, f"There is no file {name!r} in this version of the page; load the page again.")
    body, is_gzipped = asset.body(accepts_gzip="gzip" in request.headers.get("accept-encoding", ""))
    headers = {"Cache-Control": IMMUTABLE, "Vary": "Accept-Encoding"}
    if is_gzipped:
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=asset.media_type, headers=headers)


@router.api_route("/favicon.ico", methods=["GET", "HEAD"])
def favicon() -> Response:
    """For pages that name no icon of their own."""
    icon = find_web() / "favicon.svg"
    return Response(icon.read_bytes(), media_type=media_type(icon.name), headers={"Cache-Control": "max-age=86400"})
