"""A webhook receiver on loopback: keeps what it is sent; a test tells it to refuse, or to hang."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What arrived, in order."""

    def __init__(self, port: int) -> None:
        self.url = f"json://127.0.0.1:{port}/hook/very-secret"
        self.got: list[dict[str, Any]] = []
        self.num_refused = 0
        self.refuses = False
        self.open = threading.Event()
        self.open.set()
        self.num_asked = 0

    @property
    def texts(self) -> list[str]:
        return [message["message"] for message in self.got]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.num_asked += 1
            found.open.wait(30)
            if found.refuses:
                found.num_refused += 1
                self.send_response(503)
            else:
                found.got.append(json.loads(body))
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: object) -> None:
            pass  # who asked has gone meanwhile

    server = Server(("127.0.0.1", port), Handler)
    found = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.open.set()
        server.shutdown()
        thread.join()
        server.server_close()
