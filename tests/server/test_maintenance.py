"""`gradsight db compact` removes what need not be kept and gives its room back."""

from pathlib import Path

import numpy as np
import pytest

from gradsight_server import commands
from gradsight_server.store.database import Database
from gradsight_server.store.series import series
from tests.server.store.kit import RUN, Store

N = 6_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gradsight.db"
    db = Database(f"sqlite:///{path}")
    db.migrate()
    store = Store(db)
    store.put()
    norms = np.ones((N, 50), "<f4").tobytes()
    store.send(list(range(N)), loss=[1.0] * N, layers_id="x", layer_step=list(range(N)), layer_norms=norms)
    db.close()
    return path


def test_compacting_makes_the_file_smaller_and_keeps_the_charts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.stat().st_size
    assert commands.run(["db", "compact", "--db", str(file), "--keep-raw-steps", "3000"]) == 0
    out = capsys.readouterr().out
    assert "raw steps of 1 attempt were removed" in out
    assert "MB before" in out
    assert file.stat().st_size < 0.7 * before
    db = Database(f"sqlite:///{file}")
    try:
        assert Store(db).read(series, RUN, columns=["loss"], points=10).num_steps.sum() == N
    finally:
        db.close()


def test_compacting_without_a_rule_removes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["db", "compact", "--db", str(file)]) == 0
    assert "removed" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--keep-raw-days=0", "--keep-raw-steps=0", "--keep-raw-days=x"])
def test_a_wrong_rule_is_named(file: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["db", "compact", "--db", str(file), option]) == 2
    assert "keep" in capsys.readouterr().err


def test_compacting_a_database_that_is_not_there_makes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["db", "compact", "--db", str(tmp_path / "typo.db")]) == 2
    assert "typo.db" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
