"""Learning rate, updates, validation metrics, clipping that is not applied: gradients beside the rest of training."""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import MetricSeries
from gradsight_server.diagnosis.levels import streaks
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning


def clip_not_applied(observed: Observed) -> Iterator[Found]:
    """The norm is above the threshold, yet the recorded coefficient left the gradient as it was."""
    column, thresholds = observed.steps.clip_coef, observed.max_norm
    if column is None or thresholds is None or not observed.setting.has_global_coef:
        return
    above = observed.finite & column.finite & (observed.norm > 1.01 * thresholds)
    if observed.setting.kind == "fixed" and observed.setting.max_norm is None and observed.steps.max_norm is None:
        return  # the threshold itself was worked out from the coefficients
    untouched = above & (column.values >= 0.999)
    rows = np.flatnonzero(untouched)
    if len(rows) < 3 or len(rows) < 0.5 * np.count_nonzero(above):
        return
    yield Found(
        code="clip_not_applied",
        severity="warning",
        evidence={
            "num_steps": len(rows),
            "max_norm": float(np.median(thresholds[rows])),
            "median_norm": float(np.median(observed.norm[rows])),
        },
        steps=spanning(observed, rows[0], rows[-1]),
    )


def threshold_not_positive(observed: Observed) -> Iterator[Found]:
    """0 means "off" to some frameworks and "zero all gradients" to torch; below 0 torch turns gradients around."""
    column = observed.steps.max_norm
    if column is None:
        return
    rows = np.flatnonzero(column.finite & (column.values <= 0))
    if len(rows):
        yield Found(
            code="threshold_not_positive",
            severity="info",
            variant="negative" if bool(np.any(column.values[rows] < 0)) else "",
            evidence={"num_steps": len(rows), "max_norm": float(column.values[rows[-1]])},
            steps=spanning(observed, rows[0], rows[-1]),
        )


def lr_without_steps(observed: Observed) -> Iterator[Found]:
    """The learning rate decays over steps that were not applied: the schedule runs ahead of the training."""
    lr = observed.steps.lr
    if lr is None or not observed.skipped.any():
        return
    falls = np.zeros(observed.num_rows, dtype=np.bool_)
    falls[:-1] = lr.finite[:-1] & lr.finite[1:] & (lr.values[1:] < lr.values[:-1])
    wasted = falls & observed.skipped
    num_wasted = int(np.count_nonzero(wasted))
    longest = max((int(np.count_nonzero(falls[a:b])) for a, b in streaks(observed.skipped)), default=0)
    if longest < borders.LR_MOVES:
        return
    nothing_applied = bool(observed.skipped.all())
    rows = np.flatnonzero(wasted)
    yield Found(
        code="lr_moves_without_steps",
        severity="warning" if longest >= borders.LR_MOVES_MANY or nothing_applied else "info",
        evidence={
            "num_decays": num_wasted,
            "longest": longest,
            "num_applied": int(np.count_nonzero(~observed.skipped)),
        },
        steps=spanning(observed, rows[0], rows[-1]),
    )


def lr_jumped(observed: Observed) -> Iterator[Found]:
    """The learning rate rose many times over at once: a wrong schedule, or a restart."""
    lr = observed.steps.lr
    if lr is None:
        return
    there = np.flatnonzero(lr.finite & (lr.values > 0))
    values = lr.values[there]
    if len(values) < borders.BURST_WINDOW:
        return
    in_use = values[:-1] >= 0.1 * np.median(values)  # a warm-up may begin with a leap from next to nothing
    jumps = np.flatnonzero(in_use & (values[1:] >= borders.LR_JUMP_RATIO * values[:-1]))
    if len(jumps):
        last = int(jumps[-1])
        yield Found(
            code="lr_jumped",
            severity="info",
            evidence={
                "at_step": observed.step_at(there[last + 1]),
                "lr_before": float(values[last]),
                "lr_after": float(values[last + 1]),
            },
            steps=spanning(observed, there[last + 1], there[-1]),
        )


def update_ratio(observed: Observed) -> Iterator[Found]:
    """The updates are large or small beside the weights."""
    column = observed.steps.update_ratio
    if column is None or np.count_nonzero(column.finite) < borders.MIN_NORMS:
        return
    rows = np.flatnonzero(column.finite)[-borders.NEWEST_JUDGED :]
    ratio = float(np.median(column.values[rows]))
    if ratio > borders.HIGH_UPDATE_RATIO or 0 < ratio < borders.LOW_UPDATE_RATIO:
        yield Found(
            code="update_ratio_unusual",
            severity="info",
            variant="high" if ratio > borders.HIGH_UPDATE_RATIO else "low",
            evidence={"update_ratio": ratio},
            steps=spanning(observed, rows[0], rows[-1]),
        )


def validation_turned(observed: Observed) -> Iterator[Found]:
    """A validation metric has been getting worse for some time, and over the same time clipping has changed."""
    clipped = observed.clipped
    if clipped is None or len(observed.rows) < borders.MIN_NORMS:
        return
    for name, metric in sorted(observed.context.metrics.items()):
        sign = _better_when(name)
        turned_at = _turn(metric, sign) if sign else None
        if turned_at is None:
            continue
        step = observed.step[observed.rows]
        is_clipped = clipped[observed.rows]
        before, after = is_clipped[step <= turned_at], is_clipped[step > turned_at]
        if min(len(before), len(after)) < borders.BURST_WINDOW:
            continue
        change = float(np.mean(after)) - float(np.mean(before))
        if abs(change) < borders.TURNED_CLIPPING:
            continue
        yield Found(
            code="validation_turned",
            severity="warning",
            variant="tighter" if change > 0 else "looser",
            evidence={
                "clip_fraction_before": float(np.mean(before)),
                "clip_fraction_after": float(np.mean(after)),
                "turned_at_step": turned_at,
                "best": float(sign * np.max(sign * metric.values[np.isfinite(metric.values)])),
                "newest": float(metric.values[np.isfinite(metric.values)][-1]),
            },
            names=(name,),
            steps=(turned_at, int(metric.step[-1])),
        )


def _better_when(name: str) -> int:
    """1 where a higher value is better, −1 where a lower one is; 0 where it is no validation metric we know."""
    words = name.lower()
    if not any(part in words for part in ("val", "eval", "test", "dev")):
        return 0
    if any(part in words for part in ("loss", "ppl", "perplexity", "nll", "err", "wer", "cer", "bpb", "mse", "mae")):
        return -1
    return 1 if any(part in words for part in ("acc", "bleu", "f1", "auc", "reward", "map", "rouge")) else 0


def _turn(metric: MetricSeries, sign: int) -> int | None:
    """The step of the best value, where all since are clearly worse, and enough of them."""
    there = np.isfinite(metric.values)
    values, step = sign * metric.values[there], metric.step[there]
    if len(values) <= borders.TURNED_EVALUATIONS:
        return None
    best = int(np.argmax(values))
    since = values[best + 1 :]
    bends = np.abs(values[1:-1] - (values[:-2] + values[2:]) / 2)  # of one evaluation; a trend does not bend
    noise = 1.4826 * float(np.median(bends)) / 1.5**0.5
    worse = since < values[best] - max(borders.TURNED_FRACTION * abs(values[best]), borders.TURNED_SIGMAS * noise)
    newest = worse[-borders.TURNED_EVALUATIONS :]
    return int(step[best]) if len(newest) == borders.TURNED_EVALUATIONS and bool(newest.all()) else None
