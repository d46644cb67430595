"""A threshold changed from outside: from which step it holds, what is told of it, and all that is refused."""

from typing import Any

import pytest
import torch
from torch import nn

import gradsight
from gradsight import wire
from gradsight.errors import ConfigurationError
from gradsight.policies import parse_policy
from tests.client.conftest import rows, sent, small_model

GROUPS = parse_policy('groups("0.*": 1.0, "*": zscore())')


def monitored(run: gradsight.Run | None, clip: Any = 1.0, **options: Any) -> tuple[nn.Module, gradsight.Monitor]:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return model, gradsight.Monitor(model, optimizer, run=run, clip=clip, allow_control=True, **options)


def wish(run: gradsight.Run, max_norm: float, pattern: str | None = None, wish_id: int = 1) -> None:
    """As an answer of the server brings it: again and again."""
    assert run._exporter is not None
    control = wire.Control(id=wish_id, max_norm=max_norm, pattern=pattern)
    for _ in range(3):
        run._exporter.hearing.answered(wire.Answer(accepted_steps=0, control=[control]))


def train(model: nn.Module, monitor: gradsight.Monitor, num_steps: int) -> list[float | None]:
    """The thresholds of the steps."""
    found = []
    for _ in range(num_steps):
        model.zero_grad()
        found.append(monitor.step(model(torch.ones(2, 4)).square().sum()).max_norm)
    return found


def told(run: gradsight.Run) -> list[tuple[str, int | None, int | None, str]]:
    events = [event for _, _, batch in sent(run).batches for event in batch.events]
    found = [(event.kind, event.step, event.control_id, event.message) for event in events]
    return [event for event in found if event[0].startswith(("max_norm", "control"))]


def test_a_wish_holds_from_the_next_step_on_and_is_told_once(run: gradsight.Run) -> None:
    model, monitor = monitored(run)
    assert train(model, monitor, 2) == [1.0, 1.0]
    wish(run, 0.25)
    assert train(model, monitor, 2) == [0.25, 0.25]
    assert str(monitor.policy) == "global_norm(0.25)"
    assert told(run) == [("max_norm_changed", 2, 1, "max_norm changed from 1 to 0.25")]


def test_the_newest_of_several_wishes_wins_and_it_can_be_taken_back(run: gradsight.Run) -> None:
    model, monitor = monitored(run)
    wish(run, 0.5, wish_id=1)
    wish(run, 0.25, wish_id=2)
    assert train(model, monitor, 3) == [0.5, 0.25, 0.25]
    wish(run, 1.0, wish_id=3)
    assert train(model, monitor, 1) == [1.0]
    assert [event[2] for event in told(run)] == [1, 2, 3]


def test_the_servers_record_of_the_policy_follows(run: gradsight.Run) -> None:
    model, monitor = monitored(run)
    wish(run, 0.25)
    train(model, monitor, 1)
    (records,) = sent(run).runs.values()
    told = [record.streams["main"] for record in records if record.streams]
    assert [record.policy for record in told][-1] == "global_norm(0.25)"
    assert {record.allow_control for record in told} == {True}


def test_of_groups_one_is_named_and_the_others_learn_on(run: gradsight.Run) -> None:
    groups = parse_policy('groups("0.*": 1.0, "*": ema(warmup_steps=1))')

    def untouched(num_steps: int) -> gradsight.Monitor:
        model, monitor = monitored(None, groups)
        train(model, monitor, num_steps)
        return monitor

    model, monitor = monitored(run, groups)
    train(model, monitor, 3)
    wish(run, 0.125, "0.*")
    train(model, monitor, 1)
    assert monitor.state_dict()["thresholds"] == untouched(4).state_dict()["thresholds"]
    assert rows(sent(run), "main/0.*")["max_norm"] == [1.0, 1.0, 1.0, 0.125]


@pytest.mark.parametrize(
    ("clip", "max_norm", "pattern", "reason"),
    [
        (1.0, 0.5, "0.*", "this policy has no patterns"),
        (1.0, float("inf"), None, "max_norm must be positive, got inf"),
        (1.0, -1.0, None, "max_norm must be positive, got -1.0"),
        (GROUPS, 0.5, None, "pattern must be one of '0.*'"),
        (GROUPS, 0.5, "*", "pattern must be one of '0.*'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    run: gradsight.Run, clip: Any, max_norm: float, pattern: str | None, reason: str
) -> None:
    model, monitor = monitored(run, clip)
    text = str(monitor.policy)
    wish(run, max_norm, pattern)
    train(model, monitor, 2)
    assert str(monitor.policy) == text
    assert told(run) == [("control_refused", 0, 1, reason)]


def test_who_does_not_allow_it_is_left_alone(run: gradsight.Run) -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, torch.optim.SGD(model.parameters(), lr=0.0), run=run, clip=1.0)
    wish(run, 0.25)
    assert train(model, monitor, 2) == [1.0, 1.0]
    assert told(run) == []


def test_a_changed_threshold_survives_a_resume(run: gradsight.Run) -> None:
    model, monitor = monitored(run)
    wish(run, 0.25)
    train(model, monitor, 2)
    state = monitor.state_dict()
    again, resumed = monitored(None)
    resumed.load_state_dict(state)
    assert train(again, resumed, 1) == [0.25]
    assert resumed.state_dict()["max_norms"] == {None: 0.25}


@pytest.mark.parametrize("max_norms", [{None: -1.0}, {"x": 1.0}, 3])
def test_a_broken_state_changes_nothing(max_norms: Any) -> None:
    model, monitor = monitored(None)
    with pytest.raises(ConfigurationError, match="max_norms must"):
        monitor.load_state_dict(monitor.state_dict() | {"max_norms": max_norms, "num_steps": 7})
    assert monitor.num_steps == 0
    assert train(model, monitor, 1) == [1.0]


@pytest.mark.parametrize("clip", [None, gradsight.ZScore(), gradsight.Value(0.1), gradsight.UnitNorm()])
def test_without_a_fixed_max_norm_there_is_nothing_to_control(clip: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"allow_control must be False with clip .*: only a fixed max_norm"):
        monitored(None, clip)
