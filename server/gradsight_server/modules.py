"""Which modules a page's scripts import, so that the page can name them all at once.

A browser learns of a module only once it has read the one that imports it: without this, each layer of imports waits
for the one before.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_IMPORT = re.compile(r"""^(?:import|export)\b[^"'();]*["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)


def imported(files: Mapping[str, Path], scripts: Iterable[str]) -> list[str]:
    """The names of the scripts and of everything they import from the start, each once, those nearest to them first.

    Args:
        files: By name, as they are served.
    """
    found = list(scripts)
    for name in found:
        source = files[name].read_text(encoding="utf-8")
        for address in _IMPORT.findall(source):
            module = posixpath.normpath(posixpath.join(posixpath.dirname(name), address))
            if module in files and module not in found:
                found.append(module)
    return found
