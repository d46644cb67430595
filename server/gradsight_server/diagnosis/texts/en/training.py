"""English for layers, training and the record. code[.variant] → (title, advice)."""

TEXTS: dict[str, tuple[str, str]] = {
    # Layers
    "layers_dominant": (
        "One layer makes up most of the norm",
        "{names} holds {share:percent} of the squared norm, so clipping is about this layer. Give it a threshold or a "
        "learning rate of its own if its spikes slow the others down.",
    ),
    "layers_vanishing": (
        "Gradients vanish in some layers",
        "In {names} they are less than a ten-thousandth of the large layers'. Look at initialisation, normalisation "
        "and residual paths there.",
    ),
    "layers_exploding": (
        "Gradients explode in some layers",
        "In {names} they are more than a thousand times those of other layers. Look at initialisation and "
        "normalisation there, or give the layer a threshold of its own.",
    ),
    "layers_dead": (
        "Layers without any gradient signal",
        "The gradient of {names} has been exactly 0 for at least {num_rows:count} recorded steps while others learn. "
        "Dead units, or not part of the loss?",
    ),
    "layers_sudden_change": (
        "A layer's gradient has jumped",
        "{names} changed by a factor of {ratio} against the other layers. If nothing was frozen or unfrozen there, "
        "look at what happened at that step.",
    ),
    "layers_without_gradient": (
        "Layers that never had a gradient",
        "{num_layers:count} of {num_layers_in_all:count}: {names}. Fine if they are frozen; otherwise they are not "
        "part of the loss.",
    ),
    "layers_do_not_add_up": (
        "Layer norms and total norm do not fit",
        "The root of the layers' sum of squares is {ratio} times the total. They may be taken at different moments, of "
        "different shards, or one may hold a root or a scale too many.",
    ),
    # Training and recording
    "lr_moves_without_steps": (
        "The learning rate decays while no step is applied",
        "It decayed {num_decays:count} times on skipped steps, up to {longest:count} times in a row; "
        "{num_applied:updates were} applied in all. Call scheduler.step() only when the optimizer step ran: when "
        "scaler.get_scale() has not fallen.",
    ),
    "lr_jumped": (
        "The learning rate jumped at step {at_step:count}",
        "From {lr_before} to {lr_after}. If nobody meant that, it explains what came after: look at the schedule.",
    ),
    "update_ratio_unusual.high": (
        "Updates are large beside the weights",
        "The usual update is {update_ratio} of the weights; about 0.001 is common. Consider a lower learning rate.",
    ),
    "update_ratio_unusual.low": (
        "Updates are tiny beside the weights",
        "The usual update is {update_ratio} of the weights; about 0.001 is common. Consider a higher learning rate.",
    ),
    "validation_turned.tighter": (
        "Validation got worse while clipping got tighter",
        "{names} was best at step {turned_at_step:count} ({best}, now {newest}); since then "
        "{clip_fraction_after:percent} of the steps were clipped, before {clip_fraction_before:percent}. Growing norms "
        "are an early sign of divergence: lower the learning rate, or go back to that step.",
    ),
    "validation_turned.looser": (
        "Validation got worse while clipping stopped acting",
        "{names} was best at step {turned_at_step:count} ({best}, now {newest}); since then "
        "{clip_fraction_after:percent} of the steps were clipped, before {clip_fraction_before:percent}. The training "
        "set may be learnt by heart: consider to stop at that step.",
    ),
    "ranks_disagree": (
        "Ranks disagree about the norm",
        "At step {at_step:count}: {largest_norm} against {smallest_norm}, on {num_steps:steps} in all. They clip by "
        "different factors. Reduce the squared norms over all ranks once; divide expert gradients like dense ones.",
    ),
    "telemetry_lost": (
        "Some steps were lost on the way",
        "{num_rows:rows} ({fraction:percent}) were dropped by the training process [[({names}) ]]and are missing here. "
        "Training itself was not touched.",
    ),
    "telemetry_gap": (
        "Steps are missing",
        "{num_gaps:gaps}, about {num_steps:steps} that were not recorded. What happened there cannot be seen.",
    ),
}
