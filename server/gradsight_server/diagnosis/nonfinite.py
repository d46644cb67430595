"""NaN and Inf: where they began, in which layer, whether the run is dead. Routine overflows are scaling.py's."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.answer import Burst, Severity
from gradsight_server.diagnosis.inputs import Bools
from gradsight_server.diagnosis.levels import longest_streak, moves, streaks, trailing_streak
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.overflows import Overflows
from gradsight_server.diagnosis.rule import Found, spanning


def bursts(observed: Observed) -> list[Burst]:
    """Non-finite steps that belong together, the newest of them, in order."""
    joined = _joined(observed.nonfinite)
    return [
        Burst(
            num_steps=int(np.count_nonzero(observed.nonfinite[first:last])),
            first_layer=first_layer(observed, first, last),
            first_step=observed.step_at(first),
            last_step=observed.step_at(last - 1),
        )
        for first, last in streaks(joined)[-borders.MAX_BURSTS :]
    ]


def _joined(flags: Bools) -> Bools:
    """With gaps of a few steps closed."""
    joined = flags.copy()
    found = streaks(flags)
    for (_, end), (begin, _) in pairwise(found):
        if begin - end <= borders.BURST_GAP:
            joined[end:begin] = True
    return joined


def first_layer(observed: Observed, first: int, last: int) -> str | None:
    """The layer in which the non-finite values of these rows began: as recorded, else the only one that had any."""
    texts = observed.steps.first_nonfinite_layer
    if texts is not None:
        named = next((text for text in texts[first:last] if text), None)
        if named is not None:
            return named
    layers = observed.steps.layers
    if layers is None:
        return None
    there = np.flatnonzero((layers.step >= observed.step[first]) & (layers.step <= observed.step[last - 1]))
    for row in there.tolist():
        bad = np.flatnonzero(~np.isfinite(layers.norms[row]))
        if len(bad):
            return layers.names[int(bad[0])] if len(bad) == 1 else None
    return None


def dead_run(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """Every later step is non-finite and none was skipped: the weights themselves are NaN."""
    if overflows.is_scaled and overflows.kind == "dynamic":
        return  # the scale's verdict says it
    bad = observed.nonfinite & ~observed.skipped
    lost = trailing_streak(bad | ~_has_norm(observed) & _loss_is_bad(observed))
    if _loss_lives(observed, observed.num_rows - lost):
        return  # with NaN in the weights the loss would be NaN
    was_applied = bool(observed.applied[observed.num_rows - lost :].all())
    least = borders.APPLIED_STREAK if was_applied else borders.DEAD_STREAK
    if lost < least:
        return
    first = observed.num_rows - lost
    yield Found(
        code="run_dead",
        severity="critical",
        variant="loss_zero" if _loss_is_zero(observed, first) else "",
        evidence={"first_bad_step": observed.step_at(first), "num_steps": lost},
        steps=spanning(observed, first, observed.num_rows - 1),
    )


def _has_norm(observed: Observed) -> Bools:
    column = observed.steps.grad_norm_before_clip
    return np.zeros(observed.num_rows, dtype=np.bool_) if column is None else column.recorded


def _loss_is_bad(observed: Observed) -> Bools:
    column = observed.steps.loss
    return np.zeros(observed.num_rows, dtype=np.bool_) if column is None else column.nonfinite


def _loss_lives(observed: Observed, first: int) -> bool:
    """Whether the loss is finite after this row, and moves: a logger that hides NaN repeats a value, or puts 0.0."""
    column, loss = observed.steps.loss, observed.loss[first + 1 :]
    if column is None or column.nonfinite[first + 1 :].any():
        return False
    return moves(loss[np.isfinite(loss)])


def _loss_is_zero(observed: Observed, first: int) -> bool:
    """A logger that puts 0.0 where the loss is NaN."""
    loss = observed.loss[first:]
    return len(loss) > 0 and bool(np.all(loss == 0.0))


def loss_nonfinite(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """The loss itself is NaN or infinite."""
    bad = _loss_is_bad(observed)
    if not bad.any():
        return
    trailing = trailing_streak(bad)
    goes_on = trailing >= borders.MODEL_NAN_LOSSES
    rows = np.flatnonzero(bad)
    first = observed.num_rows - trailing if goes_on else rows[0]
    yield Found(
        code="loss_nonfinite",
        severity="critical" if goes_on else "info" if _is_routine(observed, overflows, bad) else "warning",
        variant="goes_on" if goes_on else "",
        evidence={"num_steps": len(rows), "first_bad_step": observed.step_at(first)},
        steps=spanning(observed, first, rows[-1]),
    )


def nonfinite_steps(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """NaN or Inf gradients that no loss scale explains."""
    bad = observed.nonfinite
    if overflows.is_scaled:
        bad = bad & ~overflows.skips
    if not bad.any() or any(True for _ in dead_run(observed, overflows)):
        return
    rows = np.flatnonzero(bad)
    layer = next((name for first, last in streaks(_joined(bad)) if (name := first_layer(observed, first, last))), None)
    trailing, streak = trailing_streak(bad), longest_streak(bad)
    kinds = ["loss"] if bool(_loss_is_bad(observed)[rows].any()) else []
    kinds += ["guarded"] if bool(observed.skipped[rows].all()) else []
    if not kinds and trailing >= borders.DEAD_STREAK and _loss_lives(observed, observed.num_rows - trailing):
        kinds = ["loss_lives"]
    yield Found(
        code="nonfinite_steps",
        severity=_severity(observed, overflows, bad, trailing),
        variant="_".join(kinds),
        evidence={
            "num_steps": len(rows),
            "fraction": len(rows) / observed.num_rows,
            "first_bad_step": observed.step_at(rows[0]),
            **({"longest_streak": streak} if streak > 1 else {}),
        },
        names=(layer,) if layer else (),
        steps=spanning(observed, rows[0], rows[-1]),
    )


def _severity(observed: Observed, overflows: Overflows, bad: Bools, trailing: int) -> Severity:
    if _is_routine(observed, overflows, bad):
        return "info"
    return "critical" if trailing >= borders.LONG_STREAK else "warning"


def _is_routine(observed: Observed, overflows: Overflows, bad: Bools) -> bool:
    """Whether these may be a loss scaler's skips: where nobody says what was used, a few are, or some at the start.

    At the start several in a row find the scale; later a scaler skips one or two.
    """
    record = observed.context.record
    if overflows.is_scaled:
        return bool(np.all(overflows.skips[bad]))
    if record.scaler is None or record.precision in ("bf16", "fp32"):
        return False
    rows = np.flatnonzero(bad)
    at_start = observed.is_from_start and bool(rows[-1] < borders.FIRST_ROWS) and not _loss_is_bad(observed)[rows].any()
    is_rare = len(rows) <= max(2, borders.RARE_FRACTION * observed.num_rows) < observed.num_rows
    return at_start or (is_rare and longest_streak(bad) < borders.BURST_STEPS)


def applied_nonfinite(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """A step was applied although its gradient was not finite."""
    bad = observed.nonfinite & observed.applied
    if not bad.any() or any(True for _ in dead_run(observed, overflows)):
        return
    rows = np.flatnonzero(bad)
    lives_on = bool(observed.finite[rows[-1] :].any())
    yield Found(
        code="nonfinite_applied",
        severity="warning" if lives_on else "critical",
        evidence={"num_steps": len(rows)},
        steps=spanning(observed, rows[0], rows[-1]),
    )


def steps_skipped(observed: Observed, overflows: Overflows) -> Iterator[Found]:
    """Many updates are skipped although there is no loss scale: training stands still on them."""
    if overflows.is_scaled:
        return
    skipped = observed.skipped & ~observed.has_reason("no_gradient", "user")
    fraction = float(np.mean(skipped)) if observed.num_rows else 0.0
    trailing = trailing_streak(skipped)
    rows = np.flatnonzero(skipped)
    is_much = fraction > borders.SKIPPED_FRACTION and len(rows) >= borders.BURST_STEPS
    if not is_much and trailing < borders.LONG_STREAK:
        return
    yield Found(
        code="steps_skipped",
        severity="critical" if trailing >= borders.LONG_STREAK else "warning",
        evidence={
            "num_skipped": len(rows),
            "fraction": fraction,
            **({"newest_streak": trailing} if trailing > 1 else {}),
        },
        steps=spanning(observed, rows[0], rows[-1]),
    )


def without_gradient(observed: Observed) -> Iterator[Found]:
    """Optimizer steps for which no backward had come."""
    empty = observed.has_reason("no_gradient")
    if not empty.any():
        return
    rows = np.flatnonzero(empty)
    much = float(np.mean(empty)) > 0.5 or trailing_streak(empty) >= borders.LONG_STREAK
    yield Found(
        code="no_gradient_steps",
        severity="warning" if much else "info",
        evidence={"num_steps": len(rows), "fraction": float(np.mean(empty))},
        steps=spanning(observed, rows[0], rows[-1]),
    )
