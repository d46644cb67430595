"""Imports run one way: the table of who may import what, checked over every file of both packages."""

import ast
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "client_hook" / "gradsight", ROOT / "server" / "gradsight_server")
FILES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))

TORCH = (
    *(
        f"gradsight/{name}.py"
        for name in (
            "norms",
            "layers",
            "reading",
            "control",
            "*clipping",
            "scaling",
            "sampling",
            "meshes",
            "sharding",
            "amp",
            "monitor",
            "freshness",
            "described",
            "watch",
        )
    ),
    "gradsight/integrations/*",
    "gradsight_server/demo.py",
)
WEB = ("gradsight_server/app.py", "gradsight_server/serving.py", "gradsight_server/auth.py", "gradsight_server/api/*")
SQL = ("gradsight_server/store/*", "gradsight_server/alerts/store.py")
COMMANDS = tuple(
    f"gradsight_server/{name}.py"
    for name in ("cli", "commands", "serve", "listing", "asking", "importing", "demo_host", "app")
)

ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": TORCH,
    "fastapi": WEB,
    "starlette": WEB,
    "uvicorn": ("gradsight_server/serving.py",),
    "sqlalchemy": SQL,
    "alembic": SQL,
    "typer": ("gradsight_server/commands.py",),
    "gradsight.spool": ("gradsight/*", *COMMANDS),
    "gradsight.transport": ("gradsight/*", *COMMANDS),
    "gradsight.connecting": ("gradsight/*", *COMMANDS),
    "gradsight_server.demo": (),
    "plotly": (),
}
"""Who may import a module (or what is below it), at run time; `plotly` carries a file and is never imported."""

SHARED = ("wire", "thresholds", "policies", "errors", "spool", "transport", "connecting")
"""What the server may know of the client."""

PURE = (
    *(f"gradsight/{name}.py" for name in ("thresholds", "policies")),
    "gradsight_server/figures/*",
    "gradsight_server/diagnosis/*",
    *(
        f"gradsight_server/alerts/{name}.py"
        for name in (
            "clipping",
            "columns",
            "life",
            "rules",
            "setting",
            "silence",
            "sliding",
            "stepping",
            "texts",
            "watch",
        )
    ),
    "gradsight_server/store/rollup.py",
)
"""Numbers in, numbers out."""
IMPURE = (
    "sqlalchemy",
    "fastapi",
    "starlette",
    "httpx",
    "time",
    "datetime",
    "threading",
    "asyncio",
    "socket",
    "os",
    "logging",
)


class Import(NamedTuple):
    """One imported module; for `from a import b` both `a` and `a.b`, because b may be a module."""

    module: str
    line: int
    is_for_types: bool


def name_of(path: Path) -> str:
    return next(path.relative_to(package.parent).as_posix() for package in PACKAGES if path.is_relative_to(package))


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in for_types)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            module = node.module or ""
            yield Import(module, node.lineno, id(node) in for_types)
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, id(node) in for_types)


def is_below(module: str, parent: str) -> bool:
    return module == parent or module.startswith(f"{parent}.")


def fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def breaches(path: Path) -> Iterator[str]:
    """What this file imports against the table; what it imports for its types alone breaks nothing."""
    name = name_of(path)
    for found in imports(path):
        at = f"{name}:{found.line} imports {found.module}"
        if name.startswith("gradsight/") and is_below(found.module, "gradsight_server"):
            yield f"{at}: the client never imports the server"
        if found.is_for_types:
            continue
        for module, allowed in ONLY_IN.items():
            if is_below(found.module, module) and not fits(name, allowed):
                yield f"{at}: only {', '.join(allowed) or 'nobody'} may"
        if (
            name.startswith("gradsight_server/")
            and name != "gradsight_server/demo.py"
            and is_below(found.module, "gradsight")
        ):
            room = found.module.split(".")[1:2]
            if room and room[0] not in SHARED:
                yield f"{at}: the server knows {', '.join(SHARED)} of the client only"
        if fits(name, PURE) and any(is_below(found.module, module) for module in IMPURE):
            yield f"{at}: it is pure"


def test_both_packages_are_looked_at() -> None:
    assert {name_of(path).partition("/")[0] for path in FILES} == {"gradsight", "gradsight_server"}
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    assert list(breaches(path)) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    """At import time: what a function imports late is not counted."""
    known = {name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in FILES}
    graph = {module: needed(path, known) - {module} for module, path in known.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"a circle: {' → '.join((*trail, module))}"
        if module in done:
            return
        for target in sorted(graph[module]):
            visit(target, (*trail, module))
        done.add(module)

    for module in sorted(graph):
        visit(module, ())


def needed(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules this one needs when it is loaded; `from package import module` needs the module, not the package's
    own names."""
    by_line: dict[int, set[str]] = {}
    for found in top_level_imports(path):
        if found.module in known:
            by_line.setdefault(found.line, set()).add(found.module)
    return {
        module
        for modules in by_line.values()
        for module in modules
        if not any(other != module and is_below(other, module) for other in modules)
    }


def top_level_imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = {node.lineno for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    yield from (found for found in imports(path) if found.line in lines and not found.is_for_types)


def test_the_table_sees_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gradsight_server"
    (package / "api").mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGES", (package,))
    (package / "figures").mkdir()
    bad = package / "figures" / "series.py"
    bad.write_text(
        "import time\nfrom gradsight import monitor\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from sqlalchemy import Connection\nfrom fastapi import FastAPI\n"
    )
    found = " ".join(breaches(bad))
    assert "imports time: it is pure" in found
    assert "imports gradsight.monitor: the server knows" in found
    assert "imports fastapi: only" in found
    assert "sqlalchemy" not in found
