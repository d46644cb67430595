"""Hundreds of made-up runs: no warning over a healthy one, also while it is under way, and no sick one missed."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Column, LayerNorms, StreamSteps, diagnose
from tests.server.diagnosis.simulated import HEALTHY, SICK, Sick

SEEDS = range(5)
MOMENTS = (1, 5, 12, 30, 60, 100, 200)
"""A run under way is judged after so many steps."""


def until(steps: StreamSteps, num_rows: int) -> StreamSteps:
    """As it was when so many steps were taken."""
    columns = {column.name: getattr(steps, column.name) for column in fields(steps)}
    cut: dict[str, Any] = {
        name: Column(column.values[:num_rows], column.recorded[:num_rows])
        if isinstance(column, Column)
        else column[:num_rows]
        for name, column in columns.items()
        if column is not None and not isinstance(column, LayerNorms)
    }
    layers = steps.layers
    if layers is not None:
        layers = LayerNorms(layers.step[:num_rows], layers.names, layers.norms[:num_rows])
    return StreamSteps(**cut, layers=layers)


def on_the_way(steps: StreamSteps) -> Iterator[StreamSteps]:
    yield from (until(steps, moment) for moment in MOMENTS if moment < len(steps.step))
    yield steps


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_never_warned_about(name: str) -> None:
    for seed in SEEDS:
        run = HEALTHY[name](np.random.default_rng(seed))
        for steps in on_the_way(run.steps):
            answer = diagnose(steps, run.context)
            said = [f"{found.severity} {found.code}: {found.advice}" for found in answer.findings]
            assert answer.severity in ("ok", "info"), (seed, len(steps.step), said)


@pytest.mark.parametrize("sick", SICK, ids=[f"{i}-{sick.code}" for i, sick in enumerate(SICK)])
def test_what_is_wrong_with_a_sick_run_is_found(sick: Sick) -> None:
    for seed in SEEDS:
        answer = diagnose(*sick.make(np.random.default_rng(seed)))
        assert sick.code in {found.code for found in answer.findings}, seed
        is_fault = sick.code not in ("norm_drift", "layers_dominant")
        assert answer.severity in (("warning", "critical") if is_fault else ("info",)), seed


def test_there_are_enough_of_them() -> None:
    assert len(HEALTHY) * len(SEEDS) >= 100
    assert len(SICK) * len(SEEDS) >= 100
