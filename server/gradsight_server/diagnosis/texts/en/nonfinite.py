"""English for the loss scale, NaN and Inf. code[.variant] → (title, advice)."""

_DETECT = (
    "To see the operation that makes it, run a few steps under torch.autograd.set_detect_anomaly(True): "
    "\n\n    with torch.autograd.set_detect_anomaly(True):\n        loss = loss_fn(model(x), y)\n        "
    "loss.backward()"
    "\n\nIt makes steps several times slower: turn it off again afterwards."
)
_COUNTED = (
    "{num_steps:steps} ({fraction:percent}), first at step {first_bad_step:count}[[, up to {longest_streak:count} in a "
    "row]]. "
)
_LAYER = "[[First seen in {names}: look there, and at the batches of these steps. ]]"
_FORWARD = (
    "The loss itself was not finite, so look at the batches of these steps and at the forward pass[[ (first seen in "
    "the gradient of {names})]]. "
)

TEXTS: dict[str, tuple[str, str]] = {
    # Loss scale verdicts
    "loss_scale_not_used": ("No loss scaling", "Nothing to do."),
    "loss_scale_unknown": ("Loss scaling was not recorded", "For fp16 record loss_scale and skipped."),
    "loss_scale_static": ("The loss scale is fixed", "It stays at {last_scale}. Nothing to do."),
    "loss_scale_static.too_high": (
        "The fixed loss scale is too high",
        "{num_skipped_since:count} of the last {num_judged:steps} overflowed[[ at a scale of {last_scale}]][[, up to "
        "{longest_streak:count} in a row]]. Divide the scale by 16, or use a dynamic one.",
    ),
    "loss_scale_warming_up": (
        "The loss scale is being found",
        "{num_skipped_first:steps were} skipped[[ while it came down from {first_scale} to {last_scale}]]. That is how "
        "a scaler starts; nothing to do.",
    ),
    "loss_scale_warming_up.inferred": (
        "The loss scale is being found",
        "It came down from {first_scale} to {last_scale}, by steps that were skipped. That is how a scaler starts; "
        "nothing to do.",
    ),
    "loss_scale_healthy": (
        "The loss scale is healthy",
        "[[It is at {last_scale}; ]]{num_skipped:count} of {num_steps:steps were} skipped. Nothing to do.",
    ),
    "loss_scale_healthy.inferred": (
        "The loss scale is healthy",
        "[[It is at {last_scale}; ]]as far as its falls tell, {num_skipped:count} of {num_steps:steps were} skipped. "
        "Nothing to do.",
    ),
    "loss_scale_thrashing": (
        "Too many steps overflow",
        "{num_skipped_since:count} of the last {num_judged:steps} ({skip_rate_since:percent}) were skipped[[, up to "
        "{longest_streak:count} in a row]]. Gradients are near the limit of fp16: lower the learning rate, clip "
        "tighter, or use bf16.",
    ),
    "loss_scale_collapsing": (
        "The loss scale keeps falling",
        "It fell to new lows[[, now {last_scale}]]; {num_skipped_since:count} of the last {num_judged:steps were} "
        "skipped. Gradients or activations grow: lower the learning rate or go back to a checkpoint now, before "
        "nothing is applied any more; or use bf16.",
    ),
    "loss_scale_collapsed": (
        "The loss scale has collapsed",
        "{longest_streak:steps} in a row were skipped[[ and the scale fell to {min_scale}]]: the model does not "
        "learn on them. Stop; look for the layer and the batch that overflow, go back to a checkpoint from before, "
        "lower the learning rate, or use bf16. " + _DETECT,
    ),
    "loss_scale_collapsed.floor": (
        "The loss scale is at its floor, and steps still overflow",
        "The newest {newest_streak:steps were} skipped at a scale of {last_scale}, which falls no more: the model does "
        "not learn. A smaller scale would not mend that. Stop; look for the layer and the batch that overflow, go back "
        "to a checkpoint from before, lower the learning rate, or use bf16. " + _DETECT,
    ),
    "loss_scale_collapsed.tiny": (
        "The loss scale has collapsed",
        "It fell to {min_scale}. Below 1 it makes gradients smaller, so what overflows is not small "
        "gradients scaled up but the model itself. Look for the layer and the batch that overflow, lower the learning "
        "rate, or use bf16. " + _DETECT,
    ),
    "loss_scale_model_nan": (
        "The model itself gives NaN",
        "The newest {newest_streak:steps were} NaN however far the scale fell[[, now {last_scale}]]. A smaller scale "
        "cannot mend that: weights, data or learning rate are bad. Look at the batch and the learning rate of the "
        "first bad step and go back to a "
        "checkpoint from before. " + _DETECT,
    ),
    "loss_scale_model_nan.loss": (
        "The loss itself is NaN",
        "Since step {first_bad_step:count}. The loss is taken before scaling, so this is not the loss scale's doing: "
        "weights, data or learning rate are bad. Look at the batch and the learning rate of the first bad step and "
        "go back to a checkpoint from before. " + _DETECT,
    ),
    "loss_scale_found": (
        "The first skipped steps found the loss scale",
        "{num_skipped_first:steps were} skipped while the scale was found, as a scaler does when it starts. Nothing to "
        "do.",
    ),
    "loss_scale_never_grows": (
        "The loss scale never grows",
        "{num_steps:clean steps} at {last_scale}, though it should double every {growth_interval:count}. See that "
        "scaler.update() is called after each step.",
    ),
    "loss_scale_under_bf16": (
        "bf16 needs no loss scale",
        "bf16 has the range of fp32: the scale ({last_scale}) does nothing for it. Leave the GradScaler out.",
    ),
    "loss_scale_not_recorded": (
        "The loss scale was not recorded",
        "It is −1 or 0 throughout: a placeholder of the framework.",
    ),
    "gradients_underflow": (
        "Most scaled gradients are zero",
        "{fraction:percent} of the elements underflow in fp16. Raise the loss scale, or use bf16.",
    ),
    # Non-finite
    "run_dead": (
        "The run is dead since step {first_bad_step:count}",
        "All {num_steps:steps} since are NaN or Inf and were not skipped: the weights are NaN, it will not come back. "
        "Stop it; go back to a checkpoint from before that step. " + _DETECT,
    ),
    "run_dead.loss_zero": (
        "The run is dead since step {first_bad_step:count}",
        "All {num_steps:steps} since have a norm of NaN or Inf: the weights are NaN, it will not come back. The logged "
        "loss of 0.0 is not real; the logger put it where the loss was NaN. Stop it; go back to a checkpoint from "
        "before that step. " + _DETECT,
    ),
    "loss_nonfinite": (
        "The loss was NaN or Inf",
        "On {num_steps:steps}, first at step {first_bad_step:count}. Look at the batches of these steps.",
    ),
    "loss_nonfinite.goes_on": (
        "The loss is NaN or Inf since step {first_bad_step:count}",
        "It will not come back by itself. Stop; look at the batch of that step and go back to a checkpoint from "
        "before. " + _DETECT,
    ),
    "nonfinite_steps": (
        "NaN or Inf in the gradients",
        _COUNTED + _LAYER + _DETECT,
    ),
    "nonfinite_steps.guarded": (
        "NaN or Inf in the gradients; these steps were skipped",
        _COUNTED + "The weights are unhurt. " + _LAYER + _DETECT,
    ),
    "nonfinite_steps.loss_lives": (
        "The newest gradients are all NaN or Inf, while the loss is finite",
        _COUNTED
        + "With NaN in the weights the loss would be NaN, so these updates were left out, or the loss scale is "
        "still being found. Record skipped and loss_scale to tell. " + _LAYER + _DETECT,
    ),
    "nonfinite_steps.loss": (
        "NaN or Inf in loss and gradients",
        _COUNTED + _FORWARD + _DETECT,
    ),
    "nonfinite_steps.loss_guarded": (
        "NaN or Inf in loss and gradients; these steps were skipped",
        _COUNTED + "The weights are unhurt. " + _FORWARD + _DETECT,
    ),
    "nonfinite_applied": (
        "An update with NaN or Inf was applied",
        "On {num_steps:steps} the gradient was not finite, yet the step was applied. Never call optimizer.step() "
        "beside scaler.step(optimizer), and skip steps whose gradient is not finite.",
    ),
    "steps_skipped": (
        "Many updates are skipped",
        "{num_skipped:steps were} skipped ({fraction:percent}) without a loss scale that would explain it[[, the last "
        "{newest_streak:count} in a row]]. The loss may look fine meanwhile: find the inputs whose gradient is NaN (in "
        "CTC: targets longer than their input).",
    ),
    "no_gradient_steps": (
        "Steps without a gradient",
        "On {num_steps:steps} ({fraction:percent}) no parameter of this optimizer had a gradient. See that its "
        "parameters take part in the loss and are not frozen, and that backward comes before each step.",
    ),
}
