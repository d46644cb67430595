"""Alerts in the training process: what the local rules tell, who is called back, and that `stop_on` stops in time."""

import math
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

import gradsight
from gradsight import wire
from gradsight.alerts import BURST, WINDOW, Alert, LocalRules
from gradsight.errors import ConfigurationError
from gradsight.hearing import Hearing
from tests.client.conftest import small_model

DEADLINE_S = 30.0


def batch(norms: Sequence[float], first_step: int = 0, **columns: Sequence[object]) -> wire.Batch:
    steps = list(range(first_step, first_step + len(norms)))
    return wire.Batch(step=steps, grad_norm_before_clip=list(norms), **columns)  # type: ignore[arg-type]


def looked(*batches: wire.Batch, stream: str = "main") -> list[tuple[str, str, int | None]]:
    rules = LocalRules()
    return [(alert.kind, alert.state, alert.first_step) for each in batches for alert in rules.look(stream, each)]


def test_a_burst_is_told_once_and_again_when_it_is_over() -> None:
    norms = [1.0] * 30 + [math.nan] * BURST + [1.0] * WINDOW
    assert looked(batch(norms)) == [("nonfinite_burst", "open", 30), ("nonfinite_burst", "resolved", 30)]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_single_bad_steps_far_apart_are_none(norm: float) -> None:
    assert looked(batch(([norm] + [1.0] * WINDOW) * 5)) == []


def test_a_run_whose_every_step_is_bad_is_dead() -> None:
    found = looked(*(batch([math.nan], step) for step in range(WINDOW + 5)))
    assert found == [("nonfinite_burst", "open", 0), ("dead_run", "open", 0)]


def test_the_first_skips_of_a_loss_scale_are_no_burst() -> None:
    scales = [2.0 ** (24 - i) for i in range(10)] + [2.0**14] * 30
    norms = [math.inf] * 10 + [1.0] * 30
    after = [scale / 2 for scale in scales[:10]] + scales[10:]
    assert looked(batch(norms, loss_scale=scales, loss_scale_after=after)) == []


def test_a_scale_that_falls_without_end_is_one() -> None:
    scales = [2.0 ** (16 - i) for i in range(40)]
    found = looked(batch([math.nan] * 40, loss_scale=scales, loss_scale_after=[scale / 2 for scale in scales]))
    assert [(kind, state) for kind, state, _ in found] == [("nonfinite_burst", "open"), ("dead_run", "open")]


def test_steps_without_a_gradient_and_groups_count_for_nothing() -> None:
    reasons = ["no_gradient"] * 10
    assert looked(batch([math.nan] * 10, skip_reason=reasons)) == []
    rules = LocalRules()
    assert list(rules.look("main", batch([1.0] * 10))) == []
    assert list(rules.look("main/*router*", batch([math.nan] * 10))) == []


def test_a_stream_with_a_slash_in_its_name_is_no_group() -> None:
    assert looked(batch([math.nan] * BURST), stream="gan/generator") == [("nonfinite_burst", "open", 0)]


def notice(state: str, first_step: int, last_step: int, *, id: int = 1, kind: str = "nonfinite_burst") -> wire.Answer:
    what = {"id": id, "kind": kind, "state": state, "first_step": first_step, "last_step": last_step}
    found = msgspec.convert({"severity": "critical", "title": "bad", "stream": "main", **what}, wire.AlertNotice)
    return wire.Answer(accepted_steps=1, alerts=[found])


@pytest.fixture
def heard() -> tuple[Hearing, list[tuple[str, str, bool]]]:
    hearing = Hearing(lambda reason, num, error: None)
    told: list[tuple[str, str, bool]] = []
    hearing.listen(lambda alert: told.append((alert.kind, alert.state, alert.is_local)))
    return hearing, told


Heard = tuple[Hearing, list[tuple[str, str, bool]]]


def test_what_opens_and_passes_between_two_answers_is_told_as_both(heard: Heard) -> None:
    hearing, told = heard
    for _ in range(2):
        hearing.answered(notice("resolved", 5, 9, kind="norm_spike"))
    assert told == [("norm_spike", "open", False), ("norm_spike", "resolved", False)]


def test_steps_that_the_local_rules_have_told_of_are_not_told_again_by_the_server(heard: Heard) -> None:
    hearing, told = heard
    hearing.recorded("main", batch([1.0] * 30 + [math.nan] * BURST + [1.0] * WINDOW))
    for state in ("open", "resolved"):
        hearing.answered(notice(state, 30, 33))
    assert told == [("nonfinite_burst", "open", True), ("nonfinite_burst", "resolved", True)]
    hearing.answered(notice("open", 200, 203, id=2))
    assert told[2:] == [("nonfinite_burst", "open", False)]


def test_steps_that_the_server_has_told_of_are_not_told_again_by_the_local_rules(heard: Heard) -> None:
    hearing, told = heard
    hearing.answered(notice("open", 30, 33))
    hearing.recorded("main", batch([1.0] * 30 + [math.nan] * BURST + [1.0] * WINDOW))
    hearing.answered(notice("resolved", 30, 33))
    assert told == [("nonfinite_burst", "open", False), ("nonfinite_burst", "resolved", False)]


def test_a_burst_that_becomes_a_dead_run_is_told_as_that_too(heard: Heard) -> None:
    hearing, told = heard
    hearing.answered(notice("open", 0, 3))
    hearing.recorded("main", batch([math.nan] * (WINDOW + 5)))
    assert told == [("nonfinite_burst", "open", False), ("dead_run", "open", True)]


def test_stop_on_needs_a_run_that_could_hear() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match="stop_on must be left out without a run"):
        gradsight.Monitor(model, optimizer, stop_on={"dead_run"})


def test_callbacks_hear_local_alerts_without_a_server(run: gradsight.Run) -> None:
    heard: list[Alert] = []
    is_there = threading.Event()

    def hear(alert: Alert) -> None:
        heard.append(alert)
        is_there.set()

    run.on_alert(lambda alert: 1 / 0)
    run.on_alert(hear)
    for step in range(5):
        run.log_step(step, grad_norm_before_clip=math.nan)
    assert is_there.wait(DEADLINE_S)
    run.finish()
    (alert,) = heard
    assert (alert.kind, alert.first_step, alert.is_local) == ("nonfinite_burst", 0, True)
    assert run.num_dropped == {"callback_error": 0}


def test_what_an_answer_repeats_is_told_once(run: gradsight.Run) -> None:
    heard: list[tuple[str, str, int]] = []
    run.on_alert(lambda alert: heard.append((alert.kind, alert.state, alert.num_repeats)))
    notice = wire.AlertNotice(id=3, kind="norm_spike", severity="warning", state="open", title="x", first_step=7)
    assert run._exporter is not None
    for changed in (notice, notice, msgspec.structs.replace(notice, num_repeats=1)):
        run._exporter.hearing.answered(wire.Answer(accepted_steps=0, alerts=[changed]))
    run.finish()
    assert heard == [("norm_spike", "open", 0), ("norm_spike", "open", 1)]


def test_the_servers_word_for_a_local_alert_is_no_second_one(run: gradsight.Run) -> None:
    heard: list[Alert] = []
    run.on_alert(heard.append)
    assert run._exporter is not None
    hearing = run._exporter.hearing
    hearing.recorded("main", batch([1.0] * 10 + [math.nan] * 3))
    notice = wire.AlertNotice(
        id=1, kind="nonfinite_burst", severity="critical", state="open", title="x", first_step=10, stream="main"
    )
    hearing.answered(wire.Answer(accepted_steps=13, alerts=[notice]))
    run.finish()
    assert [alert.is_local for alert in heard] == [True]


def test_a_callback_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    forever = threading.Event()
    run = gradsight.Run(spool_dir=tmp_path, mode="offline", quiet=True)
    try:
        run.on_alert(lambda alert: forever.wait(DEADLINE_S))
        for step in range(100):
            run.log_step(step, grad_norm_before_clip=math.nan)
        ended = threading.Thread(target=run.finish)
        ended.start()
        ended.join(DEADLINE_S / 2)
        assert not ended.is_alive()
    finally:
        forever.set()


def test_stop_on_stops_before_the_next_step_changes_anything(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run, stop_on={"nonfinite_burst"})
    is_heard = threading.Event()
    run.on_alert(lambda alert: is_heard.set())
    for _ in range(BURST):
        optimizer.zero_grad()
        monitor.step((model(torch.ones(2, 4)) * math.nan).sum())
    assert is_heard.wait(DEADLINE_S)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.zero_grad()
    with pytest.raises(
        gradsight.TrainingStopped, match=r"nonfinite_burst: 3 of 20 steps .* \(since step 0\)"
    ) as stopped:
        monitor.step(model(torch.ones(2, 4)).sum())
    assert stopped.value.alert.kind == "nonfinite_burst"
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    result = monitor.step(model(torch.ones(2, 4)).sum())  # who catches it may go on
    assert (result.step, result.skipped) == (BURST, False)


def test_nothing_stops_a_training_that_did_not_ask(run: gradsight.Run) -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), run=run, stop_on={"dead_run"})
    is_heard = threading.Event()
    run.on_alert(lambda alert: is_heard.set())
    for _ in range(BURST + 1):
        monitor.step((model(torch.ones(2, 4)) * math.nan).sum())
    assert is_heard.wait(DEADLINE_S)
    assert monitor.step(model(torch.ones(2, 4)).sum()).step == BURST + 1


@pytest.mark.parametrize(
    ("stop_on", "told"),
    [
        ("dead_run", "stop_on must be a set of kinds of alerts, got 'dead_run'"),
        ({"deadrun"}, "stop_on must hold kinds among dead_run, .*, got 'deadrun'"),
        (7, "stop_on must be a set of kinds of alerts, got 7"),
    ],
)
def test_wrong_kinds_are_refused(stop_on: object, told: str) -> None:
    model = small_model()
    with pytest.raises(ConfigurationError, match=told):
        gradsight.Monitor(model, torch.optim.SGD(model.parameters(), lr=0.1), stop_on=stop_on)  # type: ignore[arg-type]


def test_a_callback_must_be_callable(run: gradsight.Run) -> None:
    with pytest.raises(ConfigurationError, match="callback must be a function of one alert, got 'print'"):
        run.on_alert("print")  # type: ignore[arg-type]
