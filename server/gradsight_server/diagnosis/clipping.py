"""Is the clipping threshold right: one verdict from the judged norms, and what else is to be said of clipping.

Sources: V. Godbole et al., Deep Learning Tuning Playbook, 2023: a threshold at the 90th percentile of the unclipped
norms, above half of the steps clipped is "extremely aggressive", rather lower the learning rate. Clipping with Adam:
its update does not change with a constant factor on the gradient, so what counts is how much the coefficient varies.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.answer import ClippingVerdict, RecommendedMaxNorm, Severity
from gradsight_server.diagnosis.clip_setting import Kind
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.diagnosis.levels import local_level, relative_spread, spikes
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning

MAX_FOLLOWED = 100
"""Passed spikes whose loss is followed: more would tell nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped:
    """Figures of the judged steps [J]; None where no threshold is known."""

    fraction: float | None
    median_coef: float | None
    mean_coef: float | None
    spread: float
    max_norm: float | None
    num_spikes: int
    num_passed: int
    largest_passed: float
    """The largest passed spike, in local medians."""
    num_echoes: int
    """Passed spikes that the loss answered."""
    loss_before: float | None
    loss_since: float | None
    """Around the first passed spike after which the loss has not come back; None where it always has."""

    @property
    def spikes_pass(self) -> bool:
        return self.num_passed > 0

    @property
    def passing_matters(self) -> bool:
        many = self.num_passed >= borders.MANY_SPIKES
        return many or self.largest_passed >= borders.HUGE_SPIKE_RATIO or self.num_echoes > 0


def clipped_figures(observed: Observed, collapsed_at: int | None = None) -> Clipped:
    """
    Args:
        collapsed_at: The step from which on the norms have collapsed: beside what is left then, anything is a spike.
    """
    judged, clipped, coef = observed.judged, observed.clipped, observed.clip_coef
    coefs = np.empty(0) if coef is None else coef[judged][np.isfinite(coef[judged])]
    thresholds = np.empty(0) if observed.max_norm is None else observed.max_norm[judged]
    thresholds = thresholds[np.isfinite(thresholds)]
    sound = judged if collapsed_at is None else judged[observed.step[judged] < collapsed_at]
    norms = observed.norm[sound]
    level = local_level(norms, block=borders.LEVEL_BLOCK)
    is_spike = spikes(norms, level, ratio=borders.SPIKE_RATIO, sigmas=borders.SPIKE_SIGMAS)
    after = norms if coef is None else norms * np.where(np.isnan(coef), 1, coef)[sound]
    passed = is_spike & (after > borders.SPIKE_RATIO * level)
    heights = norms[passed] / level[passed]
    lost = next((lost for row in sound[passed][:MAX_FOLLOWED] if (lost := _lost_loss(observed, row))), None)
    return Clipped(
        fraction=float(np.mean(clipped[judged])) if clipped is not None and len(judged) else None,
        median_coef=float(np.median(coefs)) if len(coefs) else None,
        mean_coef=float(np.mean(coefs)) if len(coefs) else None,
        spread=relative_spread(coefs),
        max_norm=_present(thresholds, observed.setting.kind) if len(thresholds) else None,
        num_spikes=int(np.count_nonzero(is_spike)),
        num_passed=int(np.count_nonzero(passed)),
        largest_passed=float(heights.max(initial=0.0)),
        num_echoes=sum(_loss_answers(observed, row) for row in sound[passed][-MAX_FOLLOWED:]),
        loss_before=lost[0] if lost else None,
        loss_since=lost[1] if lost else None,
    )


def _present(thresholds: Floats, kind: Kind) -> float:
    """The threshold as it is now; of one that follows the norms, as it usually is."""
    return float(thresholds[-1] if kind == "scheduled" else np.median(thresholds))


def _loss_answers(observed: Observed, row: int) -> bool:
    """Whether the loss rises out of its own noise within a few steps after the row."""
    usual, limit = _usual_loss(observed, row, margin=0.1)
    after = observed.loss[row + 1 : row + 1 + borders.SPIKE_ECHO_STEPS]
    after = after[np.isfinite(after)]
    return usual is not None and len(after) > 0 and float(np.median(after)) > limit


def _lost_loss(observed: Observed, row: int) -> tuple[float, float] | None:
    """The loss before the row and since, where it has stayed clearly higher for long enough."""
    usual, limit = _usual_loss(observed, row, margin=borders.LOST_LOSS_FRACTION)
    since = observed.loss[row + 1 + borders.SPIKE_ECHO_STEPS :]
    since = since[np.isfinite(since)]
    if usual is None or len(since) < borders.LEVEL_BLOCK:
        return None
    newest, whole = float(np.median(since[-borders.LEVEL_BLOCK :])), float(np.median(since))
    return (usual, newest) if min(newest, whole) > limit else None


def _usual_loss(observed: Observed, row: int, *, margin: float) -> tuple[float | None, float]:
    """The loss just before the row, and what is clearly above it; None where too few were recorded."""
    before = observed.loss[max(0, row - borders.LEVEL_BLOCK) : row]
    before = before[np.isfinite(before)]
    if len(before) < borders.SPIKE_ECHO_STEPS:
        return None, np.inf
    usual = float(np.median(before))
    noise = 1.4826 * float(np.median(np.abs(before - usual)))
    return usual, usual + max(6 * noise, margin * abs(usual))


EXPLAINED_BY = {
    "clip_not_applied": "not_applied",
    "norm_times_scale": "scaled",
    "norm_after_clip": "after_clip",
    "norm_exploding": "exploding",
}
"""Findings that explain why so many steps are clipped, and the variant of the text that refers to them."""
MEETS_RISEN_NORMS = "norm_drift.rising"
LOWERS = ("too_loose", "inactive")
RAISES = ("firm", "too_tight")


def judge_clipping(
    observed: Observed, figures: Clipped, range_: RecommendedMaxNorm | None, beside: Set[str]
) -> tuple[ClippingVerdict, Found]:
    """The verdict, and the finding that carries it: code `clipping_<verdict>`.

    Args:
        beside: Codes of the other findings, also with their variant: what explains the clipping must not be answered
            by "raise max_norm".
    """
    verdict, severity, variant = _verdict(observed, figures)
    explained = next((EXPLAINED_BY[code] for code in EXPLAINED_BY if code in beside), None)
    if explained == "not_applied":
        verdict, severity, variant = "unknown", "info", explained
    elif explained is not None and verdict in ("firm", "too_tight"):
        severity, variant = "info", explained  # the other finding has the severity
    elif verdict == "too_tight" and severity != "info" and _is_early(observed, figures):
        severity, variant = "info", "early"
    elif verdict == "too_tight" and severity != "info" and MEETS_RISEN_NORMS in beside:
        variant = "risen"
    elif "norm_collapsed" in beside and (verdict == "inactive" or variant == "safety_net"):
        verdict, severity, variant = "inactive", "info", "collapsed"
    return verdict, Found(
        code=f"clipping_{verdict}",
        severity=severity,
        variant=variant,
        evidence=_evidence(observed, figures, _fitting(range_, verdict, figures.max_norm)),
        steps=spanning(observed, observed.judged[0], observed.judged[-1]) if len(observed.judged) else None,
    )


def _is_early(observed: Observed, figures: Clipped) -> bool:
    """Whether the run has just begun, so that a threshold which is tight now may fit soon: norms fall at first."""
    if not observed.is_from_start or not figures.max_norm:
        return False
    norms = observed.norms[~observed.is_without_signal]
    newer, older = norms[len(norms) // 2 :], norms[: len(norms) // 2]
    still_fall = bool(np.median(newer) <= borders.EARLY_FALL * np.median(older))
    ratio = float(np.median(norms[-len(norms) // 4 :])) / figures.max_norm
    is_near = ratio <= (borders.EARLY_RATIO if still_fall else borders.EARLY_MILD_RATIO)
    return (len(observed.norms) < borders.EARLY_STEPS and is_near) or (still_fall and _lr_warms_up(observed))


def _lr_warms_up(observed: Observed) -> bool:
    """Whether the learning rate began low and has not come to its height, or has only just."""
    lr = observed.steps.lr
    values = np.empty(0) if lr is None else lr.values[lr.finite]
    if len(values) < borders.MIN_NORMS:
        return False
    height = int(np.argmax(values))
    return bool(values[0] < values[height] / 2 and height >= borders.WARMED_UP_AT * len(values))


def _verdict(observed: Observed, figures: Clipped) -> tuple[ClippingVerdict, Severity, str]:
    kind = observed.setting.kind
    if kind == "off":
        return "off", "ok", ""
    if len(observed.rows) == 0:
        return "unknown", "info", "not_finite" if observed.nonfinite.any() else "no_norm"
    if not observed.has_enough:
        return "unknown", "info", "few"
    if not observed.judged_norms.any():
        return "unknown", "info", "zero"
    if figures.fraction is None:
        return "unknown", "info", "no_threshold"
    if figures.fraction < borders.INACTIVE_BELOW:
        return _rarely_clips(figures)
    if observed.setting.is_adaptive:
        return "healthy", "ok", "adaptive"
    if kind == "per_layer":
        return _per_layer(figures)
    if figures.fraction <= borders.FIRM_ABOVE:
        return "healthy", "ok", ""
    if figures.fraction <= borders.TOO_TIGHT_ABOVE:
        return "firm", "info", ""
    return "too_tight", *_too_tight(observed, figures)


def _rarely_clips(figures: Clipped) -> tuple[ClippingVerdict, Severity, str]:
    if figures.loss_since is not None:
        return "too_loose", "critical", "lost"
    if figures.spikes_pass:
        return "too_loose", "warning" if figures.passing_matters else "info", ""
    if figures.num_spikes:
        return "healthy", "ok", "safety_net"
    return "inactive", "info", ""


def _per_layer(figures: Clipped) -> tuple[ClippingVerdict, Severity, str]:
    """Policies that hold each tensor or element by itself: some layer is clipped on most steps, by design."""
    if figures.median_coef is not None and figures.median_coef < borders.PER_LAYER_TIGHT_COEF:
        return "too_tight", "warning", "per_layer"
    return "healthy", "ok", "per_layer"


def _too_tight(observed: Observed, figures: Clipped) -> tuple[Severity, str]:
    family = observed.optimizer_family
    fraction, median_coef = figures.fraction or 0.0, figures.median_coef if figures.median_coef is not None else 1.0
    severe = fraction > borders.SEVERE_ABOVE and median_coef < borders.SEVERE_COEF
    as_detection = figures.max_norm is not None and abs(figures.max_norm / borders.DETECTION_MAX_NORM - 1) < 0.01
    if fraction > borders.SEVERE_ABOVE and as_detection and family != "sgd" and median_coef >= borders.EPSILON_COEF:
        return "info", "detection"
    if family == "adam":
        steady = figures.spread <= borders.STEADY_SPREAD and median_coef >= borders.EPSILON_COEF
        return ("info", "steady") if steady else ("warning", "adam")
    if family == "sgd":
        return "critical" if severe and not as_detection else "warning", "sgd"
    return "warning", ""


def _fitting(
    range_: RecommendedMaxNorm | None, verdict: ClippingVerdict, max_norm: float | None
) -> RecommendedMaxNorm | None:
    """The range, but for one that lies on the other side of the threshold than the advice would have it."""
    if range_ is None or max_norm is None:
        return range_
    is_other_way = (verdict in RAISES and range_.low <= max_norm) or (verdict in LOWERS and range_.high >= max_norm)
    return None if is_other_way else range_


def _evidence(observed: Observed, figures: Clipped, range_: RecommendedMaxNorm | None) -> dict[str, float]:
    found: dict[str, float | None] = {
        "num_judged": len(observed.judged),
        "num_finite": len(observed.rows),
        "clip_fraction": figures.fraction,
        "max_norm": figures.max_norm,
        "median_norm": float(np.median(observed.judged_norms)) if len(observed.judged) else None,
        "median_clip_coef": figures.median_coef,
        "mean_clip_coef": figures.mean_coef,
        "clip_coef_spread": figures.spread,
        "num_spikes": figures.num_spikes,
        "num_spikes_passed": figures.num_passed,
        "largest_spike_ratio": figures.largest_passed,
        "num_spikes_with_loss_rise": figures.num_echoes or None,
        "loss_before": figures.loss_before,
        "loss_since": figures.loss_since,
    }
    if range_ is not None:
        found |= {"recommended_low": range_.low, "recommended_high": range_.high}
    return {name: float(value) for name, value in found.items() if value is not None}


def recommended(observed: Observed) -> RecommendedMaxNorm | None:
    """Where a fixed threshold would clip 10 to 20 % of the judged steps; None where the norms cannot bear it."""
    per_layer = observed.setting.kind in ("per_layer", "per_layer_adaptive")
    if per_layer or not observed.has_enough or len(observed.judged) < borders.MIN_NORMS / 2:
        return None
    norms = _settled(observed.judged_norms)
    if norms is None:
        return None
    low, high = np.percentile(norms, borders.RECOMMENDED_PERCENTILES).tolist()
    if not 0 < low < high or not np.isfinite(high):
        return None
    return RecommendedMaxNorm(low=low, high=high, basis=f"p80 to p90 of the newest {len(norms):,} norms")


def _settled(norms: Floats) -> Floats | None:
    """The norms, or their newer half where they have moved on since; None where too few are left then."""
    newer = norms[len(norms) // 2 :]
    whole, now = (
        np.percentile(norms, borders.RECOMMENDED_PERCENTILES[0]),
        np.percentile(newer, borders.RECOMMENDED_PERCENTILES[0]),
    )
    if max(whole, now) <= borders.MOVED_ON_RATIO * min(whole, now):
        return norms
    return newer if len(newer) >= borders.MIN_NORMS else None


def spikes_passed(
    observed: Observed, figures: Clipped, verdict: ClippingVerdict, range_: RecommendedMaxNorm | None
) -> Iterator[Found]:
    """Spikes that reached the optimizer, where the verdict does not already say so."""
    if not figures.spikes_pass or verdict == "too_loose" or not observed.has_enough:
        return
    unheld = verdict in ("off", "unknown")
    is_lost = figures.loss_since is not None
    yield Found(
        code="spikes_passed",
        severity="critical" if is_lost else "warning" if figures.passing_matters and unheld else "info",
        variant="lost" if is_lost else verdict if unheld else "",
        evidence=_evidence(observed, figures, _fitting(range_, "too_loose", figures.max_norm)),
        steps=spanning(observed, observed.judged[0], observed.judged[-1]),
    )
