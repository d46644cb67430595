"""A real Gradsight server in a process of its own, for the benchmarks: started, asked for its memory, stopped."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

STOP_DEADLINE_S = 60.0


class ServerProcess:
    """A server that answers at `host:port`."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self._process = process
        self.url = url
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80

    def memory_mb(self) -> tuple[float, float] | None:
        """What it holds now, and the most it held; None where the system does not say."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
        return (int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024) if len(found) == 2 else None

    def cpu_s(self) -> float | None:
        """Processor time it has used; None where the system does not say."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return None
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running_server(
    db: str,
    folder: Path,
    *,
    program: Sequence[str] = ("-m", "gradsight_server.cli"),
    environment: Mapping[str, str] = {},
) -> Iterator[ServerProcess]:
    """A server on any free port of loopback, with this database, started in this folder, until the block ends.

    Args:
        program: What Python runs; a benchmark may give a script of its own that changes the server before it serves.
        environment: Settings of the server's.
    """
    command = [sys.executable, *program, "serve", "--port", "0", "--db", db]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GRADSIGHT_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ours | dict(environment), cwd=folder)
    assert process.stdout is not None
    try:
        greeting = process.stdout.readline()
        address = re.search(r"http://\S+", greeting)
        if address is None:
            raise RuntimeError(f"the server did not start: {greeting!r}")
        yield ServerProcess(process, address[0])
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
