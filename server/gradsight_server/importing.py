"""`gradsight import`: logs become runs on a server, through its front door; `--watch` goes on while they grow."""

import glob
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from gradsight import connecting, transport, wire
from gradsight.errors import ServerRefusedError, ServerRefusedTokenError, ServerUnreachableError
from gradsight_server.asking import unanswered
from gradsight_server.cli import complain
from gradsight_server.errors import NothingToReadError, SettingsError
from gradsight_server.importers.assembly import Assembly
from gradsight_server.importers.following import Counted, Following
from gradsight_server.importers.format import LineFormat
from gradsight_server.importers.importing import Imported, Wish, import_log
from gradsight_server.importers.opening import is_packed, open_bytes, opening_otherwise, standard_input
from gradsight_server.importers.reading import Source, sources_of
from gradsight_server.importers.sending import Sending

FOLLOWED = ("jsonl", "csv_table")
"""Formats that are no lines to the registry, and yet are read from beginning to end."""
POLL_S = 1.0
"""How often a log that cannot be followed is looked at for changes."""
PATIENCE_S = 15.0
"""How long a server may be busy or away in the middle of an import."""
SHOWN_EVERY_S = 0.2


class HttpDestination:
    """A server, reached as training processes reach it.

    Args:
        stop: Where it is given, an absent server is waited for until it is set.
    """

    def __init__(self, server: str, token: str | None, stop: threading.Event | None = None) -> None:
        self.server = server.rstrip("/")
        self._token = token
        self._stop = stop
        self._way = transport.HttpTransport(self.server, token)
        self._has_answered = False

    def put_run(self, run_id: str, record: wire.RunRecord) -> None:
        self._insist(lambda: self._way.put_run(run_id, wire.encode(record)))

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None:
        body = wire.encode(batch)
        self._insist(lambda: self._way.post_batch(run_id, stream, body, timeout_s=60.0))

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None:
        body = {"notes": notes} | ({"archived": True} if is_archived else {})
        with connecting.client(self.server, self._token) as client, connecting.explaining(self.server, client.timeout):
            client.patch(f"{self.server}/api/v1/runs/{run_id}", json=body).raise_for_status()

    def _insist(self, send: Callable[[], object]) -> None:
        """Sends, again and again while the server is away for a moment.

        Raises:
            NothingToReadError: it does not answer.
            SettingsError: it wants another token.
        """
        patience = time.monotonic() + (PATIENCE_S if self._has_answered else 0.0)
        pause_s = 0.1
        while True:
            try:
                send()
            except ServerRefusedTokenError as error:
                raise SettingsError(f"{self.server} wants its token: --token, or GRADSIGHT_TOKEN.") from error
            except ServerRefusedError as error:
                raise NothingToReadError(f"the server refused what was read: {error}.") from error
            except ServerUnreachableError as error:
                if self._stop is None and time.monotonic() >= patience:
                    raise unanswered(error) from error
                if self._stop is None:
                    time.sleep(pause_s)
                elif self._stop.wait(pause_s):
                    raise unanswered(error) from error
                pause_s = min(2 * pause_s, 2.0)
            else:
                self._has_answered = True
                return

    def close(self) -> None:
        self._way.close()


def import_all(
    paths: Sequence[str],
    *,
    server: str,
    token: str | None,
    log_format: str,
    wish: Wish,
    watch: bool = False,
    as_json: bool = False,
    stop: threading.Event | None = None,
) -> int:
    """Imports logs and says what became of each; 1 where one had nothing to read.

    Args:
        stop: Ends watching; Ctrl-C does where left out.

    Raises:
        SettingsError: wrong use.
    """
    if wish.max_norm is not None and not 0 < wish.max_norm < float("inf"):
        raise SettingsError(f"--max-norm must be a positive number, got {wish.max_norm!r}.")
    targets = [found for path in paths for found in _expanded(path)]
    if watch:
        return _watch_all(targets, server, token, log_format, wish, stop)
    told: list[dict[str, Any] | None] = []
    destination = HttpDestination(server, token)
    try:
        for target in targets:
            told += _import_target(target, destination, log_format, wish, quiet=as_json)
    finally:
        destination.close()
    if as_json:
        print(json.dumps(told))
    return 1 if None in told else 0


def _expanded(path: str) -> list[str]:
    """The paths a pattern stands for, where the shell has left it as it is."""
    if path == "-" or Path(path).exists() or not glob.has_magic(path):
        return [path]
    return sorted(glob.glob(path, recursive=True)) or [path]


def _import_target(
    target: str, destination: HttpDestination, log_format: str, wish: Wish, *, quiet: bool
) -> list[dict[str, Any] | None]:
    """What is told of each log there, None of one with nothing to read."""
    try:
        if target == "-":
            with standard_input() as path:
                name = wish.name or "standard input"
                sources = sources_of(path, log_format, name, wish.options)
                sources = [Source(one.path, one.format, one.name, identity=name) for one in sources]
                return [_import_source(source, destination, wish, quiet=quiet) for source in sources]
        sources = sources_of(Path(target), log_format, options=wish.options)
    except NothingToReadError as error:
        complain(str(error))
        return [None]
    told = [_import_source(source, destination, wish, quiet=quiet, is_one=len(sources) == 1) for source in sources]
    # A folder's other files need not have anything to say.
    return told if len(told) == 1 or all(one is None for one in told) else [one for one in told if one is not None]


def _import_source(
    source: Source, destination: HttpDestination, wish: Wish, *, quiet: bool, is_one: bool = True
) -> dict[str, Any] | None:
    try:
        with _progress(source) as on_start:
            imported = import_log(source, destination, wish, on_start=on_start)
    except NothingToReadError as error:
        if is_one or "no server" in str(error):
            complain(str(error))
        return None
    if not quiet:
        _print(source, imported, destination.server)
    return {
        "path": source.name,
        "format": imported.format_name,
        "notes": imported.notes,
        "runs": [
            {
                "run_id": run.run_id,
                "name": run.name,
                "url": f"{destination.server}/runs/{run.run_id}",
                "streams": list(run.streams),
                "num_steps": run.num_steps,
            }
            for run in imported.runs
        ],
    }


def _print(source: Source, imported: Imported, server: str) -> None:
    print(f"{source.name}: {imported.format_title}")
    for run in imported.runs:
        streams = f" of {len(run.streams)} streams" if len(run.streams) > 1 else ""
        print(f"  {run.name}: {run.num_steps:,} step{'s' * (run.num_steps != 1)}{streams}, {server}/runs/{run.run_id}")
    for note in imported.notes:
        print(f"  Note: {''.join(c if c.isprintable() else '�' for c in note)}")


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[Assembly, Sending], None]]:
    """Shows on a terminal how far the reading is."""
    if not sys.stderr.isatty() or source.path.is_dir():
        yield lambda assembly, sending: None
        return
    size = None if is_packed(source.path) else source.path.stat().st_size
    begun = time.monotonic()
    shown = begun
    num_bytes = 0
    of_steps: list[Assembly] = []

    def on_read(more: int) -> None:
        nonlocal num_bytes, shown
        num_bytes += more
        now = time.monotonic()
        if now - shown < SHOWN_EVERY_S:
            return
        shown = now
        part = f"{100 * num_bytes / size:3.0f} %  " if size else ""
        steps = f"  {of_steps[0].told.num_rows:,} steps" if of_steps else ""
        rate = num_bytes / 1e6 / (now - begun)
        print(f"\r{part}{num_bytes / 1e6:,.0f} MB  {rate:.0f} MB/s{steps} ", end="", file=sys.stderr, flush=True)

    def opened(path: Path) -> BufferedIOBase:
        return Counted(open_bytes(path), on_read)

    try:
        with opening_otherwise(opened):
            yield lambda assembly, sending: of_steps.append(assembly)
    finally:
        if shown != begun:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# Watching


def _watch_all(
    targets: Sequence[str], server: str, token: str | None, log_format: str, wish: Wish, stop: threading.Event | None
) -> int:
    """One thread a log; ends where all have failed, or when it is told to."""
    if "-" in targets:
        raise SettingsError("--watch follows files; a pipe is read to its end without it.")
    if stop is None:
        stop = threading.Event()
        signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    watches = [_Watch(target, server, token, log_format, wish, stop) for target in targets]
    for watch in watches:
        watch.start()
    for watch in watches:
        while watch.is_alive():
            watch.join(0.2)  # a signal is heard between waits
    return 1 if any(watch.has_failed for watch in watches) else 0


class _Watch(threading.Thread):
    """Follows what lies at a path."""

    def __init__(
        self, target: str, server: str, token: str | None, log_format: str, wish: Wish, stop: threading.Event
    ) -> None:
        super().__init__(name=f"gradsight-watch {target}", daemon=True)
        self._path = Path(target)
        self._format = log_format
        self._wish = wish
        self._stopping = stop
        self._destination = HttpDestination(server, token, stop)
        self._has_told: set[str] = set()
        self.has_failed = False

    def run(self) -> None:
        try:
            sources = self._sources()
            others = [
                threading.Thread(target=self._follow, args=(source,), name=self.name, daemon=True)
                for source in sources[1:]
            ]
            for other in others:
                other.start()
            if sources:
                self._follow(sources[0])
            for other in others:
                other.join()
        except (NothingToReadError, SettingsError) as error:
            self.has_failed = True
            complain(str(error))
        finally:
            self._destination.close()

    def _sources(self) -> list[Source]:
        """The logs there, once there are any: a training that has only begun has not written a step yet."""
        has_said = False
        while True:
            try:
                return sources_of(self._path, self._format, options=self._wish.options)
            except NothingToReadError as error:
                if not has_said:
                    has_said = True
                    complain(f"waiting: {error}")
                if self._stopping.wait(POLL_S):
                    raise

    def _follow(self, source: Source) -> None:
        try:
            if _can_be_followed(source):
                self._follow_lines(source)
            else:
                self._import_again_and_again(source)
        except (NothingToReadError, SettingsError) as error:
            self.has_failed = True
            complain(str(error))

    def _follow_lines(self, source: Source) -> None:
        started: list[tuple[Assembly, Sending]] = []

        def on_idle() -> None:
            for assembly, sending in started:
                assembly.flush()
                sending.flush()
                self._tell(source, sending)

        def opened(path: Path) -> BufferedIOBase:
            return Following(path, self._stopping, on_idle)

        with opening_otherwise(opened):
            import_log(
                source,
                self._destination,
                self._wish,
                is_whole=False,
                on_start=lambda assembly, sending: started.append((assembly, sending)),
            )
        for _, sending in started:
            self._tell(source, sending)

    def _tell(self, source: Source, sending: Sending) -> None:
        for run in sending.runs.values():
            self._tell_run(source, run.name, run.run_id)

    def _tell_run(self, source: Source, name: str, run_id: str) -> None:
        if run_id not in self._has_told:
            self._has_told.add(run_id)
            print(f"{source.name}: {name}, {self._destination.server}/runs/{run_id}", flush=True)

    def _import_again_and_again(self, source: Source) -> None:
        """A document or folder is read as a whole whenever it has changed; what is there already changes nothing."""
        seen: object = None
        while True:
            is_last = self._stopping.is_set()
            if (now := _stamp(source.path)) != seen:
                try:
                    imported = import_log(source, self._destination, self._wish, is_whole=False)
                except NothingToReadError:
                    if is_last:
                        raise
                else:
                    seen = now
                    for run in imported.runs:
                        self._tell_run(source, run.name, run.run_id)
            if is_last:
                return
            self._stopping.wait(POLL_S)


def _can_be_followed(source: Source) -> bool:
    log_format = source.format
    if log_format is None or source.path.is_dir() or is_packed(source.path):
        return False
    if log_format.name == "jsonl":
        with open_bytes(source.path) as file:
            return file.read(64).lstrip()[:1] != b"["
    return isinstance(log_format, LineFormat) or log_format.name in FOLLOWED


def _stamp(path: Path) -> object:
    """What changes when a file, or one in a folder, does."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stamps = []
    for file in files[:1_000]:
        try:
            state = file.stat()
        except OSError:
            continue
        stamps.append((str(file), state.st_size, state.st_mtime_ns))
    return stamps
