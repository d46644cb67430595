"""Whatever a run did, its diagnosis does not contradict itself."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import SEVERITIES, Diagnosis
from tests.server.diagnosis.kit import Floats, context, said

NUM_RUNS = 300


def levels(random: Any, num_steps: int) -> Floats:
    """Norms around a level that jumps, drifts and spikes."""
    cuts = np.sort(random.integers(0, num_steps, random.integers(1, 6)))
    level = np.exp(random.normal(0, 1.2, len(cuts) + 1))[np.searchsorted(cuts, np.arange(num_steps))]
    norms = level * np.exp(random.uniform(0.02, 1) * random.normal(size=num_steps))
    if random.random() < 0.3:
        norms *= np.geomspace(1, 10 ** random.uniform(-3, 3), num_steps)
    if random.random() < 0.3:
        norms[random.integers(0, num_steps, 5)] *= 10 ** random.uniform(1, 3, 5)
    found: Floats = norms
    return found


def thresholds(random: Any, num_steps: int) -> Floats:
    """A threshold that stands, falls or rises, jumps, or trembles."""
    max_norm, other = np.exp(random.normal(0, 1, 2)).tolist()
    kind = int(random.integers(4))
    kinds: list[Floats] = [
        np.full(num_steps, max_norm),
        np.linspace(max_norm, other, num_steps),
        np.where(np.arange(num_steps) < num_steps * float(random.random()), max_norm, other),
        max_norm * np.exp(0.2 * random.normal(size=num_steps)),
    ]
    return kinds[kind]


def run(seed: int) -> Diagnosis:
    random = np.random.default_rng(seed)
    num_steps = int(random.integers(50, 3000))
    about = [None, context(optimizer="AdamW"), context(optimizer="SGD"), context(policy=None)][random.integers(4)]
    norms = levels(random, num_steps)
    if random.random() < 0.3:
        norms[random.random(num_steps) < 0.05] = random.choice([np.nan, np.inf, 0.0])
    return said(norms, max_norm=thresholds(random, num_steps), about=about)


@pytest.fixture(scope="module")
def answers() -> list[Diagnosis]:
    return [run(seed) for seed in range(NUM_RUNS)]


def test_the_advice_is_to_raise_to_more_and_to_lower_to_less(answers: list[Diagnosis]) -> None:
    num_ranges = 0
    for answer in answers:
        for found in answer.findings:
            low, high, max_norm = (
                found.evidence.get(name) for name in ("recommended_low", "recommended_high", "max_norm")
            )
            if low is None or high is None or max_norm is None:
                continue
            num_ranges += 1
            advice = found.advice.lower()
            assert "raise max_norm to" not in advice or low > max_norm, advice
            assert "lower max_norm to" not in advice or high < max_norm, advice
    assert num_ranges > NUM_RUNS / 10


def test_a_section_is_as_severe_as_the_finding_that_says_its_verdict(answers: list[Diagnosis]) -> None:
    for answer in answers:
        severity = {found.code: found.severity for found in answer.findings}
        for code, section in (
            (f"clipping_{answer.clipping.verdict}", answer.clipping),
            (f"loss_scale_{answer.loss_scaling.verdict}", answer.loss_scaling),
        ):
            assert severity.get(code, section.severity) == section.severity
        assert answer.severity == max(
            (answer.clipping.severity, answer.loss_scaling.severity, *severity.values()), key=SEVERITIES.index
        )


def test_the_verdict_fits_the_fraction_it_names(answers: list[Diagnosis]) -> None:
    for answer in answers:
        clipping = answer.clipping
        if clipping.clip_fraction is None:
            assert clipping.verdict in ("off", "unknown")
        elif clipping.verdict == "too_tight":
            assert clipping.clip_fraction > 0.5
        elif clipping.verdict == "too_loose":
            assert clipping.clip_fraction < 0.01
        elif clipping.verdict == "healthy":
            assert "raise" not in clipping.advice.lower()


def test_what_is_healthy_is_not_told_to_change(answers: list[Diagnosis]) -> None:
    for answer in answers:
        for section in (answer.clipping, answer.loss_scaling):
            if section.verdict == "healthy":
                assert section.advice.endswith("Nothing to do.")
