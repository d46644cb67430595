"""What a careful person says of each training, written down before the rules were tuned.

Seeds 0 and 1 were used for tuning, 2 and 3 were kept for the check.
"""

from dataclasses import dataclass

TUNING_SEEDS, CHECK_SEEDS = (0, 1), (2, 3)
QUIET = ("ok", "info")
"""Severities a healthy run may have."""
LOUD = ("warning", "critical")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Where several verdicts are given, a careful person would accept any of them."""

    clipping: tuple[str, ...]
    scaling: tuple[str, ...] = ("not_used",)
    worst: tuple[str, ...] = QUIET
    """Of all severities in the answer."""
    findings: tuple[str, ...] = ()
    """Codes that must be among the findings."""
    why: str


HEALTHY = ("healthy",)
TRUTHS: dict[str, Truth] = {
    "mlp-sgd-right": Truth(clipping=HEALTHY, why="about 10 % clipped"),
    "mlp-sgd-too-tight": Truth(clipping=("too_tight",), worst=("critical",), why="SGD at an eighth of its step size"),
    "mlp-sgd-off": Truth(clipping=("off",), why="no clipping, no spikes"),
    "mlp-sgd-too-loose": Truth(clipping=("too_loose",), worst=("warning",), why="spikes of 20 times pass 1000"),
    "mlp-adam-right": Truth(clipping=HEALTHY, why="about 10 % clipped"),
    "mlp-adam-too-tight": Truth(
        clipping=("too_tight",), worst=("warning",), why="all clipped, coefficient varies; Adam forgives some of it"
    ),
    "mlp-adam-inactive": Truth(clipping=("inactive",), why="never clipped, nothing to clip"),
    "cnn-sgd-right": Truth(clipping=HEALTHY, why="about 20 % clipped, fewer towards the end"),
    "cnn-sgd-too-tight": Truth(clipping=("too_tight",), worst=("critical",), why="learns visibly slower than without"),
    "cnn-sgd-off": Truth(clipping=("off",), why="no clipping, no spikes"),
    "transformer-adam-right": Truth(clipping=HEALTHY, why="about 10 % clipped"),
    "transformer-adam-too-tight": Truth(
        clipping=("too_tight",), worst=("warning",), why="all clipped to a fifth, learns all the same"
    ),
    "transformer-adam-inactive": Truth(clipping=("inactive",), why="never clipped, nothing to clip"),
    "transformer-adam-off": Truth(clipping=("off",), why="no clipping, no spikes"),
    "transformer-adam-too-loose": Truth(clipping=("too_loose",), worst=("warning",), why="ten spikes of 40 times pass"),
    "transformer-adam-spikes-caught": Truth(clipping=HEALTHY, why="a safety net that works"),
    "transformer-adam-spikes-off": Truth(
        clipping=("off",), worst=("warning",), findings=("spikes_passed",), why="spikes and nothing that holds them"
    ),
    "transformer-adam-detection": Truth(clipping=("too_tight",), why="0.1 with AdamW, as detection transformers do"),
    "lstm-adam-right": Truth(clipping=HEALTHY, why="about 12 % clipped"),
    "lstm-adam-too-tight": Truth(clipping=("too_tight",), worst=("warning",), why="all clipped to a tenth"),
    "lstm-adam-off": Truth(clipping=("off",), why="no clipping, no spikes"),
    "lstm-adam-too-loose": Truth(clipping=("too_loose",), worst=("warning",), why="ten spikes of 60 times pass"),
    "lstm-sgd-right": Truth(clipping=HEALTHY, why="about 10 % clipped"),
    "lstm-sgd-too-tight": Truth(clipping=("too_tight",), worst=("critical",), why="SGD at a tenth of its step size"),
    "mlp-adam-percentile": Truth(clipping=HEALTHY, why="AutoClip clips most steps by design"),
    "transformer-adam-zscore": Truth(clipping=("healthy", "inactive"), why="ZClip takes the spikes and little else"),
    "cnn-sgd-outgrown": Truth(
        clipping=("inactive",), findings=("threshold_outgrown",), why="a sum became a mean at 200: never clips since"
    ),
    "fp16-sawtooth": Truth(clipping=HEALTHY, scaling=HEALTHY, why="grows every 50 steps, skips when it has"),
    "fp16-from-far-too-high": Truth(
        clipping=HEALTHY, scaling=HEALTHY, findings=("loss_scale_found",), why="23 skips at first, fine since"
    ),
    "fp16-just-started": Truth(clipping=("unknown",), scaling=("warming_up",), why="47 steps after the first burst"),
    "fp16-transformer": Truth(clipping=HEALTHY, scaling=HEALTHY, why="sawtooth, about 5 to 20 % clipped"),
    "fp16-thrashing": Truth(
        clipping=HEALTHY, scaling=("thrashing",), worst=("warning",), why="six overflows in a row, again and again"
    ),
    "fp16-collapsing": Truth(
        clipping=("healthy", "firm", "too_tight"), scaling=("collapsing",), worst=LOUD, why="inputs grow 6 % a step"
    ),
    "fp16-collapsed": Truth(
        clipping=HEALTHY, scaling=("collapsed",), worst=("critical",), why="finite loss, infinite gradients for ever"
    ),
    "fp16-model-nan": Truth(
        clipping=("healthy", "inactive"),
        scaling=("model_nan",),
        worst=("critical",),
        findings=("lr_moves_without_steps",),
        why="a weight is NaN; the schedule runs on",
    ),
    "fp16-static": Truth(clipping=HEALTHY, scaling=("static",), why="a fixed scale that fits"),
    "fp16-static-too-high": Truth(clipping=HEALTHY, scaling=("static",), worst=LOUD, why="a sixth of the steps lost"),
    "fp16-clipped-while-scaled": Truth(
        clipping=("too_tight",), scaling=HEALTHY, worst=LOUD, findings=("norm_times_scale",), why="unscale_ forgotten"
    ),
    "fp16-resume": Truth(clipping=HEALTHY, scaling=HEALTHY, why="a second search for the scale after the resume"),
    "bf16-right": Truth(clipping=HEALTHY, why="about 10 % clipped, no scale needed"),
    "nan-in-layer": Truth(
        clipping=HEALTHY,
        worst=("warning",),
        findings=("nonfinite_steps",),
        why="five NaN steps from one layer, skipped",
    ),
    "nan-batch-once": Truth(
        clipping=HEALTHY, worst=("warning",), findings=("nonfinite_steps",), why="NaN in fp32 is never routine"
    ),
    "nan-batch-unguarded": Truth(
        clipping=HEALTHY, worst=("critical",), findings=("run_dead",), why="NaN applied: the weights are gone"
    ),
    "spike-kills": Truth(
        clipping=("off",), worst=("critical",), findings=("norm_collapsed",), why="one bad batch, every ReLU dead"
    ),
    "spike-hurts": Truth(
        clipping=("off",), worst=LOUD, findings=("spikes_passed",), why="one bad batch, the loss never comes back"
    ),
    "learning-rate-goes-wrong": Truth(
        clipping=("healthy", "firm", "too_tight"), worst=LOUD, findings=("norm_exploding",), why="1000 times the rate"
    ),
    "resume": Truth(clipping=HEALTHY, why="optimizer state lost at 225, nothing else"),
    "no-signal-steps": Truth(
        clipping=("inactive",), findings=("no_signal_steps",), why="groups of equal reward; else never near 10"
    ),
    "vanishing": Truth(
        clipping=("healthy", "firm"), worst=("warning",), findings=("layers_vanishing",), why="ten sigmoids deep"
    ),
    "logged-after-clip": Truth(
        clipping=("too_tight",), worst=LOUD, findings=("norm_after_clip",), why="four in five norms are exactly 1.5"
    ),
    "clip-not-applied": Truth(
        clipping=("too_tight", "unknown"), worst=LOUD, findings=("clip_not_applied",), why="computed, never assigned"
    ),
}
OTHERWISE: dict[tuple[str, int], Truth] = {
    ("spike-kills", 2): Truth(
        clipping=("off",),
        worst=LOUD,
        findings=("spikes_passed",),
        why="this model comes back to life in the last steps: hurt, not dead. Seen at the check, corrected after it",
    ),
}
"""Seeds with which a training did not go as planned."""
NAN_LAYER = "blocks.1.fc1.weight"
"""Where the NaN of `nan-in-layer` was planted."""
