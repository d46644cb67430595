"""`run.show()`: the page of a run inside another page on the same machine, as a notebook has it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from playwright.sync_api import BrowserContext, expect

from tests.web.kit import SentRun, wait_until


@contextmanager
def notebook(address: str, shown: str) -> Iterator[str]:
    """A page with a frame in it, served at an address of this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class calls it so
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<iframe src="{shown}" width="100%" height="700"></iframe>'.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer((address, 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{address}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_notebook_on_this_machine_may_show_the_page_in_a_frame(context: BrowserContext, run: SentRun) -> None:
    page = context.new_page()
    with notebook("127.0.0.1", run.url) as url:
        page.goto(url)
        expect(page.frame_locator("iframe").get_by_role("heading", level=1)).to_contain_text("baseline")


def test_a_page_from_elsewhere_may_not(context: BrowserContext, run: SentRun) -> None:
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    with notebook("127.0.0.2", run.url) as url:
        page.goto(url)
        wait_until(lambda: any("frame-ancestors" in text for text in said))
        assert page.frame_locator("iframe").get_by_role("heading").count() == 0
