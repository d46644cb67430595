"""Whatever the numbers are, there is an answer, in plain JSON, and not even a warning."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradsight import wire
from gradsight_server.diagnosis import (
    Context,
    Diagnosis,
    LayerNorms,
    MetricSeries,
    RangeFacts,
    StreamSteps,
    diagnose,
)
from tests.server.diagnosis.kit import context, said, steps, usual_norms

ODD = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, 1e-308, 1.7e308, 5e-324, math.nan, math.inf, -math.inf]
POLICIES = [
    wire.UNSET,
    None,
    "global_norm(1.0)",
    "global_norm(inf)",
    "global_norm(max_norm=zscore())",
    "global_norm(max_norm=cosine(start=2.0, end=1.0, total_steps=10))",
    "tensor_norm(1.0)",
    "unit_norm()",
    "not a policy",
]


def plain(diagnosis: Diagnosis) -> dict[str, Any]:
    """The answer after a way through strict JSON."""
    return json.loads(json.dumps(diagnosis.to_json(), allow_nan=False))  # type: ignore[no-any-return]


class Given:
    """What one example is made of; numbers come from a seed, since drawing each of thousands would take minutes."""

    def __init__(self, seed: int, num_steps: int, kinds: dict[str, str], record: wire.StreamRecord) -> None:
        self._random = np.random.default_rng(seed)
        self._num_steps = num_steps
        self._described = f"Given({seed}, {num_steps}, {kinds}, {record})"
        self.steps = StreamSteps.of(
            self._step(), layers=self._layers(), **{n: self._column(n, k) for n, k in kinds.items()}
        )
        self.context = Context(
            record=record,
            metrics={"val_loss": MetricSeries(self.steps.step, self._odd(num_steps))},
            rank_norms={1: self._odd(num_steps)},
            dropped={"queue_full": int(self._random.integers(9))},
            growth_interval=self._one_of([None, 0, 1, 2000]),
        )
        self.facts = self._one_of([None, FACTS])

    def __repr__(self) -> str:
        return self._described

    def _one_of(self, choices: list[Any]) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def _odd(self, *shape: int) -> NDArray[np.float64]:
        return self._random.choice(ODD, shape)

    def _step(self) -> NDArray[np.int64]:
        anywhere = np.sort(self._random.integers(0, 2**53, self._num_steps))
        return self._one_of([anywhere, np.arange(self._num_steps), np.zeros(self._num_steps, dtype=np.int64)])  # type: ignore[no-any-return]

    def _usual(self, *shape: int) -> NDArray[np.float64]:
        """Log-normal, with some odd values among them."""
        values = self._random.lognormal(self._random.uniform(-5, 5), self._random.uniform(0, 3), shape)
        return np.where(self._random.random(shape) < self._one_of([0.0, 0.03]), self._odd(*shape), values)

    def _column(self, name: str, kind: str) -> list[Any]:
        words = {"skip_reason": wire.SKIP_REASONS, "nonfinite_kind": ("nan", "inf", "nan+inf")}
        n = self._num_steps
        if name in wire.TEXT_COLUMNS:
            return [self._one_of([*words.get(name, ("a.b",)), None]) for _ in range(n)]
        values = {
            "odd": self._odd(n),
            "constant": np.full(n, self._one_of(ODD)),
            "usual": self._usual(n),
            "flags": (self._random.random(n) < self._random.random()).astype(float),
            "falling": 65536.0 * 0.5 ** np.arange(n),
        }[kind]
        holes = self._random.random(n) < self._one_of([0.0, 0.1, 1.0])
        return [None if hole else value for value, hole in zip(values.tolist(), holes.tolist(), strict=True)]

    def _layers(self) -> LayerNorms | None:
        num_layers = int(self._random.integers(7))
        step = np.arange(self._num_steps)[:: self._one_of([1, 3])]
        with np.errstate(all="ignore"):
            norms = self._usual(len(step), num_layers) * self._one_of([0.0, 1.0, 1e30, 1e300])
        layers = LayerNorms(step, tuple(f"layer{i}.weight" for i in range(num_layers)), norms)
        return self._one_of([None, layers])  # type: ignore[no-any-return]


FACTS = RangeFacts(
    first_step=0, last_step=9, num_steps=10**7, num_finite=10**7, num_nonfinite=3, num_skipped=2, num_clipped=1
)
KINDS = ["odd", "constant", "usual", "flags", "falling"]
SCALERS = [wire.UNSET, None, "static(8.0)", "dynamic(growth_interval=2)", "dynamic(growth_interval=x)"]
OPTIMIZERS = [wire.UNSET, wire.Optimizer(class_name="SGD"), wire.Optimizer(class_name="AdamW")]
RECORDS = st.builds(
    wire.StreamRecord,
    policy=st.sampled_from(POLICIES),
    precision=st.sampled_from([wire.UNSET, "fp16", "bf16", "fp32"]),
    scaler=st.sampled_from(SCALERS),
    optimizer=st.sampled_from(OPTIMIZERS),
)


@settings(max_examples=600, deadline=None)
@given(
    st.builds(
        Given,
        st.integers(0, 2**32),
        st.sampled_from([0, 1, 2, 7, 49, 50, 120, 300]),
        st.dictionaries(st.sampled_from(wire.COLUMNS), st.sampled_from(KINDS)),
        RECORDS,
    )
)
def test_any_columns_have_an_answer(example: Given) -> None:
    answer = plain(diagnose(example.steps, example.context, example.facts))
    assert all(finding["title"] and finding["advice"] for finding in answer["findings"])
    assert not any("{" in finding["title"] + finding["advice"] for finding in answer["findings"])


@pytest.mark.parametrize("num_steps", [0, 1])
def test_hardly_any_steps_are_unknown(num_steps: int) -> None:
    answer = plain(diagnose(steps(np.ones(num_steps), max_norm=np.ones(num_steps))))
    assert answer["clipping"]["verdict"] == "unknown"
    assert answer["range"]["num_steps"] == num_steps


@pytest.mark.parametrize("norm", [1e-30, 1.0, 1e30], ids=str)
def test_a_constant_norm_bears_no_recommendation(norm: float) -> None:
    answer = said(np.full(200, norm), max_norm=2 * norm)
    assert answer.clipping.norm.p50 == pytest.approx(norm)
    assert answer.clipping.recommended_max_norm is None


@pytest.mark.parametrize("max_norm", ODD, ids=str)
@pytest.mark.parametrize("other", ODD, ids=str)
def test_the_hugest_and_tiniest_numbers_have_an_answer(max_norm: float, other: float) -> None:
    norms = np.tile([1.7e308, other, 5e-324, 1.0], 60)
    plain(
        said(
            norms,
            max_norm=max_norm,
            loss_scale=np.abs(other),
            about=Context(record=wire.StreamRecord(precision="fp16")),
        )
    )


def test_norms_that_are_all_zero_are_unknown() -> None:
    answer = said(np.zeros(200), loss=np.ones(200), max_norm=1.0)
    assert (answer.clipping.verdict, answer.severity) == ("unknown", "warning")


def test_norms_that_are_all_nan_are_unknown() -> None:
    answer = said(np.full(200, np.nan), max_norm=1.0)
    assert answer.clipping.verdict == "unknown"
    assert answer.nonfinite.num_steps == 200


@pytest.mark.parametrize("scale", [1e-30, 1e30], ids=str)
def test_a_verdict_does_not_depend_on_the_size_of_the_numbers(scale: float) -> None:
    norms = scale * np.exp(np.random.default_rng(0).normal(0, 0.3, 500))
    answer = said(norms, max_norm=0.1 * scale)
    assert answer.clipping.verdict == "too_tight"
    assert answer.clipping.recommended_max_norm is not None


def test_an_infinite_threshold_is_no_clipping() -> None:
    assert said(np.linspace(1, 2, 200), max_norm=np.inf).clipping.verdict == "off"


def test_a_coefficient_of_zero_has_an_answer() -> None:
    assert said(usual_norms(80), clip_coef=0.0).clipping.verdict == "too_tight"


def test_words_leave_out_a_scale_or_a_threshold_that_was_not_recorded() -> None:
    skipped = np.arange(300) % 7 == 0
    reasons = ["overflow" if one else None for one in skipped]
    answers = [
        said(usual_norms(300), skipped=skipped, skip_reason=reasons, about=context(precision="fp16", scaler=scaler))
        for scaler in ("static(8.0)", "dynamic(growth_interval=50)")
    ]
    about = context(policy="tensor_norm(1.0)")
    answers.append(said(usual_norms(300), clipped_layer_fraction=0.0, clip_coef=1.0, about=about))
    assert answers[2].clipping.verdict == "inactive"
    for answer in answers:
        for found in answer.findings:
            assert "unknown number" not in found.advice
