"""English for clipping and the norms. code[.variant] → (title, advice)."""

_USUAL = (
    "Usual starting values, on which sources disagree: convolutional nets 1.0 or no clipping, transformers 0.5 or 1 to "
    "5, recurrent nets 5 to 15. Better: record the norm for some hundred steps and take its 90th percentile."
)

_RANGE = "[[ to {recommended_low}–{recommended_high} (clips 10–20 % of these steps)]]"

TEXTS: dict[str, tuple[str, str]] = {
    # Clipping verdicts
    "clipping_off": ("Clipping is off", "No spike calls for it. Nothing to do."),
    "clipping_unknown": ("No verdict on clipping yet", _USUAL),
    "clipping_unknown.few": (
        "Too few steps for a verdict on clipping",
        "There are {num_finite:finite gradient norms}, a verdict wants 50. Let it run on. " + _USUAL,
    ),
    "clipping_unknown.no_norm": (
        "No gradient norm, so no verdict on clipping",
        "Record grad_norm_before_clip, the norm of the unscaled gradients before clipping. " + _USUAL,
    ),
    "clipping_unknown.not_finite": (
        "No finite gradient norm, so no verdict on clipping",
        "Every norm so far is NaN or Inf. See to that first.",
    ),
    "clipping_unknown.zero": (
        "All norms are zero, so no verdict on clipping",
        "There is nothing to clip. See that the loss depends on trainable parameters, and that what is logged is the "
        "norm.",
    ),
    "clipping_unknown.no_threshold": (
        "The clipping threshold is not known",
        "Record max_norm, or say what it is (--max-norm), or that clipping is off. The median norm is {median_norm}[[; "
        "a threshold of {recommended_low}–{recommended_high} would clip 10–20 % of these steps]]. " + _USUAL,
    ),
    "clipping_inactive": (
        "Clipping hardly ever acts",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped[[: the threshold {max_norm} is above "
        "nearly all norms (median {median_norm})]]. There was no spike to clip, so that is no fault. [[If you want it "
        "to act: {recommended_low}–{recommended_high} would clip 10–20 % of these steps.]]",
    ),
    "clipping_inactive.collapsed": (
        "Nothing is left to clip",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped, because the norms have collapsed (median "
        "{median_norm}, threshold {max_norm}). See the finding on that.",
    ),
    "clipping_healthy": (
        "Clipping is healthy",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped. Nothing to do.",
    ),
    "clipping_healthy.safety_net": (
        "Clipping is healthy",
        "It acts on {clip_fraction:percent} of the steps and caught the {num_spikes:spikes}. Nothing to do.",
    ),
    "clipping_healthy.adaptive": (
        "Clipping is healthy",
        "The threshold follows the norms; this policy clipped {clip_fraction:percent} of the steps, as it is meant to. "
        "Nothing to do.",
    ),
    "clipping_healthy.per_layer": (
        "Clipping is healthy",
        "On {clip_fraction:percent} of the steps some layer was clipped; on the whole the gradient kept "
        "[[{median_clip_coef:percent} ]]of its size. Nothing to do.",
    ),
    "clipping_firm": (
        "Clipping acts often",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped (threshold {max_norm}, median norm "
        "{median_norm}). It can stay; for less, raise max_norm" + _RANGE + ".",
    ),
    "clipping_firm.exploding": (
        "Clipping acts often, because the norms are exploding",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped. Leave the threshold: it is the norms "
        "that have grown.",
    ),
    "clipping_unknown.not_applied": (
        "Clipping is not judged, since it is not applied",
        "The threshold {max_norm} is declared, but the gradients were used as they are. See the finding on that.",
    ),
    "clipping_firm.scaled": (
        "Clipping acts often, on gradients that are still scaled",
        "Unscale first, then judge the threshold: see the finding on the norm.",
    ),
    "clipping_too_tight.scaled": (
        "Most steps are clipped, because the gradients are still scaled",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped, by the loss scale's size too much. "
        "Unscale first; the threshold {max_norm} may be right then.",
    ),
    "clipping_firm.after_clip": (
        "Clipping acts often",
        "{clip_fraction:percent} of the last {num_judged:steps} end at the threshold {max_norm}. By how much they were "
        "clipped cannot be seen: log the norm before clipping.",
    ),
    "clipping_too_tight.after_clip": (
        "The clipping threshold is too tight",
        "{clip_fraction:percent} of the last {num_judged:steps} end at the threshold {max_norm}, so they were clipped; "
        "by how much cannot be seen. Log the norm before clipping, and raise max_norm or lower the learning rate.",
    ),
    "clipping_too_tight.exploding": (
        "Most steps are clipped, because the norms are exploding",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped. Do not raise max_norm ({max_norm}): it "
        "is the norms that have grown, and clipping holds them back.",
    ),
    "clipping_too_tight": (
        "The clipping threshold is too tight",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped; the median norm is {median_norm}, the "
        "threshold {max_norm}[[, so steps are about 1/{median_clip_coef:inverse} of their size]]. "
        "Raise max_norm" + _RANGE + ", or leave it and lower the learning rate: clipping now acts as a hidden cut of "
        "the learning rate.",
    ),
    "clipping_too_tight.sgd": (
        "The clipping threshold is too tight",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped; the median norm is {median_norm}, the "
        "threshold {max_norm}. With SGD that is a hidden cut of the learning rate[[: on average steps have "
        "{mean_clip_coef:percent} of their size]]. Raise max_norm" + _RANGE + "[[ and, to keep the same step size, "
        "multiply the learning rate by about {mean_clip_coef}]].",
    ),
    "clipping_too_tight.adam": (
        "The clipping threshold is too tight",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped; the median norm is {median_norm}, the "
        "threshold {max_norm}. Adam forgives a constant factor, but this one varies by {clip_coef_spread:percent}: "
        "steps with large gradients count for less than they should. "
        "Raise max_norm" + _RANGE + "; if training then is unstable, lower the learning rate.",
    ),
    "clipping_too_tight.early": (
        "Most steps are clipped so far",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped; the median norm is {median_norm}, the "
        "threshold {max_norm}. Norms are high and unsteady when a run begins: look again after some hundred steps. "
        "If it stays so, raise max_norm" + _RANGE + ".",
    ),
    "clipping_too_tight.risen": (
        "Most steps are clipped, because the norms have risen",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped; the median norm is {median_norm}, the "
        "threshold {max_norm}. Look at the loss first: if it rises too, lower the learning rate and leave the "
        "threshold. If it falls, the threshold no longer fits: raise max_norm" + _RANGE + ".",
    ),
    "clipping_too_tight.steady": (
        "Nearly every step is clipped, by about the same factor",
        "{clip_fraction:percent} of the last {num_judged:steps were} clipped, to about 1/{median_clip_coef:inverse} of "
        "their size. Adam does not see a constant factor, so this does little harm, "
        "but the threshold is no safety net either. Raise max_norm" + _RANGE + " if you want one.",
    ),
    "clipping_too_tight.detection": (
        "Nearly every step is clipped, as usual for a threshold of 0.1",
        "A threshold of 0.1, as detection transformers use it, clips nearly all steps ({clip_fraction:percent} here) "
        "on purpose: the gradient gives the direction, the learning rate the size. "
        "If you did not mean that, raise max_norm" + _RANGE + ".",
    ),
    "clipping_too_tight.per_layer": (
        "Clipping takes most of the gradient away",
        "The gradient keeps about {median_clip_coef:percent} of its size. Raise the threshold of the layers that are "
        "clipped most, or lower the learning rate.",
    ),
    "clipping_too_loose": (
        "The clipping threshold is too loose",
        "{num_spikes_passed:count} of {num_spikes:spikes} passed: even after clipping they had more than 10 times the "
        "usual norm, the largest {largest_spike_ratio} times before it"
        "[[; the loss rose after {num_spikes_with_loss_rise:count} of them]]. The threshold is {max_norm}, the "
        "median norm {median_norm}. Lower max_norm" + _RANGE + ".",
    ),
    "clipping_too_loose.lost": (
        "A spike passed the threshold, and the loss has not come back",
        "The loss was {loss_before} before the spike and is {loss_since} now; the largest spike had "
        "{largest_spike_ratio} times the usual norm. Go back to a checkpoint from before, and lower max_norm (now "
        "{max_norm})" + _RANGE + ".",
    ),
    "spikes_passed.lost": (
        "A gradient spike reached the optimizer, and the loss has not come back",
        "The loss was {loss_before} before the spike and is {loss_since} now; the largest spike had "
        "{largest_spike_ratio} times the usual norm. Go back to a checkpoint from before, and clip"
        "[[ at {recommended_low}–{recommended_high}]].",
    ),
    "spikes_passed": (
        "Spikes pass the threshold",
        "{num_spikes_passed:count} of {num_spikes:spikes} kept more than 10 times the usual norm after clipping, the "
        "largest {largest_spike_ratio} times before it. [[A max_norm of {recommended_low}–{recommended_high} would "
        "hold them.]]",
    ),
    "spikes_passed.unknown": (
        "There are gradient spikes, and nobody says whether they were clipped",
        "{num_spikes_passed:steps} had more than 10 times the usual norm, the largest {largest_spike_ratio} times"
        "[[; the loss rose after {num_spikes_with_loss_rise:count} of them]]. One such step can undo many good ones. "
        "[[If they were not clipped, clip at {recommended_low}–{recommended_high}.]]",
    ),
    "spikes_passed.off": (
        "Gradient spikes reach the optimizer",
        "Clipping is off, and {num_spikes_passed:steps} had more than 10 times the usual norm, the largest "
        "{largest_spike_ratio} times[[; the loss rose after {num_spikes_with_loss_rise:count} of them]]. One such step "
        "can undo many good ones. [[Clip at {recommended_low}–{recommended_high}.]]",
    ),
    "threshold_outgrown": (
        "Clipping has stopped acting",
        "It clipped {clip_fraction_before:percent} of the earlier steps and {clip_fraction_now:percent} of the newer "
        "ones. If nobody meant that, see what changed: norms fall while a model learns, but also when the loss is "
        "averaged over more items.",
    ),
    "threshold_not_positive": (
        "A threshold of 0 was taken as no clipping",
        'fairseq, DeepSpeed and Transformers mean "off" by 0; torch\'s clip_grad_norm_ would make every gradient zero. '
        "If this is torch, use a positive threshold or leave the call out.",
    ),
    "threshold_not_positive.negative": (
        "A negative threshold was taken as no clipping",
        "torch's clip_grad_norm_ would turn every gradient around. Use a positive threshold, or leave the call out.",
    ),
    "clip_not_applied": (
        "Clipping is declared but not applied",
        "On {num_steps:steps} the norm was above the threshold {max_norm} (median {median_norm}), yet the gradient was "
        "used as it was. See that the clipped gradient is the one the optimizer gets, and that clipping comes after "
        "backward and before optimizer.step().",
    ),
    # Norms
    "norm_not_recorded": ("The gradient norm was not recorded", "Without it there is nothing to judge clipping by."),
    "norm_not_recorded.zero": (
        "The gradient norm was not recorded",
        "All {num_steps:norms} are exactly 0 while the loss moves: a placeholder of the framework, not vanishing "
        "gradients.",
    ),
    "norm_not_recorded.negative": (
        "The gradient norm was not recorded",
        "The norms are negative: a placeholder of the framework.",
    ),
    "norm_all_zero": (
        "Every gradient is zero",
        "All {num_steps:norms} are exactly 0. See that the loss depends on trainable parameters: nothing frozen, "
        "detached or under no_grad by mistake. Or the norm is not what the log says.",
    ),
    "norm_stale": (
        "The same norm is logged again and again",
        "{fraction:percent} of the norms equal the one before to the last digit, up to {longest:count} in a row. The "
        "log repeats an old value: log the norm that clip_grad_norm_ returns, on every step.",
    ),
    "norm_after_clip": (
        "The logged norm is the one after clipping",
        "{fraction:percent} of the norms end exactly at the threshold {max_norm} and none is above it. So many steps "
        "were clipped, by how much cannot be seen. Log what clip_grad_norm_ returns: the norm before clipping.",
    ),
    "norm_after_clip.maybe": (
        "The logged norm may be the one after clipping",
        "{fraction:percent} of the norms are exactly {largest_norm} and none is above it, as after clipping at "
        "{largest_norm}. If that is the threshold, log what clip_grad_norm_ returns, the norm before clipping, and "
        "record max_norm.",
    ),
    "norm_times_scale": (
        "The norm still holds the loss scale",
        "It moves with the loss scale. Divided by it the median norm is {median_norm_unscaled}, not {median_norm}. "
        "Call scaler.unscale_(optimizer) before taking the norm, or divide the log by the scale.",
    ),
    "norm_times_scale.clipped": (
        "Gradients are clipped while still scaled",
        "The norm moves with the loss scale: divided by it the median norm is {median_norm_unscaled}, not "
        "{median_norm}, and the threshold is far below what it should be. Call scaler.unscale_(optimizer) before "
        "clip_grad_norm_.",
    ),
    "norm_maybe_times_scale": (
        "The norm may still hold the loss scale",
        "The median norm is {median_norm}; divided by the loss scale {last_scale} it would be {median_norm_unscaled}. "
        "If the norm is taken before scaler.unscale_(optimizer), take it after.",
    ),
    "norm_maybe_times_scale.clipped": (
        "Gradients may be clipped while still scaled",
        "The median norm is {median_norm}; divided by the loss scale {last_scale} it would be {median_norm_unscaled}. "
        "See that scaler.unscale_(optimizer) comes before clip_grad_norm_.",
    ),
    "norm_exploding": (
        "The gradient norm is exploding",
        "The newest norms are about {newest_norm}, {ratio} times the usual {usual_norm}, and the loss is no better for "
        "it. Stop, go back to a checkpoint from before, and lower the learning rate.",
    ),
    "norm_exploding.unclipped": (
        "The gradient norm is exploding",
        "The newest norms are about {newest_norm}, {ratio} times the usual {usual_norm}, and the loss is no better for "
        "it. Stop, go back to a checkpoint from before, and lower the learning rate, or clip at about the usual norm.",
    ),
    "norm_collapsed": (
        "The gradient norm has collapsed",
        "It fell from {norm_before} to {norm_after} and stayed there. If nothing was frozen or detached at that step, "
        "the model has stopped learning: go back to a checkpoint from before.",
    ),
    "norm_collapsed.after_spike": (
        "A spike has killed the gradient",
        "After a norm of {largest_norm} it fell from {norm_before} to {norm_after} and stayed there: the update has "
        "driven the model where it has no gradient. Go back to a checkpoint from before, clip at a few times the usual "
        "norm, or lower the learning rate.",
    ),
    "norm_collapsed.long_ago": (
        "The gradient norm has collapsed",
        "It was about {norm_before} once and has been about {norm_after} since before step {before_step:count}. If "
        "nothing was frozen or detached, the model has stopped learning: go back to a checkpoint from before the fall.",
    ),
    "norm_collapsed.long_ago_after_spike": (
        "A spike has killed the gradient",
        "The norm was about {norm_before} once, with a spike of {largest_norm}, and has been about {norm_after} since "
        "before step {before_step:count}: the model has no gradient left. Go back to a checkpoint from before the "
        "spike, clip at a few times the usual norm, or lower the learning rate.",
    ),
    "norm_drift.falling": (
        "The usual norm has fallen",
        "From about {first_norm} to {newest_norm}. A threshold chosen early may not act any more: look at it again.",
    ),
    "norm_drift.rising": (
        "The usual norm has risen",
        "From about {first_norm} to {newest_norm}. A threshold chosen early may be too tight by now: look at it again.",
    ),
    "no_signal_steps": (
        "Some steps had no signal",
        "{num_steps:isolated steps} ({fraction:percent}) had a norm of nearly zero between normal ones, as when all "
        "answers of a group earn the same reward. They are left out of the figures.",
    ),
}
