"""Alerts are committed with the steps they are about: once, whichever server, however often sent, whenever killed."""

import math
from typing import Any

import pytest

from gradsight import wire
from gradsight_server.alerts.watch import Watch
from gradsight_server.store import deletion, models
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest
from gradsight_server.store.ticks import ticks_after
from tests.server.store.kit import RUN, Store

NAN = math.nan
FP32 = wire.StreamRecord(precision="fp32", scaler=None)


def alerts(store: Store) -> list[tuple[str, str, int]]:
    """(kind, state, times repeated) of every alert."""
    return [(row["kind"], row["state"], row["num_repeats"]) for row in store.rows(models.alerts)]


def burst(store: Store, first: int, **batch: Any) -> wire.Answer:
    norms = [1.0, 1.0, NAN, NAN, NAN]
    return store.send(list(range(first, first + 5)), grad_norm_before_clip=norms, **batch)


def calm(store: Store, first: int, num: int = 40, **batch: Any) -> wire.Answer:
    return store.send(list(range(first, first + num)), grad_norm_before_clip=[1.0] * num, **batch)


def test_a_burst_is_one_alert_one_tick_and_one_message(store: Store) -> None:
    answer = burst(store, 0, first_nonfinite_layer=[None, None, "head.weight", None, None])
    assert alerts(store) == [("nonfinite_burst", "open", 0)]
    (row,) = store.rows(models.alerts)
    assert (row["first_step"], row["last_step"], row["layer"]) == (2, 4, "head.weight")
    assert row["title"] == "NaN or Inf in 3 steps, first in head.weight"
    (tick,) = [tick for tick in store.read(ticks_after, 0, limit=100) if tick.kind == "alert"]
    assert (tick.alert_id, tick.change, tick.run_id) == (1, "opened", RUN)
    (message,) = store.rows(models.outbox)
    assert (message["project"], message["severity"]) == ("default", "critical")
    told = message["payload"]
    assert (told["title"], told["first_step"], told["stream"], told["attempt"]) == (row["title"], 2, "main", 1)
    assert [(notice.kind, notice.state, notice.first_step) for notice in answer.alerts] == [
        ("nonfinite_burst", "open", 2)
    ]


def test_what_folds_into_another_in_the_same_transaction_sends_no_message_of_its_own(store: Store) -> None:
    calm(store, 0)
    norms = [NAN] * 25
    store.send(
        list(range(40, 65)), grad_norm_before_clip=norms, loss=norms, loss_scale=[2.0 ** (10 - i) for i in range(25)]
    )
    opened = [(row["kind"], row["folded_into"]) for row in store.rows(models.alerts)]
    assert (opened[0], opened[-1]) == (("nonfinite_burst", len(opened)), ("dead_run", None))
    assert [row["payload"]["kind"] for row in store.rows(models.outbox)] == ["dead_run"]


def test_what_is_sent_again_opens_nothing_again(store: Store) -> None:
    for _ in range(3):
        burst(store, 0)
    assert alerts(store) == [("nonfinite_burst", "open", 0)]
    assert len(store.rows(models.outbox)) == 1


def test_a_burst_cut_in_two_by_a_restart_is_one_alert(url: str) -> None:
    for first, norms in ((0, [1.0, NAN, NAN]), (3, [NAN, 1.0])):
        database = Database(url)
        database.migrate()
        store = Store(database)
        store.put()
        store.send([first + i for i in range(len(norms))], grad_norm_before_clip=norms)
        found = alerts(store)
        database.close()
    assert found == [("nonfinite_burst", "open", 0)]


@pytest.mark.postgresql
def test_batches_that_go_to_two_servers_in_turn_open_one_alert(postgresql_url: str) -> None:
    databases = [Database(postgresql_url) for _ in range(2)]
    stores = [Store(database) for database in databases]
    stores[0].put()
    norms = [1.0, NAN, 1.0, NAN, NAN, NAN]
    for step, norm in enumerate(norms):
        for store in stores:  # each step to both, as a client does that has heard no answer
            store.send([step], grad_norm_before_clip=[norm])
    assert alerts(stores[0]) == [("nonfinite_burst", "open", 0)]
    assert len(stores[1].rows(models.outbox)) == 1
    for database in databases:
        database.close()


def test_an_alert_resolves_and_is_repeated_within_its_cool_down(store: Store) -> None:
    burst(store, 0)
    answer = calm(store, 5)
    assert alerts(store) == [("nonfinite_burst", "resolved", 0)]
    assert [notice.state for notice in answer.alerts] == ["resolved"]
    burst(store, 45)
    assert alerts(store) == [("nonfinite_burst", "open", 1)]
    store.now_s += 2 * 3600
    calm(store, 50)
    burst(store, 90)
    assert alerts(store) == [("nonfinite_burst", "resolved", 1), ("nonfinite_burst", "open", 0)]
    assert [row["payload"]["alert_id"] for row in store.rows(models.outbox)] == [1, 2]


def test_answers_tell_of_an_alert_for_a_minute_after_it_changed_and_heartbeats_do_too(store: Store) -> None:
    assert calm(store, 0, 10).alerts == []
    burst(store, 10)
    store.now_s += 30
    assert [notice.id for notice in store.send().alerts] == [1]
    store.now_s += 31
    assert store.send().alerts == []


def test_a_new_launch_ends_the_alerts_of_the_one_before_and_hears_of_its_own_only(store: Store) -> None:
    burst(store, 0, attempt_id="a", attempt_started_at_s=1.0)
    answer = calm(store, 3, 5, attempt_id="b", attempt_started_at_s=2.0)
    assert alerts(store) == [("nonfinite_burst", "resolved", 0)]
    assert answer.alerts == []
    burst(store, 8, attempt_id="a", attempt_started_at_s=1.0)
    assert alerts(store) == [("nonfinite_burst", "resolved", 0)], "an older launch's spool is history"
    burst(store, 8, attempt_id="b", attempt_started_at_s=2.0)
    assert alerts(store)[1] == ("nonfinite_burst", "open", 0)


def test_streams_are_judged_each_by_itself(store: Store) -> None:
    burst(store, 0, stream="generator")
    calm(store, 0, stream="discriminator")
    (row,) = store.rows(models.alerts)
    assert store.send(stream="discriminator").alerts[0].stream == "generator"
    assert row["state"] == "open"


def test_of_groups_one_cause_is_one_alert_and_each_groups_clipping_is_judged(store: Store) -> None:
    groups = 'groups("0.*": 0.1, "a/*": 1.0, "*": 1.0)'
    records = {
        stream: wire.StreamRecord(precision="fp32", scaler=None, policy=policy)
        for stream, policy in (("main", groups), ("main/a/*", "global_norm(1.0)"), ("gan", "global_norm(1.0)"))
    }
    store.put(streams=records)
    for stream in ("main", "main/0.*", "main/a/*", "main/*"):
        burst(store, 0, stream=stream)
    assert alerts(store) == [("nonfinite_burst", "open", 0)]
    num = 2_500
    steps, norms = list(range(5, 5 + num)), [5.0, 3.0, 8.0, 4.0, 7.0] * (num // 5)
    for stream in ("main", "main/a/*"):
        store.send(steps, grad_norm_before_clip=norms, max_norm=[1.0] * num, stream=stream)
    assert [(row["kind"], row["stream_key"]) for row in store.rows(models.alerts)] == [
        ("nonfinite_burst", 1),
        ("over_clipping", 2),
    ]
    assert {row["payload"]["stream"] for row in store.rows(models.outbox)} == {"main", "main/a/*"}


def test_a_slash_alone_makes_no_group(store: Store) -> None:
    groups = wire.StreamRecord(policy='groups("0.*": 0.1, "*": 1.0)')
    store.put(streams={"gan": wire.StreamRecord(policy="global_norm(1.0)"), "main": groups})
    for stream in ("alone/generator", "gan/generator", "main/generator", "/main", "main/"):
        burst(store, 0, stream=stream)
    assert len(alerts(store)) == 5


def test_another_rank_is_not_judged(store: Store) -> None:
    store.send([0, 0, 1, 1, 2, 2], grad_norm_before_clip=[1.0, NAN] * 3, rank=[0, 1] * 3)
    assert alerts(store) == []


def test_a_run_that_finishes_has_nothing_wrong_any_more_and_one_that_failed_has(store: Store) -> None:
    burst(store, 0)
    store.send(events=[wire.Event(kind="finished")])
    assert alerts(store) == [("nonfinite_burst", "resolved", 0)]
    other = "e" * 32
    store.put(other)
    store.send([0, 1, 2], run_id=other, loss=[NAN] * 3)
    store.send(run_id=other, events=[wire.Event(kind="failed")])
    assert alerts(store)[1] == ("loss_nonfinite", "open", 0)


def test_an_acknowledged_alert_that_repeats_stays_acknowledged(store: Store) -> None:
    burst(store, 0)
    seen = {"state": "acknowledged", "acknowledged_at_s": 1.0}
    store.write(lambda conn: conn.execute(models.alerts.update().values(seen)))
    calm(store, 5)
    burst(store, 45)
    assert alerts(store) == [("nonfinite_burst", "acknowledged", 1)]


def test_what_a_spool_brings_days_later_is_an_alert_without_a_message(store: Store) -> None:
    store.now_s = 1e9
    burst(store, 0, wall_time_s=[1e9 - 200_000 + i for i in range(5)])
    assert alerts(store) == [("nonfinite_burst", "open", 0)]
    assert store.rows(models.outbox) == []


def test_a_log_that_is_imported_sends_messages_only_of_what_is_known_to_be_new(store: Store) -> None:
    store.now_s = 1e9
    burst(store, 0, attempt_id="import-1")
    assert (alerts(store), store.rows(models.outbox)) == ([("nonfinite_burst", "open", 0)], [])
    other = "e" * 32
    store.put(other)
    burst(store, 0, run_id=other, attempt_id="import-1", wall_time_s=[1e9 - 60 + i for i in range(5)])
    assert len(store.rows(models.outbox)) == 1


def test_lost_rows_are_told_of_once_however_many_streams_there_are(store: Store) -> None:
    for stream in ("main", "other"):
        calm(store, 0, stream=stream)
    for stream in ("other", "main"):
        store.send(stream=stream, dropped={"queue_full": 500})
    assert alerts(store) == [("telemetry_loss", "open", 0)]


def test_a_mistake_in_a_rule_costs_no_step(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(watch: Watch, columns: object) -> None:
        raise RuntimeError("a rule is broken")

    with monkeypatch.context() as patched:
        patched.setattr(Watch, "see", fail)
        assert burst(store, 0).accepted_steps == 5
        burst(store, 5)
    assert caplog.text.count("the alert rules failed") == 1
    assert store.run()["num_steps"] == 10
    burst(store, 10)
    assert alerts(store) == [("nonfinite_burst", "open", 0)]


def test_with_the_run_go_its_alerts_and_what_was_remembered(store: Store) -> None:
    burst(store, 0)
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=store.now_s))
    for table in (models.alerts, models.alert_states, models.outbox):
        assert store.rows(table) == []


def test_a_run_deleted_in_the_transaction_of_its_steps_leaves_nothing(store: Store) -> None:
    def send_and_delete(conn: Any) -> None:
        batch = wire.Batch(step=[0, 1, 2], loss=[NAN] * 3)
        ingest(conn, RUN, "main", batch, now_s=store.now_s)
        deletion.delete_run(conn, RUN, now_s=store.now_s)

    store.write(send_and_delete)
    assert store.rows(models.alerts) == store.rows(models.outbox) == []
