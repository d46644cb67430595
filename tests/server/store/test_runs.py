"""Runs are put, listed, looked at, patched and deleted."""

from typing import Any

import pytest

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store import deletion, models, runs
from gradsight_server.store.runs import list_runs, normal_run_id
from gradsight_server.store.summaries import run_state
from gradsight_server.store.ticks import ticks_after
from tests.server.store.kit import RUN, Store


def ids(page: dict[str, Any]) -> list[int]:
    return [int(item["id"], 16) for item in page["items"]]


def listed(store: Store, **options: Any) -> list[int]:
    return ids(store.read(list_runs, now_s=store.now_s, **options))


@pytest.fixture
def several(store: Store) -> Store:
    """Runs 1 to 5, each started later than the one before, beside none else."""
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=0.0))
    projects = ["lm", "gan", "lm", "lm", "gan"]
    for i, project in enumerate(projects, 1):
        tags = ["even", 'say "hi"'] if i % 2 == 0 else ["odd"]
        store.put(f"{i:032x}", project=project, name=f"run_{i}%", tags=tags, started_at_s=100.0 * i)
    return store


def test_a_run_put_empty_has_plain_defaults(store: Store) -> None:
    run = store.run()
    assert (run["project"], run["name"], run["status"], run["tags"]) == ("default", RUN[:8], "running", [])
    assert (run["started_at_s"], run["last_seen_s"]) == (store.now_s, store.now_s)
    assert (run["streams"], run["last_step"], run["num_steps"], run["archived"]) == ([], None, 0, False)
    names = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss", "loss_scale")
    assert run["last"] == {**dict.fromkeys(names), "nonfinite": {}}


def test_the_newest_value_tells_nan_from_not_recorded(store: Store) -> None:
    store.send([0], grad_norm_before_clip=[1.0], loss=["-Infinity"], lr=["NaN"])
    store.send([1], grad_norm_before_clip=["NaN"], loss=[None])
    assert store.run()["last"]["nonfinite"] == {"grad_norm_before_clip": "NaN"}
    store.send([2], loss=["Infinity"], lr=["NaN"])
    assert store.run()["last"]["nonfinite"] == {"loss": "Infinity"}
    store.send([3], loss=[1.0])
    assert store.run()["last"]["nonfinite"] == {}


def test_keys_merge_and_absent_ones_stay(store: Store) -> None:
    adam = wire.Optimizer(class_name="AdamW", lr=3e-4, betas=[0.9, 0.95])
    store.put(project="lm", config={"lr": 1.0, "model": {"d": 64}}, frameworks={"torch": "2.13.0"}, total_steps=10)
    store.put(config={"seed": 1}, tags=["x"], streams={"main": wire.StreamRecord(optimizer=adam, precision="fp16")})
    store.put(total_steps=None, streams={"main": wire.StreamRecord(policy="global_norm(1.0)", precision="bf16")})
    run = store.run()
    assert (run["project"], run["tags"], run["total_steps"]) == ("lm", ["x"], None)
    assert run["config"] == {"lr": 1.0, "model": {"d": 64}, "seed": 1}
    assert run["frameworks"] == {"torch": "2.13.0"}
    assert run["streams_detail"]["main"]["record"] == {
        "optimizer": {"class": "AdamW", "lr": 3e-4, "betas": [0.9, 0.95]},
        "policy": "global_norm(1.0)",
        "precision": "bf16",
    }


def test_a_run_started_when_its_first_launch_did(store: Store) -> None:
    store.put(started_at_s=500.0)
    store.put(started_at_s=2000.0)
    assert store.run()["started_at_s"] == 500.0


def test_a_config_that_json_cannot_carry_is_refused_by_name(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="config must be what JSON can carry"):
        store.put(config={"bad": {(1, 2): 3}})
    store.put(config={"nan": float("nan")})
    assert store.run()["config"] == {"nan": None}


@pytest.mark.parametrize("text", ["0123456789ABCDEF" * 2, "01234567-89ab-cdef-0123-456789abcdef"])
def test_run_ids_are_32_hex_digits_with_or_without_hyphens(text: str) -> None:
    assert normal_run_id(text) == RUN


@pytest.mark.parametrize("text", ["", "abc", "g" * 32, RUN + "0", RUN[:-1] + "\n", "٠" * 32])
def test_other_run_ids_are_refused_with_their_value(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="32 hex digits"):
        normal_run_id(text)


def test_the_list_shows_the_newest_start_first(several: Store) -> None:
    assert listed(several) == [5, 4, 3, 2, 1]
    assert listed(several, sort="started_at_s") == [1, 2, 3, 4, 5]
    assert listed(several, sort="-project") == [4, 3, 1, 5, 2]


@pytest.mark.parametrize("sort", ["-started_at_s", "name", "project", "-last_seen_s"])
def test_a_cursor_brings_every_run_once(several: Store, sort: str) -> None:
    found: list[int] = []
    cursor = None
    for _ in range(3):
        page = several.read(list_runs, now_s=0.0, sort=sort, limit=2, cursor=cursor)
        found += ids(page)
        cursor = page["next_cursor"]
    assert cursor is None
    assert found == listed(several, sort=sort)


def test_the_list_is_filtered(several: Store) -> None:
    several.send(run_id=f"{3:032x}", events=[wire.Event(kind="failed")])
    assert listed(several, project="lm") == [4, 3, 1]
    assert listed(several, status="failed") == [3]
    assert listed(several, status="running", project="lm") == [4, 1]
    assert listed(several, tag="even") == [4, 2]
    assert listed(several, tag='say "hi"') == [4, 2]
    assert listed(several, tag="eve") == []
    assert listed(several, q="RUN_4") == [4]
    assert listed(several, q="%") == [5, 4, 3, 2, 1]
    assert listed(several, q="n__") == []
    assert listed(several, q="ga") == [5, 2]


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("ÄRGER mit Öl", "ärger"),
        ("ärger mit öl", "ÄRGER MIT ÖL"),
        ("Обучение", "ОБУЧЕНИЕ"),
        ("ΟΔΟΣ", "οδοσ"),
        ("Ǆ", "ǆ"),
        ("ǅ", "Ǆ"),
        ("50 % Ö_ 学习", "50 % ö_ 学"),
        ("ßtraße", "ßTRAß"),
    ],
)
def test_upper_and_lower_case_are_one_in_any_language(store: Store, kept: str, asked: str) -> None:
    """Also where the database's locale knows the letters of ASCII alone, as that of these tests' PostgreSQL."""
    store.put("e" * 32, name="Arger", project="OL", tags=["Öl 2"])
    for where in ({"name": kept}, {"project": f"in {kept}"}):
        store.put(**({"name": "n", "project": "p"} | where))
        assert ids(store.read(list_runs, now_s=0.0, q=asked)) == [int(RUN, 16)]
    store.put(tags=["first", "ÖL"])
    for tag in ("öl", "Öl", "ÖL"):
        assert ids(store.read(list_runs, now_s=0.0, tag=tag)) == [int(RUN, 16)]


def test_archived_runs_are_listed_only_when_asked_for(several: Store) -> None:
    run_id = f"{2:032x}"
    several.write(lambda conn: runs.patch_run(conn, run_id, now_s=1.0, archived=True))
    assert listed(several) == [5, 4, 3, 1]
    assert listed(several, status="archived") == [2]
    several.write(lambda conn: runs.patch_run(conn, run_id, now_s=1.0, archived=False))
    assert listed(several, status="archived") == []


@pytest.mark.parametrize(
    ("options", "named"),
    [({"sort": "loss"}, "sort"), ({"limit": 0}, "limit"), ({"status": "dead"}, "status"), ({"cursor": "?é"}, "cursor")],
)
def test_a_list_asked_for_wrongly_names_the_parameter(store: Store, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{named} must"):
        listed(store, **options)


@pytest.mark.parametrize("sort", ["-started_at_s", "-name", "project"])
def test_a_cursor_of_another_order_is_refused(several: Store, sort: str) -> None:
    cursor = several.read(list_runs, now_s=0.0, sort="name", limit=1)["next_cursor"]
    with pytest.raises(InvalidRequestError, match="cursor"):
        listed(several, cursor=cursor, sort=sort)


def test_a_patch_changes_only_what_it_names(store: Store) -> None:
    store.put(tags=["x"])
    store.write(lambda conn: runs.patch_run(conn, RUN, now_s=1.0, name="<b>new</b>", notes="why"))
    run = store.run()
    assert (run["name"], run["notes"], run["tags"], run["archived"]) == ("<b>new</b>", "why", ["x"], False)


def test_an_unknown_run_is_not_found(store: Store) -> None:
    unknown = "f" * 32
    with pytest.raises(RunNotFoundError, match=unknown):
        store.run(unknown)
    with pytest.raises(RunNotFoundError):
        store.write(lambda conn: runs.patch_run(conn, unknown, now_s=1.0, name="x"))
    with pytest.raises(RunNotFoundError):
        store.write(lambda conn: deletion.delete_run(conn, unknown, now_s=1.0))


def test_delete_deletes_everything_of_the_run_and_nothing_of_another(store: Store) -> None:
    other = "e" * 32
    store.put(other)
    for run_id in (RUN, other):
        store.send(
            [0],
            run_id=run_id,
            loss=[1.0],
            layers=["a"],
            layer_step=[0],
            layer_norms=[[1.0]],
            metrics=[wire.Metric(step=0, name="val", value=1.0)],
            events=[wire.Event(kind="note")],
        )
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=store.now_s))
    for table in models.metadata.tables.values():
        if "run_id" in table.c and table is not models.ticks:
            left = {row["run_id"] for row in store.rows(table)}
            assert left <= {other}
            assert left or table.name in {"buckets", "bucket_blobs", "alerts", "outbox", "deletions", "sparklines"}
    assert store.read(ticks_after, 0, limit=100)[-1].kind == "deleted"
    with pytest.raises(RunNotFoundError):
        store.send([1], loss=[1.0])


@pytest.mark.parametrize(
    ("status", "seen_ago", "step_ago", "pace", "state"),
    [
        ("finished", 1e6, 1e6, 1.0, "finished"),
        ("failed", 1e6, 1e6, 1.0, "failed"),
        ("running", 31.0, 31.0, 1.0, "silent"),
        ("running", 29.0, 100.0, 1.0, "running"),
        ("running", 2.0, 31.0, 1.0, "stalled"),
        ("running", 2.0, 29.0, 1.0, "running"),
        ("running", 2.0, 100.0, 0.04, "running"),
        ("running", 2.0, 130.0, 0.04, "stalled"),
        ("running", 2.0, None, None, "running"),
        ("running", 2.0, 31.0, None, "stalled"),
    ],
)
def test_the_state_follows_from_what_was_seen_when(
    status: str, seen_ago: float, step_ago: float | None, pace: float | None, state: str
) -> None:
    now_s = 1e7
    last_step_at_s = None if step_ago is None else now_s - step_ago
    assert state == run_state(
        status, last_seen_s=now_s - seen_ago, last_step_at_s=last_step_at_s, steps_per_s=pace, now_s=now_s
    )
