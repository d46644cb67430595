"""What of a verdict is news: worse at once, else once it has lasted; each change once, and a good beginning never."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Diagnosis, StreamSteps, diagnose
from gradsight_server.judging.telling import SAID, Teller, Told, is_all_told
from gradsight_server.judging.verdict import in_brief, severity_of

HOLD_S = 30.0


def norms(num_steps: int = 400) -> Any:
    return 0.6 * np.exp(np.random.default_rng(0).normal(0.0, 0.4, num_steps))


def judged(max_norm: float, *, num_steps: int = 400, **columns: Any) -> Diagnosis:
    norm = norms(num_steps)
    given = {"grad_norm_before_clip": norm, "max_norm": np.full(num_steps, max_norm)} | columns
    return diagnose(StreamSteps.of(np.arange(num_steps), loss=1 + 1 / (1 + np.arange(num_steps)), **given))


HEALTHY, FIRM, TOO_TIGHT = judged(1.0), judged(0.72), judged(0.02)
UNKNOWN = judged(1.0, num_steps=20)
EARLY = judged(0.02, num_steps=100)
BROKEN = judged(1.0, grad_norm_before_clip=np.where(np.arange(400) < 350, norms(), np.nan))


class Telling:
    """A run judged again and again, and what is kept of what was told."""

    def __init__(self) -> None:
        self.teller = Teller(hold_s=HOLD_S)
        self.told: Told = {}

    def hear(self, diagnosis: Diagnosis, now_s: float, stream: str = "main") -> list[str]:
        diagnoses = {stream: diagnosis}
        self.teller.look("run", diagnoses, self.told, now_s=now_s)
        self.told, news = self.teller.news("run", diagnoses, self.told, now_s=now_s)
        return [item.message for item in news]


def test_the_verdicts_are_those_they_are_called() -> None:
    for diagnosis, verdict in ((HEALTHY, "healthy"), (FIRM, "firm"), (TOO_TIGHT, "too_tight"), (UNKNOWN, "unknown")):
        assert diagnosis.clipping.verdict == verdict


def test_a_good_beginning_is_no_news() -> None:
    telling = Telling()
    assert telling.hear(UNKNOWN, 0.0) == telling.hear(HEALTHY, 2.0) == telling.hear(HEALTHY, 100.0) == []


@pytest.mark.parametrize("before", [[], [UNKNOWN], [HEALTHY]], ids=["first", "unknown", "healthy"])
def test_what_is_wrong_is_told_at_once_and_once(before: list[Diagnosis]) -> None:
    telling = Telling()
    for diagnosis in before:
        assert telling.hear(diagnosis, 0.0) == []
    assert telling.hear(TOO_TIGHT, 1.0) == ["clipping became too tight"]
    for now_s in (3.0, 40.0, 1000.0):
        assert telling.hear(TOO_TIGHT, now_s) == []


@pytest.mark.parametrize("before", [[], [UNKNOWN]], ids=["first", "unknown"])
def test_a_bad_start_must_last(before: list[Diagnosis]) -> None:
    telling = Telling()
    for diagnosis in before:
        telling.hear(diagnosis, 0.0)
    assert telling.hear(EARLY, 1.0) == []
    assert not is_all_told({"main": EARLY}, telling.told)
    assert telling.hear(HEALTHY, 5.0) == []
    assert is_all_told({"main": HEALTHY}, telling.told)
    assert telling.hear(EARLY, 10.0) == telling.hear(EARLY, 39.0) == []
    assert telling.hear(EARLY, 10.0 + HOLD_S) == ["clipping became too tight"]
    assert telling.hear(TOO_TIGHT, 41.0) == []


def test_what_gets_better_must_last() -> None:
    telling = Telling()
    telling.hear(TOO_TIGHT, 0.0)
    assert telling.hear(HEALTHY, 10.0) == []
    assert not is_all_told({"main": HEALTHY}, telling.told)
    assert telling.hear(HEALTHY, 10.0 + HOLD_S) == ["clipping became healthy"]
    assert is_all_told({"main": HEALTHY}, telling.told)
    assert telling.hear(HEALTHY, 100.0) == []


def test_a_verdict_that_flickers_is_not_told_of() -> None:
    telling = Telling()
    telling.hear(HEALTHY, 0.0)
    said = [telling.hear(HEALTHY if i % 2 else FIRM, 2.0 * i) for i in range(100)]
    assert said == [[]] * 100
    assert telling.hear(FIRM, 300.0) == []
    assert telling.hear(FIRM, 300.0 + HOLD_S) == ["clipping became firm"]


def test_what_was_told_outlives_the_process() -> None:
    telling, after = Telling(), Telling()
    telling.hear(TOO_TIGHT, 0.0)
    after.told = telling.told
    assert after.hear(TOO_TIGHT, 5.0) == []


def test_gradients_that_turn_non_finite_are_news() -> None:
    telling = Telling()
    telling.hear(HEALTHY, 0.0)
    assert telling.hear(BROKEN, 2.0)[-1] in (SAID["nonfinite.warning"], SAID["nonfinite.critical"])


def test_a_run_is_as_badly_off_as_its_worst_stream() -> None:
    diagnoses = {"main": HEALTHY, "critic": TOO_TIGHT}
    brief = in_brief(diagnoses)
    assert brief["clipping"] == {"verdict": "too_tight", "severity": "warning", "stream": "critic"}
    assert brief["loss_scaling"]["stream"] == "main"
    assert brief["nonfinite"] == {"num_steps": 0, "severity": "ok"}
    assert brief["worst"] == {"code": "clipping_too_tight", "severity": "warning", "stream": "critic"}
    assert severity_of(diagnoses) == 2
    assert in_brief({"main": HEALTHY})["worst"] is None
    assert severity_of({"main": HEALTHY}) == 0
