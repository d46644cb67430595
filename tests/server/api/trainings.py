"""Batches of three runs like the demo's: healthy, a threshold that is too tight, and fp16 that goes wrong."""

from typing import Any

import numpy as np

ADAM = {"optimizer": {"class": "AdamW", "lr": 1e-3}, "precision": "fp32", "scaler": None}
FP16 = {
    "optimizer": {"class": "AdamW", "lr": 1e-3},
    "precision": "fp16",
    "policy": "global_norm(1.0)",
    "scaler": "dynamic(init_scale=16777216.0, growth_interval=2000)",
}


def clipped(
    first_step: int, num_steps: int, *, median: float, max_norm: float, spread: float = 0.4, seed: int = 0
) -> dict[str, Any]:
    """A batch of log-normal norms under a fixed threshold, with a loss that falls."""
    step = np.arange(first_step, first_step + num_steps)
    norm = median * np.exp(np.random.default_rng(seed).normal(0.0, spread, num_steps))
    return {
        "step": step.tolist(),
        "loss": (1.0 + np.exp(-step / 500)).tolist(),
        "lr": [1e-3] * num_steps,
        "grad_norm_before_clip": norm.tolist(),
        "max_norm": [max_norm] * num_steps,
        "clip_coef": np.minimum(1.0, max_norm / (norm + 1e-6)).tolist(),
        "skipped": [False] * num_steps,
    }


def healthy(first_step: int = 0, num_steps: int = 400) -> dict[str, Any]:
    """About one step in ten is clipped."""
    return clipped(first_step, num_steps, median=0.6, max_norm=1.0)


def too_tight(first_step: int = 0, num_steps: int = 400) -> dict[str, Any]:
    """Every step is, by ever different factors."""
    return clipped(first_step, num_steps, median=0.6, max_norm=0.02)


def fp16_goes_wrong(num_steps: int = 400) -> dict[str, Any]:
    """The scale is found in the first 12 steps; from 60 % on the model itself is NaN and every step is skipped."""
    batch = clipped(0, num_steps, median=0.6, max_norm=1.0)
    scale = 2.0**24
    wrong_at = int(0.6 * num_steps)
    scales = []
    for i in range(num_steps):
        scales.append(scale)
        is_lost = i >= wrong_at
        if i < 12 or is_lost:
            batch["skipped"][i] = True
            batch["grad_norm_before_clip"][i] = "NaN" if is_lost else "Infinity"
            batch["clip_coef"][i] = None
            scale /= 2
        if is_lost:
            batch["loss"][i] = "NaN"
    reasons = ["overflow" if skipped else None for skipped in batch["skipped"]]
    return batch | {"loss_scale": scales, "skip_reason": reasons}
