"""Steps with given columns, and what the diagnosis says of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradsight import wire
from gradsight_server.diagnosis import (
    Context,
    Diagnosis,
    Finding,
    Histogram,
    LayerNorms,
    RangeFacts,
    StreamSteps,
    diagnose,
)

Floats = NDArray[np.float64]


def usual_norms(num_steps: int = 1000, *, median: float = 1.0, spread: float = 0.2, seed: int = 0) -> Floats:
    """Log-normal norms without drift."""
    return median * np.exp(np.random.default_rng(seed).normal(0.0, spread, num_steps))


def falling_loss(num_steps: int) -> Floats:
    return 1.0 + np.exp(-np.arange(num_steps) / num_steps)


def context(*, optimizer: str | None = None, **record: Any) -> Context:
    """A context whose stream record has these fields; `optimizer` is a class name."""
    if optimizer is not None:
        record["optimizer"] = wire.Optimizer(class_name=optimizer)
    return Context(record=wire.StreamRecord(**record))


def steps(norm: Any = None, *, layers: LayerNorms | None = None, **columns: Any) -> StreamSteps:
    """Steps from 0 on, with a falling loss where none is given; `max_norm` may be one number for all."""
    if norm is not None:
        columns["grad_norm_before_clip"] = norm
    num_steps = next(len(values) for values in columns.values() if not np.isscalar(values) and values is not None)
    filled = {name: np.full(num_steps, value) if np.isscalar(value) else value for name, value in columns.items()}
    step = filled.pop("step", np.arange(num_steps))
    return StreamSteps.of(step, layers=layers, **({"loss": falling_loss(num_steps)} | filled))


def layer_norms(norms: dict[str, Any]) -> LayerNorms:
    """One row a step from 0 on."""
    columns = [np.asarray(values, dtype=np.float64) for values in norms.values()]
    return LayerNorms(np.arange(len(columns[0])), tuple(norms), np.stack(columns, axis=1))


def said(norm: Any = None, *, about: Context | None = None, **columns: Any) -> Diagnosis:
    return diagnose(steps(norm, **columns), about)


def long_range(norms: Floats | None = None, *, num_steps: int = 0, **facts: Any) -> RangeFacts:
    """What rollups know of a range with these norms, or of so many steps."""
    histogram = None
    if norms is not None:
        positive = norms[norms > 0]
        edges = np.concatenate(
            [[0.0], 2.0 ** np.arange(np.log2(positive.min()) - 0.1, np.log2(positive.max()) + 0.1, 0.05)]
        )
        counts = np.bincount(np.maximum(np.searchsorted(edges, norms) - 1, 0), minlength=len(edges) - 1)
        histogram = Histogram(edges, counts[: len(edges) - 1])
        num_steps = len(norms)
    known = {"num_nonfinite": 0, "num_skipped": 0, "num_clipped": 0, "num_finite": num_steps}
    return RangeFacts(
        first_step=0, last_step=num_steps - 1, num_steps=num_steps, histogram=histogram, **(known | facts)
    )


def finding(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.code == code), None)


def codes(diagnosis: Diagnosis) -> set[str]:
    return {finding.code for finding in diagnosis.findings}
