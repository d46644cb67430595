"""Verdicts kept current by a real server: in the list within seconds, unhealthy first, each change an event once."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gradsight_server.judging import VerdictKeeper
from gradsight_server.schemas import RunPage
from gradsight_server.store.database import Database
from gradsight_server.store.evidence import evidence
from tests.server.api.kit import RUN, Running, next_of, running, wait_until
from tests.server.api.trainings import ADAM, FP16, fp16_goes_wrong, healthy, too_tight

OTHERS = [uuid.UUID(int=i).hex for i in range(1, 4)]


@pytest.fixture
def server_of_one_run(url: str) -> Iterator[Running]:
    with running(db=url) as server:
        server.put(streams={"main": ADAM})
        yield server


def verdict(server: Running, run_id: str = RUN) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"runs/{run_id}")["verdict"]
    return found


def is_judged(server: Running, clipping: str, run_id: str = RUN) -> bool:
    found = verdict(server, run_id)
    return found is not None and bool(found["clipping"]["verdict"] == clipping)


def told(server: Running, run_id: str = RUN) -> list[tuple[str, int]]:
    """Verdict events, oldest first."""
    items = server.get(f"runs/{run_id}/events")["items"]
    return [(item["message"], item["step"]) for item in reversed(items) if item["kind"] == "verdict"]


def test_a_verdict_is_in_the_list_soon_after_the_steps(server_of_one_run: Running) -> None:
    server = server_of_one_run
    assert verdict(server) is None
    server.send(too_tight())
    wait_until(lambda: is_judged(server, "too_tight"))
    page = server.get("runs")
    RunPage.model_validate(page)
    (run,) = page["items"]
    assert run["severity"] == "warning"
    assert run["verdict"]["clipping"] == {"verdict": "too_tight", "severity": "warning", "stream": "main"}
    assert run["verdict"]["loss_scaling"]["verdict"] == "not_used"
    assert run["verdict"]["nonfinite"] == {"num_steps": 0, "severity": "ok"}
    assert run["verdict"]["worst"]["code"] == "clipping_too_tight"


def test_a_change_is_an_event_once_and_comes_live(server_of_one_run: Running) -> None:
    server = server_of_one_run
    server.send(healthy())
    wait_until(lambda: is_judged(server, "healthy"))
    assert told(server) == []
    with server.live(RUN) as events:
        next(events)
        server.send(too_tight(first_step=400, num_steps=2000))
        wait_until(lambda: is_judged(server, "too_tight"))
        assert told(server) == [("clipping became too tight", 2399)]
        while (run := next_of(events, "run").data)["severity"] != "warning":
            pass
        assert run["verdict"]["clipping"]["verdict"] == "too_tight"
    server.send(too_tight(first_step=2400, num_steps=50))
    server.put(OTHERS[0])
    server.send(healthy(), run_id=OTHERS[0])
    wait_until(lambda: is_judged(server, "healthy", OTHERS[0]))  # it waited behind the first
    assert told(server) == [("clipping became too tight", 2399)]


def test_unhealthy_runs_come_first(server_of_one_run: Running) -> None:
    server = server_of_one_run
    for i, (run_id, batch, record) in enumerate(
        zip(OTHERS, (healthy(), fp16_goes_wrong(), too_tight()), (ADAM, FP16, ADAM), strict=True)
    ):
        server.put(run_id, streams={"main": record}, started_at_s=1000.0 + i)
        server.send(batch, run_id=run_id)
    wait_until(lambda: all(verdict(server, run_id) is not None for run_id in OTHERS))

    def order(sort: str, **query: Any) -> list[str]:
        return [run["id"] for run in server.get("runs", sort=sort, **query)["items"]]

    by_need = [OTHERS[1], OTHERS[2], OTHERS[0], RUN]
    assert order("severity") == by_need
    assert order("-severity") == by_need[::-1]
    paged: list[str] = []
    cursor = None
    while len(paged) < 4:
        page = server.get("runs", sort="severity", limit=1, **({"cursor": cursor} if cursor else {}))
        paged += [run["id"] for run in page["items"]]
        cursor = page["next_cursor"]
    assert (paged, cursor) == (by_need, None)
    assert told(server, OTHERS[1]) == [("the model itself became NaN", 399)]


def test_what_came_while_no_server_was_there_is_judged_at_the_next_start(url: str) -> None:
    with running(db=url) as server:
        server.app.state.verdicts.close()
        server.put()
        server.send(too_tight())
        assert verdict(server) is None
    with running(db=url) as server:
        wait_until(lambda: is_judged(server, "too_tight"))


def test_two_servers_that_judge_one_run_tell_it_once(url: str) -> None:
    with running(db=url) as server:
        server.app.state.verdicts.close()
        server.put()
        server.send(too_tight())
        databases = [Database(url) for _ in range(2)]
        keepers = [VerdictKeeper(database) for database in databases]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda keeper: keeper.start(), keepers))
            wait_until(lambda: is_judged(server, "too_tight"))
            list(pool.map(lambda keeper: keeper.close(), keepers))
        for database in databases:
            database.close()
        assert told(server) == [("clipping became too tight", 399)]


def test_a_run_that_cannot_be_judged_keeps_no_other_from_it(
    server_of_one_run: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server, seen = server_of_one_run, []

    def broken(conn: Any, run_id: str, **options: Any) -> Any:
        seen.append(run_id)
        if run_id == RUN:
            raise ArithmeticError("by intention")
        return evidence(conn, run_id, **options)

    monkeypatch.setattr("gradsight_server.judging.keeper.evidence", broken)
    server.send(healthy())
    server.put(OTHERS[0])
    server.send(healthy(), run_id=OTHERS[0])
    wait_until(lambda: is_judged(server, "healthy", OTHERS[0]))
    wait_until(lambda: RUN in seen)
    assert "could not judge" in caplog.text
