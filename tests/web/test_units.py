"""The page's pure modules, tested in their own language by `node --test`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parent / "units").glob("*.test.js"))


def node() -> str:
    """The one that the environment brings, else the machine's."""
    beside = Path(sys.executable).parent / "node"
    found = str(beside) if beside.exists() else shutil.which("node")
    assert found is not None, "there is no node: pip install 'gradsight[dev]'"
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name.removesuffix(".test.js"))
def test_the_units_of_the_page_pass(path: Path) -> None:
    command = [node(), "--test", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "# tests 0" not in ran.stdout
