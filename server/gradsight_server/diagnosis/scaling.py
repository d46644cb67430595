"""Is the loss scale healthy: one verdict from scale and skips, and what else is to be said of loss scaling.

A healthy dynamic scale is a sawtooth: a burst of skips finds it, then it doubles once in a growth interval and one or
two skips bring it back. What isn't healthy is judged by streaks, rate, trend and, where the loss itself is not finite,
by that: the loss is taken before scaling.
"""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.answer import ScalingVerdict, Severity
from gradsight_server.diagnosis.levels import streaks, trailing_streak
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.overflows import Overflows
from gradsight_server.diagnosis.rule import Found, spanning


def judge_scaling(observed: Observed, overflows: Overflows) -> tuple[ScalingVerdict, Found]:
    """The verdict, and the finding that carries it: code `loss_scale_<verdict>`."""
    verdict, severity, variant = _verdict(observed, overflows)
    rows = np.flatnonzero(overflows.skips[overflows.newest]) + overflows.newest.start
    first, last = (rows[0], rows[-1]) if len(rows) and severity != "ok" else (0, observed.num_rows - 1)
    is_lost = verdict in ("collapsed", "model_nan")
    if is_lost:
        first = _begin_of_last_streak(overflows)
    return verdict, Found(
        code=f"loss_scale_{verdict}",
        severity=severity,
        variant=variant,
        evidence=_evidence(observed, overflows) | ({"first_bad_step": observed.step_at(first)} if is_lost else {}),
        steps=spanning(observed, first, last) if observed.num_rows else None,
    )


def _verdict(observed: Observed, overflows: Overflows) -> tuple[ScalingVerdict, Severity, str]:
    record = observed.context.record
    if not overflows.is_scaled:
        known_off = record.scaler is None or record.precision in ("bf16", "fp32") or overflows.is_idle
        return ("not_used" if known_off else "unknown"), "ok", ""
    if _loss_is_lost(observed):
        return "model_nan", "critical", "loss"
    if overflows.kind == "static" or (overflows.kind == "unknown" and _stands_still(observed, overflows)):
        return "static", *_static(overflows)
    return _dynamic(observed, overflows)


def _loss_is_lost(observed: Observed) -> bool:
    """The newest losses are all non-finite: no scale can mend that."""
    loss = observed.steps.loss
    return loss is not None and trailing_streak(loss.nonfinite) >= borders.MODEL_NAN_LOSSES


def _stands_still(observed: Observed, overflows: Overflows) -> bool:
    """Whether a scale that never moved is a fixed one, rather than a scaler's that has not had to move yet, or that a
    log shows only where it has ended: nobody fixes one so small."""
    if overflows.skips.any() or not overflows.has_scale or float(overflows.scale[0]) < borders.COLLAPSED_SCALE:
        return False
    as_begun = float(overflows.scale[0]) in borders.INITIAL_SCALES
    return not as_begun or observed.num_rows > borders.NEVER_GROWS_INTERVALS * borders.USUAL_GROWTH_INTERVAL


def _static(overflows: Overflows) -> tuple[Severity, str]:
    if overflows.longest >= borders.COLLAPSED_STREAK:
        return "critical", "too_high"
    if overflows.longest >= borders.THRASHING_STREAK or overflows.is_over_rate:
        return "warning", "too_high"
    return "ok", ""


def _dynamic(observed: Observed, overflows: Overflows) -> tuple[ScalingVerdict, Severity, str]:
    scale = overflows.scale[overflows.newest]
    is_tiny = overflows.has_scale and len(scale) > 0 and float(scale.min()) < borders.COLLAPSED_SCALE
    if overflows.all_trailing >= borders.PURE_NAN_STREAK and _is_pure_nan(observed, overflows.all_trailing):
        return "model_nan", "critical", ""
    if overflows.longest >= borders.COLLAPSED_STREAK:
        if overflows.trailing >= borders.COLLAPSED_STREAK and _is_nan(observed, overflows.trailing):
            return "model_nan", "critical", ""
        return "collapsed", "critical", ""
    if overflows.num_stuck >= borders.THRASHING_STREAK:
        return "collapsed", "critical", "floor"
    if is_tiny:
        return "collapsed", "critical", "tiny"
    if overflows.search_ran_out or overflows.is_falling:
        return "collapsing", "warning", ""
    if overflows.longest >= borders.THRASHING_STREAK or overflows.is_over_rate:
        return "thrashing", "warning", ""
    searching = np.flatnonzero(overflows.searching)
    if len(searching) and observed.num_rows - 1 - searching[-1] < overflows.quiet_rows:
        return "warming_up", "info", "inferred" if overflows.inferred[searching].any() else ""
    return "healthy", "ok", "inferred" if overflows.inferred.any() else ""


def _is_nan(observed: Observed, num_newest: int) -> bool:
    """Whether the gradient was NaN on all of the newest steps, rather than infinite as in a mere overflow."""
    kinds, norm = observed.steps.nonfinite_kind, observed.steps.grad_norm_before_clip
    if kinds is not None and any(kinds[-num_newest:]):
        return all(kind is None or "nan" in kind for kind in kinds[-num_newest:])
    if norm is None:
        return False
    newest = norm.values[-num_newest:][norm.recorded[-num_newest:]]
    return len(newest) > 0 and bool(np.all(np.isnan(newest) | (newest < 0)))


def _is_pure_nan(observed: Observed, num_newest: int) -> bool:
    """Whether the record says of all of the newest gradients that they held NaN and no Inf: no overflow gives that."""
    kinds = observed.steps.nonfinite_kind
    return kinds is not None and all(kind == "nan" for kind in kinds[-num_newest:])


def _begin_of_last_streak(overflows: Overflows) -> int:
    found = streaks(overflows.skips)
    return found[-1][0] if found else 0


def totals(observed: Observed, overflows: Overflows) -> tuple[int, int]:
    """Steps and skipped steps of the whole range."""
    num_skipped, num_steps = overflows.counted(slice(None))
    facts = observed.facts
    if facts is None:
        return num_steps, num_skipped
    return max(num_steps, facts.num_steps), max(num_skipped, facts.num_skipped)


def _evidence(observed: Observed, overflows: Overflows) -> dict[str, float]:
    num_steps, num_skipped = totals(observed, overflows)
    num_skipped_since, num_judged = overflows.counted(overflows.newest)
    found = {
        "num_steps": num_steps,
        "num_skipped": num_skipped,
        "num_skipped_first": int(np.count_nonzero(overflows.searching)),
        "num_judged": num_judged,
        "num_skipped_since": num_skipped_since,
        "skip_rate_since": num_skipped_since / num_judged if num_judged else 0.0,
        "newest_streak": overflows.trailing,
    }
    if overflows.longest > 1:
        found["longest_streak"] = overflows.longest
    if overflows.has_scale:
        found |= {
            "first_scale": float(overflows.scale[0]),
            "last_scale": overflows.last_scale,
            "min_scale": min(float(overflows.scale.min()), overflows.last_scale),
        }
    if overflows.growth_interval is not None:
        found["growth_interval"] = overflows.growth_interval
    return found


def scale_found(observed: Observed, overflows: Overflows, verdict: ScalingVerdict) -> Iterator[Found]:
    """The first skips are over: routine, and said once so that they frighten nobody."""
    rows = np.flatnonzero(overflows.searching & overflows.certain)
    if len(rows) and verdict not in ("warming_up", "model_nan"):
        steps = spanning(observed, rows[0], rows[-1])
        yield Found(code="loss_scale_found", severity="info", evidence=_evidence(observed, overflows), steps=steps)


def never_grows(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """A dynamic scale that stays where it is for longer than it should."""
    interval = overflows.growth_interval
    if overflows.kind != "dynamic" or interval is None or not overflows.has_scale:
        return
    clean = trailing_streak(~overflows.skips)
    scale = overflows.scale[observed.num_rows - clean :]
    if clean < borders.NEVER_GROWS_INTERVALS * interval + 1 or np.any(scale > scale[0]):
        return
    yield Found(
        code="loss_scale_never_grows",
        severity="info",
        evidence={"num_steps": clean, "growth_interval": interval, "last_scale": float(scale[-1])},
        steps=spanning(observed, observed.num_rows - clean, observed.num_rows - 1),
    )


def needless_scale(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """A loss scale under bf16, whose range is that of fp32. Always 1, as Megatron prints it, it is none."""
    if observed.context.record.precision != "bf16" or not overflows.has_scale or not np.any(overflows.scale != 1.0):
        return
    yield Found(
        code="loss_scale_under_bf16",
        severity="info",
        evidence={"last_scale": overflows.last_scale},
        steps=spanning(observed, 0, observed.num_rows - 1),
    )


def scale_not_recorded(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """−1 or 0 throughout: a placeholder."""
    column = observed.steps.loss_scale
    if column is None or overflows.has_scale or not column.recorded.any():
        return
    yield Found(code="loss_scale_not_recorded", severity="info", steps=spanning(observed, 0, observed.num_rows - 1))


def underflow(observed: Observed) -> Iterator[Found]:
    """Most elements of the scaled gradients are zero: too small for fp16."""
    column = observed.steps.underflow_fraction
    if column is None or np.count_nonzero(column.finite) < borders.MIN_NORMS:
        return
    fraction = float(np.median(column.values[column.finite][-borders.NEWEST_JUDGED :]))
    if fraction > borders.UNDERFLOW_FRACTION:
        rows = np.flatnonzero(column.finite)
        steps = spanning(observed, rows[0], rows[-1])
        yield Found(code="gradients_underflow", severity="info", evidence={"fraction": fraction}, steps=steps)
