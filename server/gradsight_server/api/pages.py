"""The page: one HTML file for every address a person may open, and the files it loads."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from gradsight_server.assets import Asset, Assets, find_package_file, find_web, media_type
from gradsight_server.modules import imported

router = APIRouter(include_in_schema=False)

IMMUTABLE = "public, max-age=31536000, immutable"
PLOTLY = "plotly.min.js"
MAIN = "main.js"


class PageFiles:
    """Everything below /static/: the page's own files, plotly's, and those of the API's docs."""

    def __init__(self, docs: Assets) -> None:
        self.web = Assets.of_folder(find_web())
        # Found, not imported: importing plotly takes memory and time only to hand out one file.
        self.plotly = Assets.of_files({PLOTLY: find_package_file("plotly", "package_data", PLOTLY)})
        self.docs = docs
        self._preloads = ("", "")

    def find(self, hashed: str, name: str) -> Asset | None:
        for assets in (self.plotly, self.docs, self.web):
            if (found := assets.get(hashed, name)) is not None:
                return found
        return None

    def warm_up(self) -> None:
        """Compresses plotly.min.js before the first person waits for it."""
        self.plotly.get(self.plotly.hash(), PLOTLY)

    def index(self) -> str:
        """The page with the addresses of its files filled in."""
        page = (find_web() / "index.html").read_text(encoding="utf-8")
        plotly = f"/static/{self.plotly.hash()}/{PLOTLY}"
        hashed = self.web.hash()
        page = page.replace("  <!-- modules -->\n", self._module_links(hashed))
        return page.replace("__STATIC__", f"/static/{hashed}").replace("__PLOTLY__", plotly)

    def _module_links(self, hashed: str) -> str:
        """All modules of the page at once; made anew when a file of the page has changed."""
        known, links = self._preloads
        if known != hashed:
            names = imported(self.web.files, MAIN)
            links = "".join(f'  <link rel="modulepreload" href="__STATIC__/{name}">\n' for name in names)
            self._preloads = (hashed, links)
        return links


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/runs/{path:path}", methods=["GET", "HEAD"])
@router.api_route("/compare", methods=["GET", "HEAD"])
@router.api_route("/alerts", methods=["GET", "HEAD"])
@router.api_route("/settings", methods=["GET", "HEAD"])
def index(request: Request) -> Response:
    files: PageFiles = request.app.state.page_files
    return HTMLResponse(files.index())


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
