"""What is drawn beside a stream's own steps: the older attempts it replaced, and the user's own metrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gradsight_server.figures.traces import AT_THE_TOP, MARKS_AXIS, Figure, Trace, curve, framed, marks

if TYPE_CHECKING:
    from gradsight_server.store.metrics import MetricCurve
    from gradsight_server.store.series import Series

GHOST_OF = {"norm": "grad_norm_before_clip", "loss": "loss"}
"""The figures that show older attempts, and by which column."""


def ghost(name: str, series: "Series", attempt: int) -> Trace:
    """The steps of an older attempt that a newer one has taken the place of; no tick extends them."""
    column = series.columns[GHOST_OF[name]]
    return curve(series.step, column.mean, f"{name}.ghost", role="ghost") | {"attempt": attempt}


def metrics_figure(
    curves: Sequence["MetricCurve"],
    *,
    stream: str,
    attempt: int | None,
    position: int,
    first_step: int | None,
    last_step: int | None,
) -> Figure:
    """All metrics; every trace says which metric it is of, for each has a scale of its own."""
    return framed(
        "metrics",
        [trace for metric in curves for trace in _traces(metric)],
        {"yaxis": {"type": "linear"}, "yaxis2": MARKS_AXIS},
        stream=stream,
        attempt=attempt,
        position=position,
        first_step=first_step,
        last_step=last_step,
        bucket_steps=max((metric.bucket_steps for metric in curves), default=1),
    )


def _traces(metric: "MetricCurve") -> list[Trace]:
    found = []
    if metric.bucket_steps > 1:
        found.append(curve(metric.step, metric.min, "metrics.range", role="band_low"))
        found.append(curve(metric.step, metric.max, "metrics.range", role="band_high") | {"fill": "tonexty"})
    found.append(curve(metric.step, metric.mean, "metrics.mean", role="series"))
    odd = metric.step[metric.num_nonfinite > 0]
    at_the_top = np.full(odd.shape, AT_THE_TOP)
    found.append(marks("metrics.nonfinite", "nonfinite", odd, at_the_top, None) | {"yaxis": "y2"})
    about = {"metric": metric.name, "bucket_steps": metric.bucket_steps}
    return [trace | about for trace in found]
