"""What a driver's error means, from real errors of a real database."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import resource, sqlite3, sys
from gradsight_server.store.faults import explained

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("CREATE TABLE t (x)")
try:
    for _ in range(100):
        conn.execute("INSERT INTO t VALUES (zeroblob(10000))")
except sqlite3.Error as error:
    print(type(explained(error)).__name__)
"""


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    """As with a quota: the system names another reason than that there is no room."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "x.db")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == "DiskFullError", said.stderr
