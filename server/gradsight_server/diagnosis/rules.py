"""The table of all findings: code, border, severity, source. `docs/findings.md` holds it, a test compares the two."""

from gradsight_server.diagnosis import borders as b
from gradsight_server.diagnosis.answer import Severity
from gradsight_server.diagnosis.rule import Rule

PLAYBOOK = "Deep Learning Tuning Playbook (Google, 2023)"
OURS = "our heuristic, held against the calibration set"
TORCH = "torch.amp.GradScaler's rules"


def _rule(code: str, border: str, *severities: Severity, source: str = OURS) -> Rule:
    return Rule(code=code, border=border, severities=severities, source=source)


RULES: dict[str, tuple[Rule, ...]] = {
    "Clipping: one verdict": (
        _rule("clipping_off", "clipping is said to be off, or all thresholds are 0, negative or infinite", "ok"),
        _rule("clipping_unknown", f"fewer than {b.MIN_NORMS} finite norms, or no threshold known", "info"),
        _rule("clipping_inactive", f"under {b.INACTIVE_BELOW:.0%} of the judged steps clipped, and no spikes", "info"),
        _rule(
            "clipping_healthy",
            f"{b.INACTIVE_BELOW:.0%} to {b.FIRM_ABOVE:.0%} clipped; or fewer, where all spikes are caught; or a policy "
            "that clips much by design",
            "ok",
            source=f"{PLAYBOOK}: about 10 %; the bounds are ours",
        ),
        _rule("clipping_firm", f"above {b.FIRM_ABOVE:.0%}, up to {b.TOO_TIGHT_ABOVE:.0%}", "info"),
        _rule(
            "clipping_too_tight",
            f"above {b.TOO_TIGHT_ABOVE:.0%}. SGD: critical above {b.SEVERE_ABOVE:.0%} with a median coefficient below "
            f"{b.SEVERE_COEF:g}. Adam and its kin: info where the coefficient's spread is at most "
            f"{b.STEADY_SPREAD:g}. A threshold of {b.DETECTION_MAX_NORM:g} that clips above {b.SEVERE_ABOVE:.0%}, "
            f"without SGD: info. Norms that explode: info. The first {b.EARLY_STEPS} steps: info up to "
            f"{b.EARLY_MILD_RATIO:g} thresholds, {b.EARLY_RATIO:g} where the norms fall; so while they fall and the "
            "learning rate warms up. "
            "Policies that hold each layer by itself: a median "
            f"coefficient below {b.PER_LAYER_TIGHT_COEF:g}",
            "info",
            "warning",
            "critical",
            source=f"{PLAYBOOK}: above 50 % is extremely aggressive; Adam does not see a constant factor",
        ),
        _rule(
            "clipping_too_loose",
            f"under {b.INACTIVE_BELOW:.0%} clipped, and a spike keeps more than {b.SPIKE_RATIO:g} local medians after "
            f"clipping. Warning from {b.MANY_SPIKES} spikes on, or one of {b.HUGE_SPIKE_RATIO:g} medians, or one that "
            f"the loss answers; critical where the loss is {b.LOST_LOSS_FRACTION:.0%} higher ever since",
            "info",
            "warning",
            "critical",
        ),
    ),
    "Clipping: beside the verdict": (
        _rule(
            "spikes_passed",
            "the same spikes under another verdict; warning where clipping is off or not known and they matter; "
            "critical as above",
            "info",
            "warning",
            "critical",
        ),
        _rule(
            "threshold_outgrown",
            f"at least {b.OUTGROWN_FROM:.0%} of the older half clipped, under {b.INACTIVE_BELOW:.0%} of the newer",
            "info",
        ),
        _rule("threshold_not_positive", "a recorded threshold of 0 or below", "info", source="torch's clip_grad_norm_"),
        _rule(
            "clip_not_applied",
            "a recorded coefficient of 1 on at least 3 steps whose norm is above the threshold",
            "warning",
        ),
    ),
    "Norms": (
        _rule("norm_not_recorded", "no norm; or all 0 while the loss moves; or negative: a placeholder", "info"),
        _rule(
            "norm_all_zero",
            f"all norms 0; warning where more than {b.MAX_NO_SIGNAL_STREAK} losses stand still beside them",
            "info",
            "warning",
        ),
        _rule(
            "norm_stale",
            f"at least {b.STALE_FRACTION:.0%} of the norms equal the one before, with {b.STALE_DIGITS} digits or more, "
            "while the loss moves",
            "warning",
        ),
        _rule(
            "norm_after_clip",
            f"at least {b.PILE_FRACTION:.0%} of the norms within {b.PILE_WIDTH:g} of a fixed threshold, none above; "
            "info where no threshold is known, and so many are at the largest norm but fewer just below it "
            f"({b.PILE_EDGE:.0%})",
            "info",
            "warning",
        ),
        _rule(
            "norm_times_scale",
            f"where the loss scale changes, by {b.SCALED_MIN_OCTAVES:g} octaves or more in all, the norm changes "
            "with it "
            f"(slope {b.SCALED_SLOPE[0]:g} to {b.SCALED_SLOPE[1]:g})",
            "warning",
        ),
        _rule(
            "norm_maybe_times_scale",
            f"a median norm above {b.SCALED_SUSPECT_RATIO:g} (and so many thresholds) that the scale would explain",
            "info",
        ),
        _rule(
            "norm_exploding",
            f"newest {b.EXPLODING_FRACTION:.0%} of the norms (5 to 100) above {b.EXPLODING_RATIO:g} times the median "
            f"before, and the loss not lower; or above so many times that of the first quarter, and the loss clearly "
            f"higher ({b.LOST_LOSS_FRACTION:.0%}); critical above {b.EXPLODED_RATIO:g} times, and at once where all of "
            f"the newest {b.EXPLODED_STEPS} are",
            "warning",
            "critical",
        ),
        _rule(
            "norm_collapsed",
            f"fallen by {b.COLLAPSE_RATIO:g} at once and for good: for {b.COLLAPSE_STEPS} steps after a spike "
            f"(critical), for {b.COLLAPSE_STEPS_WITHOUT_SPIKE} without one; long after it by the histogram of all "
            f"norms, of which at most {b.COLLAPSE_BETWEEN:.0%} as many lie between as above",
            "warning",
            "critical",
        ),
        _rule(
            "norm_drift",
            f"the newest quarter and the first (of a long run: all norms before) differ by more than {b.DRIFT_RATIO:g} "
            "times",
            "info",
        ),
        _rule(
            "no_signal_steps",
            f"isolated norms (fewer than {b.MAX_NO_SIGNAL_STREAK} in a row; at {b.MIN_NO_SIGNAL_STREAKS} places or "
            f"more, where there are fewer than {b.MIN_NORMS} norms) below {b.NO_SIGNAL_RATIO:g} of those around",
            "info",
        ),
    ),
    "Loss scale: one verdict": (
        _rule("loss_scale_not_used", "said not to be used; or constant under bf16 or fp32, or 1 throughout", "ok"),
        _rule("loss_scale_unknown", "neither a scale nor a precision is recorded", "ok"),
        _rule(
            "loss_scale_static",
            "a fixed scale, or one that never moves (a scaler's initial value may stand still for "
            f"{b.NEVER_GROWS_INTERVALS * b.USUAL_GROWTH_INTERVAL:,} steps); warning from {b.THRASHING_STREAK} skips in "
            f"a row or above {b.SKIP_RATE:.1%}, critical from {b.COLLAPSED_STREAK} in a row",
            "ok",
            "warning",
            "critical",
        ),
        _rule(
            "loss_scale_warming_up",
            f"the first burst of skips is under way or less than {b.QUIET_STEPS} steps ago; the scale falls with every "
            "skip or two, and below a scale of "
            f"{b.WARMUP_SCALE:g} it may go on for less than {b.WARMUP_SKIPS_BELOW} skips",
            "info",
            source=TORCH,
        ),
        _rule(
            "loss_scale_healthy",
            f"up to {b.SKIPS_PER_INTERVAL} skips in a growth interval, or {b.SKIP_RATE:.1%} where that is unknown",
            "ok",
            source=TORCH,
        ),
        _rule(
            "loss_scale_thrashing",
            f"more skips than that (at least {b.MIN_THRASHING_SKIPS}), or {b.THRASHING_STREAK} in a row",
            "warning",
        ),
        _rule(
            "loss_scale_collapsing",
            f"new lows: {b.COLLAPSING_RATIO:g} times lower within {b.QUIET_STEPS} steps, or lower in each quarter "
            "of the "
            "judged steps; or a first burst that goes on for too long",
            "warning",
        ),
        _rule(
            "loss_scale_collapsed",
            f"{b.COLLAPSED_STREAK} skips in a row; {b.THRASHING_STREAK} newest at a scale that falls no more; or a "
            f"scale below {b.COLLAPSED_SCALE:g}",
            "critical",
        ),
        _rule(
            "loss_scale_model_nan",
            f"the newest {b.MODEL_NAN_LOSSES} losses not finite; or the newest {b.COLLAPSED_STREAK} steps "
            f"skipped, all NaN; or the newest {b.PURE_NAN_STREAK}, where the record says that none held an Inf",
            "critical",
        ),
    ),
    "Loss scale: beside the verdict": (
        _rule("loss_scale_found", "the first burst of skips is over", "info", source=TORCH),
        _rule(
            "loss_scale_never_grows",
            f"{b.NEVER_GROWS_INTERVALS} growth intervals without skip and without growth",
            "info",
            source=TORCH,
        ),
        _rule("loss_scale_under_bf16", "a loss scale other than 1 is recorded under bf16", "info"),
        _rule("loss_scale_not_recorded", "−1 or 0 throughout: a placeholder", "info"),
        _rule("gradients_underflow", f"median underflow_fraction above {b.UNDERFLOW_FRACTION:g}", "info"),
    ),
    "NaN and Inf": (
        _rule(
            "run_dead",
            f"all newest steps not finite and not skipped, {b.DEAD_STREAK} or more; {b.APPLIED_STREAK} where the "
            "log says that they were applied; and the loss does not move on",
            "critical",
        ),
        _rule(
            "loss_nonfinite",
            f"a loss is NaN or Inf; critical where the newest {b.MODEL_NAN_LOSSES} are; info where a loss scale "
            "explains "
            "it",
            "info",
            "warning",
            "critical",
        ),
        _rule(
            "nonfinite_steps",
            "a norm is NaN or Inf and no loss scale explains it; info where nobody says whether there is one and they "
            f"are few (up to {b.RARE_FRACTION:.0%}, never {b.BURST_STEPS} in a row) or among the first "
            f"{b.FIRST_ROWS}; critical from {b.LONG_STREAK} newest on",
            "info",
            "warning",
            "critical",
        ),
        _rule(
            "nonfinite_applied",
            "a step with such a norm is recorded as applied; critical where no finite norm follows",
            "warning",
            "critical",
        ),
        _rule(
            "steps_skipped",
            f"above {b.SKIPPED_FRACTION:.0%} of the steps ({b.BURST_STEPS} or more) skipped without a loss scale, "
            "not by the user; critical where the newest "
            f"{b.LONG_STREAK} are",
            "warning",
            "critical",
        ),
        _rule(
            "no_gradient_steps",
            f"steps without a gradient; warning above half of them, or the newest {b.LONG_STREAK}",
            "info",
            "warning",
        ),
    ),
    f"Layers (from {b.LAYER_ROWS} rows of layer norms on)": (
        _rule(
            "layers_dominant",
            f"a layer holds above {b.DOMINANT_SHARE:.0%} of the squared norm (of {b.MIN_DOMINANT_LAYERS} layers "
            "or more)",
            "info",
        ),
        _rule(
            "layers_vanishing",
            f"below {b.VANISHING_RATIO:g} of the layers' 90th percentile on {b.SUSTAINED:.0%} of the rows, biases "
            "left out; warning "
            f"above {b.WARN_VANISHING_FRACTION:.0%} of the layers",
            "info",
            "warning",
        ),
        _rule(
            "layers_exploding",
            f"above {b.EXPLODING_LAYER_RATIO:g} times the layers' 75th percentile on {b.SUSTAINED:.0%} of the "
            "rows, where none vanish",
            "warning",
        ),
        _rule("layers_dead", f"exactly 0 on the newest {b.LAYER_ROWS} rows or more, experts left out", "warning"),
        _rule(
            "layers_sudden_change",
            f"the newest {b.SUDDEN_ROWS} rows {b.SUDDEN_RATIO:g} times above or below those before, against the others",
            "warning",
        ),
        _rule("layers_without_gradient", "never a gradient", "info"),
        _rule(
            "layers_do_not_add_up",
            f"root of the sum of squares and total norm differ by more than {b.ADD_UP_TOLERANCE:.0%}",
            "warning",
        ),
    ),
    "Training": (
        _rule(
            "lr_moves_without_steps",
            f"{b.LR_MOVES} decays in a row without an applied step; warning from {b.LR_MOVES_MANY} on, or where "
            "nothing "
            "is applied at all",
            "info",
            "warning",
        ),
        _rule("lr_jumped", f"the learning rate rises {b.LR_JUMP_RATIO:g} times from one step to the next", "info"),
        _rule(
            "update_ratio_unusual",
            f"median update ÷ weight above {b.HIGH_UPDATE_RATIO:g} or below {b.LOW_UPDATE_RATIO:g}",
            "info",
            source="A. Karpathy's rule of thumb, about 1e-3",
        ),
        _rule(
            "validation_turned",
            f"{b.TURNED_EVALUATIONS} evaluations in a row {b.TURNED_FRACTION:.0%} (and {b.TURNED_SIGMAS:g} times their "
            "noise) worse than the best, and the clip "
            f"fraction changed by {100 * b.TURNED_CLIPPING:.0f} points since",
            "warning",
        ),
    ),
    "The record": (
        _rule(
            "ranks_disagree",
            f"norms of the same step differ by more than {b.RANK_TOLERANCE:.0%} between ranks, on {b.RANK_STEPS} steps",
            "warning",
        ),
        _rule(
            "telemetry_lost",
            f"the training process dropped rows; warning above {b.LOST_FRACTION:.0%}",
            "info",
            "warning",
        ),
        _rule(
            "telemetry_gap",
            f"step numbers jump by more than {b.GAP_RATIO:g} usual distances (their {b.GAP_PERCENTILE:g}th percentile)",
            "info",
        ),
    ),
}
BY_CODE = {rule.code: rule for rules in RULES.values() for rule in rules}


def as_markdown() -> str:
    """The table as it stands in docs/findings.md."""
    parts = []
    for title, rules in RULES.items():
        lines = ["| code | border | severity | source |", "|---|---|---|---|"]
        lines += [f"| `{r.code}` | {r.border} | {', '.join(r.severities)} | {r.source} |" for r in rules]
        parts.append(f"## {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"
