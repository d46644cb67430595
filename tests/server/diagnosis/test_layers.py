"""Layers that dominate, vanish, explode, die, change of a sudden, or do not add up."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Diagnosis, diagnose
from tests.server.diagnosis.kit import codes, finding, layer_norms, steps, usual_norms


def model(changed: dict[str, Any] | None = None, num_steps: int = 200, **named: Any) -> Diagnosis:
    """Ten layers of about the same norm; `changed` and `named` give layers by name, as norms or a factor."""
    norms = {f"layer{i}.weight": usual_norms(num_steps, seed=i) for i in range(10)}
    for name, value in ((changed or {}) | named).items():
        norms[name] = value * usual_norms(num_steps, seed=99) if isinstance(value, float) else np.asarray(value)
    total = np.sqrt(sum(np.where(np.isfinite(v) & (v > 0), v, 0) ** 2 for v in norms.values()))
    return diagnose(steps(total, layers=layer_norms(norms)))


def test_layers_that_are_alike_are_no_finding() -> None:
    answer = model()
    assert not any(finding_.code.startswith("layers") for finding_ in answer.findings)


@pytest.mark.parametrize(("factor", "is_found"), [(2.5, False), (4.0, True)])
def test_a_layer_with_half_of_the_squared_norm_dominates(factor: float, is_found: bool) -> None:
    answer = model(head=factor)
    assert answer.layers.dominant == (["head"] if is_found else [])
    assert answer.severity == "info"


@pytest.mark.parametrize(("factor", "is_found"), [(3e-4, False), (5e-5, True)])
def test_a_layer_below_a_ten_thousandth_of_the_large_ones_vanishes(factor: float, is_found: bool) -> None:
    assert model(stem=factor).layers.vanishing == (["stem"] if is_found else [])


def test_vanishing_is_a_warning_only_where_it_is_not_a_layer_or_a_bias() -> None:
    one = finding(model(stem=1e-6), "layers_vanishing")
    assert one is not None
    assert one.severity == "info"
    two = finding(model({"layer0.weight": 1e-6}, stem=1e-6), "layers_vanishing")
    assert two is not None
    assert two.severity == "warning"
    assert model({"key.bias": 1e-8}).layers.vanishing == []


@pytest.mark.parametrize(("factor", "is_found"), [(500.0, False), (3000.0, True)])
def test_a_layer_a_thousand_times_above_the_others_explodes(factor: float, is_found: bool) -> None:
    answer = model(router=factor)
    assert answer.layers.exploding == (["router"] if is_found else [])
    assert (answer.severity == "warning") == is_found


@pytest.mark.parametrize(("num_zero", "is_found"), [(49, False), (50, True)])
def test_a_layer_of_zeros_for_fifty_rows_is_dead(num_zero: int, is_found: bool) -> None:
    norms = usual_norms(200)
    norms[200 - num_zero :] = 0.0
    assert model(unit=norms).layers.dead == (["unit"] if is_found else [])


def test_experts_and_frozen_layers_are_not_dead() -> None:
    answer = model({"experts.3.weight": np.zeros(200), "frozen": np.full(200, -1.0)})
    assert answer.layers.dead == []
    found = finding(answer, "layers_without_gradient")
    assert found is not None
    assert (found.severity, found.evidence["num_layers"]) == ("info", 1)


@pytest.mark.parametrize(("factor", "is_found"), [(50.0, False), (200.0, True), (1 / 200, True)])
def test_a_layer_that_jumps_against_the_others_is_named(factor: float, is_found: bool) -> None:
    norms = usual_norms(200)
    norms[-30:] *= factor
    answer = model(jumper=norms)
    assert ("layers_sudden_change" in codes(answer)) == is_found


def test_layers_that_jump_together_are_no_sudden_change() -> None:
    norms = {f"layer{i}": usual_norms(200, seed=i) * np.where(np.arange(200) < 170, 1, 500) for i in range(5)}
    assert "layers_sudden_change" not in codes(diagnose(steps(usual_norms(200), layers=layer_norms(norms))))


@pytest.mark.parametrize(("factor", "is_found"), [(1.0, False), (1.04, False), (1.07, True), (0.5, True)])
def test_layers_must_add_up_to_the_total(factor: float, is_found: bool) -> None:
    layers = layer_norms({"a": np.full(100, 3.0), "b": np.full(100, 4.0)})
    answer = diagnose(steps(np.full(100, 5.0) / factor, layers=layers))
    assert ("layers_do_not_add_up" in codes(answer)) == is_found


def test_fewer_than_fifty_rows_of_layers_bear_no_verdict() -> None:
    assert model(num_steps=49, stem=1e-9).layers.vanishing == []


def test_overflowed_rows_say_nothing_of_a_layer() -> None:
    norms = usual_norms(200)
    norms[::7] = np.inf
    assert model(head=norms).layers.exploding == []
