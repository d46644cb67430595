"""Running the application under uvicorn: the socket taken first, so that a busy port is one clear line; a quick end."""

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlunsplit

import uvicorn
from fastapi import FastAPI

from gradsight_server.errors import SettingsError

GRACE_S = 3
"""How long running requests may take to end once the server is told to stop."""
START_WITHIN_S = 60.0
KEEP_ALIVE_S = 75
"""Longer than the longest pause between a client's batches, so that it never sends into a closing connection."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        SettingsError: the port is taken, or the host is no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingsError(f"host {host!r} is no address of this machine: {error.strerror}.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise _not_bound(host, port, error) from None
    bound.set_inheritable(True)
    return bound


def _not_bound(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(f"port {port} on {host} is taken: name another with --port, or 0 for any free one.")
    if error.errno == errno.EACCES:
        return SettingsError(f"port {port} needs more rights than this user has: name one above 1023 with --port.")
    return SettingsError(f"host {host!r} cannot be served from this machine: {error.strerror}.")


def local_url(bound: socket.socket) -> str:
    """Where this machine reaches a server that listens there."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return urlunsplit(("http", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "", "", ""))


class Server(uvicorn.Server):
    """Uvicorn, which would wait for open live streams to end: they are ended first."""

    def __init__(self, app: FastAPI, *, on_start: Callable[[], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._app = app
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.live.end_streams()
        await super().shutdown(sockets)


def serve(app: FastAPI, bound: socket.socket, *, on_start: Callable[[], None] | None = None) -> None:
    """Serves until a signal says to stop."""
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after it has ended gracefully
        Server(app, on_start=on_start).run(sockets=[bound])


@contextlib.contextmanager
def serving(app: FastAPI, bound: socket.socket) -> Iterator[str]:
    """The server in a thread of this process, for as long as the block lasts; where this machine reaches it.

    Raises:
        SettingsError: it did not start.
    """
    started = threading.Event()
    server = Server(app, on_start=started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="gradsight-server", daemon=True)
    thread.start()
    until = time.monotonic() + START_WITHIN_S
    while not started.wait(0.1):
        if not thread.is_alive() or time.monotonic() > until:
            raise SettingsError(f"the server did not start within {START_WITHIN_S:.0f} s.")
    try:
        yield local_url(bound)
    finally:
        server.should_exit = True
        thread.join()
