"""One stream's steps in, a verdict with its numbers and advice out."""

import math
from collections.abc import Iterable

import numpy as np

from gradsight_server.diagnosis import clipping, collapse, nonfinite, norms, recording, scaled_norms, scaling, training
from gradsight_server.diagnosis.answer import (
    SEVERITIES,
    Clipping,
    Diagnosis,
    Finding,
    LossScaling,
    NonFinite,
    NormFigures,
    StepRange,
)
from gradsight_server.diagnosis.inputs import Context, RangeFacts, StreamSteps
from gradsight_server.diagnosis.layers import layer_findings
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.overflows import Overflows
from gradsight_server.diagnosis.rule import Find, Found
from gradsight_server.diagnosis.texts import Text, text_for

RULES: tuple[Find, ...] = (
    norms.placeholder,
    norms.exploding,
    collapse.collapsed,
    norms.drift,
    norms.outgrown_threshold,
    norms.no_signal,
    norms.stale,
    norms.after_clip,
    scaled_norms.times_scale,
    scaling.underflow,
    nonfinite.without_gradient,
    training.clip_not_applied,
    training.threshold_not_positive,
    training.lr_without_steps,
    training.lr_jumped,
    training.update_ratio,
    training.validation_turned,
    recording.ranks_disagree,
    recording.telemetry_lost,
    recording.telemetry_gap,
)
RULES_ON_OVERFLOWS = (
    scaling.never_grows,
    scaling.needless_scale,
    scaling.scale_not_recorded,
    nonfinite.dead_run,
    nonfinite.loss_nonfinite,
    nonfinite.nonfinite_steps,
    nonfinite.applied_nonfinite,
    nonfinite.steps_skipped,
)
NO_BASIS = frozenset(
    {"norm_exploding", "norm_collapsed", "norm_times_scale", "norm_after_clip", "norm_stale", "norm_all_zero"}
)
"""Findings after which the norms bear no recommendation."""

LOST = ("run_dead", "loss_scale_model_nan", "loss_scale_collapsed")
"""Nothing is learnt any more: what clipping did before is no news then."""
FOLDED: dict[str, tuple[str, ...]] = {
    "loss_nonfinite": ("run_dead", "loss_scale_model_nan", "nonfinite_steps"),
    "no_signal_steps": ("norm_collapsed",),
    "clipping_unknown": ("norm_not_recorded", "norm_all_zero", "norm_collapsed", *LOST),
    "clipping_inactive": ("norm_collapsed", *LOST),
    "clipping_firm": LOST,
    "clipping_too_loose": ("norm_collapsed",),
    "spikes_passed": ("norm_collapsed",),
    "norm_drift": ("norm_exploding", "norm_collapsed", "threshold_outgrown"),
    "steps_skipped": ("loss_scale_model_nan",),
    "loss_scale_found": ("loss_scale_collapsing",),
}
"""code → findings that say the same and more."""
ROUTINE = frozenset({"loss_scale_found"})
"""Findings that end in "nothing to do": not to be read beside one that has somebody stop the run."""


def diagnose(
    steps: StreamSteps, context: Context | None = None, facts: RangeFacts | None = None, *, lang: str = "en"
) -> Diagnosis:
    """What the steps say: verdicts on clipping and loss scale, non-finite bursts, layers, findings.

    Never raises on numbers, whatever they are: what cannot be judged is `unknown`, and says what is missing.

    Args:
        steps: One stream, rank 0. Of a long run the newest: some thousand suffice.
        context: What else is known of the stream.
        facts: Counts and extremes of a longer range, whose newest steps these are.
        lang: Language of titles and advice.
    """
    with np.errstate(all="ignore"):  # NaN, infinities and 1e300 are what is looked at here
        observed = Observed(steps, context or Context(), facts)
        overflows = Overflows(observed)
        found = [finding for rule in RULES for finding in rule(observed)]
        found += [finding for rule in RULES_ON_OVERFLOWS for finding in rule(observed, overflows)]
        layers, of_layers = layer_findings(observed)
        scaling_section, of_scaling = _loss_scaling(observed, overflows, lang)
        clipping_section, of_clipping = _clipping(observed, found, lang)
        return Diagnosis(
            range=_range(observed),
            clipping=clipping_section,
            loss_scaling=scaling_section,
            nonfinite=NonFinite(num_steps=_num_nonfinite(observed), bursts=nonfinite.bursts(observed)),
            layers=layers,
            findings=_sorted(_folded([*found, *of_layers, *of_scaling, *of_clipping]), lang),
        )


def _folded(found: list[Found]) -> list[Found]:
    """Without what another finding, no less severe, already says, and what is routine where the run is being lost."""
    severity = {finding.code: SEVERITIES.index(finding.severity) for finding in found}
    is_lost = any(finding.severity == "critical" for finding in found)
    return [
        finding
        for finding in found
        if not (is_lost and finding.code in ROUTINE)
        and all(severity.get(code, -1) < severity[finding.code] for code in FOLDED.get(finding.code, ()))
    ]


def _range(observed: Observed) -> StepRange:
    facts = observed.facts
    if facts is not None:
        return StepRange(
            first_step=facts.first_step,
            last_step=facts.last_step,
            num_steps=facts.num_steps,
            num_finite=facts.num_finite,
        )
    return StepRange(
        first_step=observed.step_at(0) if observed.num_rows else None,
        last_step=observed.step_at(-1) if observed.num_rows else None,
        num_steps=observed.num_rows,
        num_finite=len(observed.rows),
    )


def _num_nonfinite(observed: Observed) -> int:
    return int(np.count_nonzero(observed.nonfinite)) if observed.facts is None else observed.facts.num_nonfinite


def _clipping(observed: Observed, beside: list[Found], lang: str) -> tuple[Clipping, list[Found]]:
    codes = {finding.code for finding in beside} | {f"{finding.code}.{finding.variant}" for finding in beside}
    fall = next((finding.steps for finding in beside if finding.code == "norm_collapsed"), None)
    figures = clipping.clipped_figures(observed, collapsed_at=fall[0] if fall else None)
    recommended = clipping.recommended(observed) if NO_BASIS.isdisjoint(codes) else None
    verdict, found = clipping.judge_clipping(observed, figures, recommended, codes)
    spikes = list(clipping.spikes_passed(observed, figures, verdict, recommended))
    shown = spikes[0] if verdict == "off" and spikes else found
    section = Clipping(
        verdict=verdict,
        severity=shown.severity,
        clip_fraction=figures.fraction,
        median_clip_coef=_number(figures.median_coef),
        norm=_norm_figures(observed),
        recommended_max_norm=recommended,
        advice=_text(shown, lang).advice,
    )
    said = [found] if found.severity != "ok" else []
    return section, [*said, *spikes]


def _norm_figures(observed: Observed) -> NormFigures:
    facts = observed.facts
    if len(observed.rows) == 0:
        return NormFigures(max=_number(facts.largest_norm) if facts else None)
    judged = observed.judged_norms if len(observed.judged) else observed.norms
    p50, p90, p99 = np.percentile(judged, (50, 90, 99)).tolist()
    largest = float(observed.norms.max())
    if facts is not None and facts.largest_norm is not None:
        largest = max(largest, facts.largest_norm)
    last = float(observed.norms[-1])
    return NormFigures(p50=_number(p50), p90=_number(p90), p99=_number(p99), max=_number(largest), last=last)


def _loss_scaling(observed: Observed, overflows: Overflows, lang: str) -> tuple[LossScaling, list[Found]]:
    verdict, found = scaling.judge_scaling(observed, overflows)
    facts = observed.facts
    num_steps, num_skipped = scaling.totals(observed, overflows)
    smallest = min(float(overflows.scale.min()), overflows.last_scale) if overflows.has_scale else None
    if facts is not None:
        known = [value for value in (smallest, facts.smallest_scale) if value is not None]
        smallest = min(known, default=None)
    section = LossScaling(
        verdict=verdict,
        severity=found.severity,
        num_skipped=num_skipped,
        skip_rate=num_skipped / num_steps if num_steps else None,
        last_scale=overflows.last_scale if overflows.has_scale else None,
        min_scale=_number(smallest),
        advice=_text(found, lang).advice,
    )
    said = [found] if found.severity != "ok" else []
    return section, [*said, *scaling.scale_found(observed, overflows, verdict)]


def _number(value: float | None) -> float | None:
    """As JSON can carry it: interpolating between huge numbers may overflow."""
    return value if value is not None and math.isfinite(value) else None


def _text(found: Found, lang: str) -> Text:
    return text_for(found.code, found.variant, evidence=_clean(found), names=found.names, lang=lang)


def _clean(found: Found) -> dict[str, float]:
    """The evidence as JSON can carry it."""
    return {name: float(value) for name, value in found.evidence.items() if math.isfinite(value)}


def _sorted(found: Iterable[Found], lang: str) -> list[Finding]:
    """The worst first, else in the order of the table."""
    findings = []
    for one in found:
        text = _text(one, lang)
        findings.append(
            Finding(
                code=one.code,
                severity=one.severity,
                title=text.title,
                evidence=_clean(one),
                advice=text.advice,
                first_step=one.steps[0] if one.steps else None,
                last_step=one.steps[1] if one.steps else None,
            )
        )
    return sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))
