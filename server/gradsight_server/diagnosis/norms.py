"""What the norms themselves tell: explosion, drift, steps without signal, and numbers that aren't norms."""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.diagnosis.levels import longest_streak, moves
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning


def exploding(observed: Observed) -> Iterator[Found]:
    """The newest norms are many times the usual ones, and the loss is no better for it."""
    rows, norms = observed.settled
    compared = _just_exploded(observed) or _grown(observed) or _grown_long_ago(observed)
    if compared is None:
        return
    newest, usual = compared
    first = int(np.flatnonzero(norms <= borders.EXPLODING_RATIO * usual)[-1]) + 1
    yield Found(
        code="norm_exploding",
        severity="critical" if newest / usual > borders.EXPLODED_RATIO else "warning",
        variant="" if observed.setting.kind not in ("off", "unknown") else "unclipped",
        evidence={"newest_norm": newest, "usual_norm": usual, "ratio": newest / usual},
        steps=spanning(observed, rows[min(first, len(rows) - 1)], rows[-1]),
    )


def _just_exploded(observed: Observed) -> tuple[float, float] | None:
    """(newest, usual) norm where even the smallest of the last few is far above what was usual."""
    rows, norms = observed.settled
    few = borders.EXPLODED_STEPS
    if len(norms) < 3 * few:
        return None
    usual, losses = float(np.median(norms[:-few])), observed.loss[rows]
    if not 0 < borders.EXPLODED_RATIO * usual < norms[-few:].min() or _is_lower(losses[-few:], losses[:-few]):
        return None
    return float(np.median(norms[-few:])), usual


def _grown(observed: Observed) -> tuple[float, float] | None:
    """The same, where the newest norms are above what was usual before them."""
    rows, norms = observed.settled
    num_newest = _num_newest(norms)
    if len(norms) < 3 * num_newest:
        return None
    newest, usual = float(np.median(norms[-num_newest:])), float(np.median(norms[:-num_newest]))
    losses = observed.loss[rows]
    if not 0 < borders.EXPLODING_RATIO * usual < newest or _is_lower(losses[-num_newest:], losses[:-num_newest]):
        return None
    return newest, usual


def _grown_long_ago(observed: Observed) -> tuple[float, float] | None:
    """The same, above the first quarter: only a loss that is clearly worse tells it from a model that learns."""
    rows, norms = observed.settled
    num_newest = _num_newest(norms)
    if len(norms) < 3 * num_newest:
        return None
    quarter = max(len(norms) // 4, num_newest)
    newest, usual = float(np.median(norms[-num_newest:])), float(np.median(norms[:quarter]))
    losses = observed.loss[rows]
    if not 0 < borders.EXPLODING_RATIO * usual < newest:
        return None
    return (newest, usual) if _is_clearly_higher(losses[-num_newest:], losses[:quarter]) else None


def _num_newest(norms: Floats) -> int:
    return int(np.clip(borders.EXPLODING_FRACTION * len(norms), 5, 100))


def _is_lower(newest: Floats, before: Floats) -> bool:
    """Whether the loss has gone on falling; False where it was not recorded."""
    newest, before = newest[np.isfinite(newest)], before[np.isfinite(before)]
    return len(newest) > 0 and len(before) > 0 and float(np.median(newest)) < float(np.median(before))


def _is_clearly_higher(newest: Floats, before: Floats) -> bool:
    """Whether the loss is worse than it ever usually was; False where it was not recorded."""
    newest, before = newest[np.isfinite(newest)], before[np.isfinite(before)]
    if min(len(newest), len(before)) == 0:
        return False
    usual = float(np.median(before))
    noise = 1.4826 * float(np.median(np.abs(before - usual)))
    return float(np.median(newest)) > usual + max(6 * noise, borders.LOST_LOSS_FRACTION * abs(usual))


def drift(observed: Observed) -> Iterator[Found]:
    """The usual norm has moved: a threshold chosen early may not fit any more."""
    rows, norms = observed.settled
    if len(norms) < borders.MIN_DRIFT_STEPS:
        return
    quarter = len(norms) // 4
    first, newest = float(np.median(norms[:quarter])), float(np.median(norms[-quarter:]))
    older = observed.older_norms
    if older is not None:
        first = older.median() or first
    if min(first, newest) <= 0 or max(first, newest) / min(first, newest) <= borders.DRIFT_RATIO:
        return
    yield Found(
        code="norm_drift",
        severity="info",
        variant="falling" if newest < first else "rising",
        evidence={"first_norm": first, "newest_norm": newest},
        steps=spanning(observed, rows[0], rows[-1]),
    )


def outgrown_threshold(observed: Observed) -> Iterator[Found]:
    """Clipping has stopped: the norms sank away below a threshold that stayed."""
    clipped, rows = observed.clipped, observed.rows[observed.num_warmup :]
    if clipped is None or observed.setting.is_adaptive or len(rows) < borders.MIN_DRIFT_STEPS:
        return
    half = len(rows) // 2
    before, now = float(np.mean(clipped[rows[:half]])), float(np.mean(clipped[rows[half:]]))
    facts = observed.facts
    if facts is not None and facts.num_finite > len(observed.rows):
        older = facts.num_clipped - int(np.count_nonzero(clipped[observed.rows]))
        before, now = max(0, older) / (facts.num_finite - len(observed.rows)), float(np.mean(clipped[rows]))
    if before < borders.OUTGROWN_FROM or now >= borders.INACTIVE_BELOW:
        return
    last = rows[np.flatnonzero(clipped[rows])[-1]] if clipped[rows].any() else rows[0]
    yield Found(
        code="threshold_outgrown",
        severity="info",
        evidence={"clip_fraction_before": before, "clip_fraction_now": now},
        steps=spanning(observed, last, rows[-1]),
    )


def no_signal(observed: Observed) -> Iterator[Found]:
    """Isolated near-zero norms, as when all answers of a group earn the same reward: left out of the statistics."""
    low = observed.is_without_signal
    if not low.any() or low.all():
        return
    found = observed.rows[low]
    yield Found(
        code="no_signal_steps",
        severity="info",
        evidence={"num_steps": len(found), "fraction": float(np.mean(low))},
        steps=spanning(observed, found[0], found[-1]),
    )


def placeholder(observed: Observed) -> Iterator[Found]:
    """Zeros or negative numbers where no norm was recorded; no norm at all; or truly no gradient."""
    column = observed.steps.grad_norm_before_clip
    if observed.num_rows == 0:
        return
    if column is None or not column.recorded.any():
        yield Found(code="norm_not_recorded", severity="info", variant="absent", steps=_whole(observed))
    elif observed.norm_placeholder is not None:
        yield Found(
            code="norm_not_recorded",
            severity="info",
            variant=observed.norm_placeholder,
            evidence={"num_steps": int(np.count_nonzero(column.recorded))},
            steps=_whole(observed),
        )
    elif len(observed.norms) > 1 and not observed.norms.any():
        loss = observed.loss[np.isfinite(observed.loss)]
        yield Found(
            code="norm_all_zero",
            severity="warning" if len(loss) > borders.MAX_NO_SIGNAL_STREAK else "info",
            evidence={"num_steps": len(observed.norms)},
            steps=_whole(observed),
        )


def _whole(observed: Observed) -> tuple[int, int]:
    return spanning(observed, 0, observed.num_rows - 1)


def stale(observed: Observed) -> Iterator[Found]:
    """The same norm again and again, to the last digit: what is logged is an old value."""
    norms = observed.norms[~observed.is_without_signal]
    if len(norms) < borders.MIN_NORMS or not moves(observed.loss[np.isfinite(observed.loss)]):
        return
    repeats = (norms[1:] == norms[:-1]) & (norms[1:] > 0)
    fraction = float(np.mean(repeats))
    is_constant = bool(np.all(repeats))
    if fraction < borders.STALE_FRACTION or not (is_constant or _has_digits(norms)) or any(after_clip(observed)):
        return
    yield Found(
        code="norm_stale",
        severity="warning",
        evidence={"fraction": fraction, "longest": longest_streak(repeats) + 1},
        steps=spanning(observed, observed.rows[0], observed.rows[-1]),
    )


def _has_digits(norms: Floats) -> bool:
    """Whether most norms have so many digits that two equal ones are no chance of rounding."""
    some = norms[:: max(1, len(norms) // 100)]
    rounded = np.array([float(f"{norm:.{borders.STALE_DIGITS - 2}e}") for norm in some.tolist()])
    return bool(np.mean(rounded != some) > 0.5)


def after_clip(observed: Observed) -> Iterator[Found]:
    """Norms end exactly at the threshold: they were logged after clipping."""
    if observed.setting.kind == "unknown":
        yield from _maybe_after_clip(observed)
        return
    if not observed.is_after_clip or observed.clipped is None or observed.max_norm is None:
        return
    rows = observed.rows[observed.num_warmup :]
    yield Found(
        code="norm_after_clip",
        severity="warning",
        evidence={"fraction": float(np.mean(observed.clipped[rows])), "max_norm": float(observed.max_norm[rows[-1]])},
        steps=spanning(observed, rows[0], rows[-1]),
    )


def _maybe_after_clip(observed: Observed) -> Iterator[Found]:
    """The same where no threshold is known: the largest norm again and again, and hardly any just below it."""
    rows = observed.rows[observed.num_warmup :]
    norms = observed.norm[rows]
    largest = float(norms.max(initial=0.0))
    is_piled = norms >= largest * (1 - borders.PILE_WIDTH)
    num_piled = int(np.count_nonzero(is_piled))
    others = norms[~is_piled]
    num_near = int(np.count_nonzero(others >= largest * (1 - borders.PILE_EDGE)))
    if largest <= 0 or num_piled < max(borders.PILE_FRACTION * len(norms), borders.MIN_PILE):
        return
    if len(others) < borders.MIN_PILE or num_near >= num_piled or not _has_digits(others):
        return  # norms that are all alike, or rounded
    yield Found(
        code="norm_after_clip",
        severity="info",
        variant="maybe",
        evidence={"fraction": num_piled / len(norms), "largest_norm": largest},
        steps=spanning(observed, rows[0], rows[-1]),
    )
