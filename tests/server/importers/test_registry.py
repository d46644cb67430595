"""Formats are found by lying in their folder, told by content, and listed where people look."""

import re
from pathlib import Path

import pytest

from gradsight_server.errors import SettingsError
from gradsight_server.importers.format import FileFormat, LineFormat
from gradsight_server.importers.logs import read_logs
from gradsight_server.importers.registry import (
    GENERIC,
    HEAD_BYTES,
    LAST,
    as_markdown,
    format_named,
    known_formats,
    recognise,
)
from tests.server.importers.kit import steps, write

ROOT = Path(__file__).parents[3]


def test_the_documented_table_is_the_code() -> None:
    assert as_markdown() in (ROOT / "docs" / "importers.md").read_text("utf-8")


def test_each_format_says_what_it_is() -> None:
    known = known_formats()
    assert {*GENERIC, LAST} <= known.keys()
    for name, one in known.items():
        assert isinstance(one, LineFormat | FileFormat)
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert name == one.name
        assert one.title
        assert one.source


def test_each_format_has_a_test() -> None:
    tests = {path.name for path in (ROOT / "tests" / "server" / "importers" / "formats").glob("test_*.py")}
    files = {path.stem for path in (ROOT / "server" / "gradsight_server" / "importers" / "formats").glob("[a-z]*.py")}
    # The generic ones are tested in test_logs.py.
    untested = {name for name in files - {*GENERIC, LAST} if f"test_{name}.py" not in tests}
    assert untested == set()


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"--format must be auto or one of .*csv_table.*; got 'nope'"):
        format_named("nope")


def test_a_log_is_told_by_its_end_where_its_head_is_all_words(tmp_path: Path) -> None:
    preamble = "downloading something, please wait\n" * (5 * HEAD_BYTES // 34)
    path = write(tmp_path, preamble + "".join(f"step {i}: grad_norm={i}.5\n" for i in range(100)))
    found = recognise(path)
    assert found is not None
    assert found.name == LAST
    middle = write(tmp_path, preamble + "step 1: grad_norm=1.5\n" * 20_000 + preamble * 3, "middle")
    assert recognise(middle) is not None
    assert recognise(write(tmp_path, preamble, "nothing")) is None


def test_a_name_says_nothing_about_a_format(tmp_path: Path) -> None:
    path = write(tmp_path, [{"step": 1, "grad_norm": 2.0}], "table.csv")
    found = recognise(path)
    assert found is not None
    assert found.name == "jsonl"


def test_a_format_may_be_forced(tmp_path: Path) -> None:
    path = write(tmp_path, '{"step": 1, "grad_norm": 2.0}\n{"step": 2, "grad_norm": 3.0}\n')
    (log,) = read_logs(path, format_name="key_value")
    assert (log.format_name, steps(log.parts[0])) == ("key_value", [1, 2])


def test_one_line_that_looks_like_another_tools_does_not_win_a_log(tmp_path: Path) -> None:
    own = "".join(f"step {i}: grad_norm={i}.5\n" for i in range(100))
    stray = "s:3 trl:3.1 lr:0.1 norm:2.5\n"  # as llm.c writes
    found = recognise(write(tmp_path, own + stray))
    assert found is not None
    assert found.name == LAST
    found = recognise(write(tmp_path, stray * 20 + own))
    assert found is not None
    assert found.name == "llmc"
