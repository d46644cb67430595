"""Runs made up of numbers alone, of many shapes: healthy ones, and sick ones with the finding that must be made.

Beside the recorded trainings of `calibration/`, which are real but few and short.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradsight_server.diagnosis import Context, LayerNorms, StreamSteps
from tests.server.diagnosis.kit import Floats, context, steps

Random = np.random.Generator
ADAM, SGD = context(optimizer="AdamW"), context(optimizer="SGD")
OFF = context(optimizer="AdamW", policy=None)
FP16 = context(optimizer="AdamW", precision="fp16", scaler="dynamic(init_scale=65536.0, growth_interval=200)")


class Run(NamedTuple):
    steps: StreamSteps
    context: Context | None = None


def norms(
    r: Random, n: int, *, median: float = 1.0, spread: float = 0.25, decay: float = 3.0, memory: float = 0.0
) -> Floats:
    """Log-normal around a level that falls from `1 + decay` to 1 within some dozen steps; `memory` 1 never forgets."""
    noise = r.normal(size=n)
    for i in range(1, n if memory else 0):
        noise[i] = memory * noise[i - 1] + (1 - memory**2) ** 0.5 * noise[i]
    found: Floats = median * (1 + decay * np.exp(-np.arange(n) / 20)) * np.exp(spread * noise)
    return found


def run(
    norm: Any,
    about: Context | None = None,
    *,
    clips: float | None = 0.1,
    layers: LayerNorms | None = None,
    **columns: Any,
) -> Run:
    """With a threshold that clips such a part of the steps after warm-up, unless there is none, and a noisy loss."""
    n = len(norm)
    if clips is not None:
        settled = np.asarray(norm)[n // 10 :]
        columns["max_norm"] = float(np.quantile(settled[np.isfinite(settled)], 1 - clips))
    noise = np.random.default_rng(1).normal(size=n)
    columns.setdefault("loss", 1 + 2 * np.exp(-3 * np.arange(n) / n) + 0.05 * noise)
    return Run(steps(norm, layers=layers, **columns), about)


def length(r: Random, least: int = 300, most: int = 4000) -> int:
    return int(r.integers(least, most))


def scaler(n: int, *, init_scale: float, limit: float, interval: int = 200) -> tuple[Floats, Floats]:
    """Scale and skips of a scaler, whose steps overflow above the limit."""
    scale, clean = init_scale, 0
    scales, skips = np.empty(n), np.zeros(n)
    for i in range(n):
        scales[i], skips[i] = scale, scale > limit
        clean = 0 if scale > limit else clean + 1
        if scale > limit:
            scale /= 2
        elif clean == interval:
            scale, clean = 2 * scale, 0
    return scales, skips


def scaled(r: Random, n: int, *, limit: float, about: Context | None = FP16, init_scale: float = 2.0**16) -> Run:
    scale, skipped = scaler(n, init_scale=init_scale, limit=limit)
    return run(np.where(skipped > 0, np.inf, norms(r, n)), about, loss_scale=scale, skipped=skipped)


def layered(r: Random, n: int, sizes: Floats, *, change: Callable[[Floats], None] = lambda layers: None) -> Run:
    layers = norms(r, n)[:, None] * sizes * np.exp(0.3 * r.normal(size=(n, len(sizes))))
    change(layers)
    total = np.sqrt((np.maximum(layers, 0) ** 2).sum(axis=1))
    names = tuple(f"blocks.{i}.weight" for i in range(len(sizes)))
    return run(total, ADAM, layers=LayerNorms(np.arange(n), names, layers))


def _put(values: Floats, at: Any, factor: Any) -> Floats:
    values[at] = values[at] * factor
    return values


def _late(n: int, part: float, value: float) -> Floats:
    return np.where(np.arange(n) < part * n, 1.0, value)


def _without_signal(r: Random, n: int) -> Floats:
    return np.where(r.random(n) < r.uniform(0.1, 0.6), r.choice([0.0, 1e-5]), norms(r, n, median=0.3))


HEALTHY: dict[str, Callable[[Random], Run]] = {
    "log-normal, Adam": lambda r: run(
        norms(r, length(r), median=r.uniform(0.1, 20)), ADAM, clips=r.uniform(0.03, 0.25)
    ),
    "log-normal, SGD": lambda r: run(norms(r, length(r)), SGD, clips=r.uniform(0.03, 0.25)),
    "nobody says what was used": lambda r: run(norms(r, length(r))),
    "norms that fall by a power": lambda r: run(
        norms(r, n := length(r)) * np.arange(1, n + 1) ** -0.4, OFF, clips=None
    ),
    "norms that rise slowly": lambda r: run(norms(r, n := length(r)) * np.linspace(1, 2.5, n), ADAM),
    "a heavy tail": lambda r: run(norms(r, n := length(r), spread=0) * np.exp(0.4 * r.standard_t(4, n)), ADAM),
    "a heavy tail, unclipped": lambda r: run(norms(r, length(r), spread=0.8), OFF, clips=None),
    "neighbours alike": lambda r: run(norms(r, length(r, 1500), spread=0.4, memory=0.9), ADAM),
    "a generator": lambda r: run(
        norms(r, n := length(r), spread=0.5, memory=0.9),
        ADAM,
        loss=2 + np.sin(np.arange(n) / 150) + 0.3 * r.normal(size=n),
    ),
    "groups of equal reward": lambda r: run(
        _without_signal(r, n := length(r, 200, 2000)), ADAM, loss=0.01 * r.normal(size=n)
    ),
    "a short fine-tuning": lambda r: run(norms(r, length(r, 60, 300), decay=1.0, spread=0.35), ADAM, clips=0.12),
    "an adapter that begins at zero": lambda r: run(
        norms(r, n := length(r, 100, 2000), decay=0) * np.minimum(1, (np.arange(n) + 5) / 50), ADAM
    ),
    "a learning rate that warms up": lambda r: run(
        norms(r, n := length(r, 800)), ADAM, lr=1e-3 * np.minimum(1, (np.arange(n) + 1) / 200)
    ),
    "a sawtooth": lambda r: scaled(r, length(r, 800), limit=2.0 ** r.integers(8, 15)),
    "a search from far too high": lambda r: scaled(r, length(r, 800), limit=2.0**13, about=None, init_scale=2.0**32),
    "a fixed scale": lambda r: run(norms(r, 1000), SGD, loss_scale=1024.0, skipped=np.arange(1000) == 700),
    "a search that nobody recorded": lambda r: run(_put(norms(r, 900), slice(0, int(r.integers(2, 22))), np.nan), None),
    "spikes that are caught": lambda r: run(
        _put(norms(r, n := length(r, 1000), spread=0.2), r.integers(150, n, 6), r.uniform(12, 200, 6)), ADAM, clips=0.01
    ),
    "an optimizer begun anew": lambda r: run(_put(norms(r, 2000), slice(1000, 1040), np.linspace(5, 1, 40)), ADAM),
    "a harder stage": lambda r: run(
        norms(r, 2000) * _late(2000, 0.5, 1.6), ADAM, loss=_late(2000, 0.5, 1.3) + 0.05 * r.normal(size=2000)
    ),
    "a model without any error left": lambda r: run(
        np.where(np.arange(800) < 600, norms(r, 800), 0.0), SGD, clips=None, loss=_late(800, 0.75, 0.0)
    ),
    "a net of many layers": lambda r: layered(r, length(r, 300, 900), 10 ** r.uniform(-1.5, 0, 60)),
    "layers frozen for a time": lambda r: layered(
        r, 900, 10 ** r.uniform(-1, 0, 12), change=lambda layers: layers[:500, :6].fill(-1.0)
    ),
    "two digits": lambda r: run(np.round(norms(r, length(r), median=0.22, spread=0.15, decay=0), 2), clips=0.02),
}
"""What is said of these has no warning in it, at their end or on the way there."""


class Sick(NamedTuple):
    code: str
    make: Callable[[Random], Run]


SICK = [
    Sick(
        "clipping_too_tight",
        lambda r: run(norms(r, length(r), median=r.uniform(5, 40)), ADAM, clips=None, max_norm=1.0),
    ),
    Sick(
        "clipping_too_tight", lambda r: run(norms(r, length(r), median=r.uniform(2, 40)), SGD, clips=None, max_norm=1.0)
    ),
    Sick("clipping_too_tight", lambda r: run(norms(r, length(r)), SGD, clips=r.uniform(0.55, 0.7))),
    Sick("clipping_too_tight", lambda r: run(norms(r, 90, median=20.0), ADAM, clips=None, max_norm=1.0)),
    Sick(
        "clipping_too_loose",
        lambda r: run(_put(norms(r, 1500), r.integers(200, 1500, 6), 60.0), ADAM, clips=None, max_norm=100.0),
    ),
    Sick("spikes_passed", lambda r: run(_put(norms(r, 1500), r.integers(200, 1500, 6), 60.0), OFF, clips=None)),
    Sick("norm_collapsed", lambda r: run(_put(norms(r, 900), 500, 200.0) * _late(900, 501 / 900, 1e-5), ADAM)),
    Sick("norm_collapsed", lambda r: run(norms(r, 900) * _late(900, 0.7, 0.0), ADAM)),
    Sick(
        "norm_exploding",
        lambda r: run(norms(r, 1000) * _late(1000, 0.85, 40.0), OFF, clips=None, loss=_late(1000, 0.85, 3)),
    ),
    Sick("norm_exploding", lambda r: run(norms(r, 1500) * _late(1500, 0.3, 400.0), ADAM, loss=_late(1500, 0.3, 5))),
    Sick("nonfinite_steps", lambda r: run(_put(norms(r, 900), slice(400, 405), np.nan), context(precision="bf16"))),
    Sick("nonfinite_steps", lambda r: run(_put(norms(r, 900), r.random(900) < 0.04, np.nan))),
    Sick(
        "run_dead",
        lambda r: run(_put(norms(r, 400), slice(300, 400), np.nan), loss=np.where(np.arange(400) < 300, 2, np.nan)),
    ),
    Sick("run_dead", lambda r: run(_put(norms(r, 400), slice(300, 400), np.nan), loss=_late(400, 0.75, 0.0))),
    Sick(
        "loss_scale_thrashing",
        lambda r: run(
            norms(r, 1500), FP16, loss_scale=np.tile([2048.0, 4096.0], 750), skipped=np.arange(1500) % 25 == 0
        ),
    ),
    Sick(
        "loss_scale_collapsing",
        lambda r: run(
            norms(r, 900),
            FP16,
            loss_scale=2.0 ** (16 - np.maximum(0, np.arange(900) - 500) // 40),
            skipped=(np.arange(900) > 500) & (np.arange(900) % 40 == 19),
        ),
    ),
    Sick(
        "loss_scale_collapsed",
        lambda r: run(
            np.where(np.arange(600) < 585, norms(r, 600), np.inf),
            FP16,
            loss_scale=2.0 ** (16 - np.maximum(0, np.arange(600) - 585)),
            skipped=np.arange(600) >= 585,
        ),
    ),
    Sick(
        "norm_times_scale",
        lambda r: run(
            norms(r, 1500) * (scale := scaler(1500, init_scale=2.0**16, limit=2.0**14)[0]), FP16, loss_scale=scale
        ),
    ),
    Sick("norm_after_clip", lambda r: run(np.minimum(1.0, norms(r, 900)), ADAM, clips=None, max_norm=1.0)),
    Sick("layers_vanishing", lambda r: layered(r, 500, np.geomspace(1, 1e-8, 24))),
    Sick("layers_exploding", lambda r: layered(r, 500, np.where(np.arange(24) == 5, 3e4, 1.0))),
    Sick("layers_dead", lambda r: layered(r, 500, np.ones(24), change=lambda layers: layers[300:, 3].fill(0.0))),
    Sick("layers_dominant", lambda r: layered(r, 500, np.where(np.arange(24) == 5, 30.0, 1.0))),
    Sick("norm_drift", lambda r: run(norms(r, 1500) * np.geomspace(1, 10, 1500), OFF, clips=None)),
    Sick(
        "steps_skipped",
        lambda r: run(
            np.where(np.arange(500) > 300, np.nan, norms(r, 500)),
            context(precision="bf16"),
            skipped=np.arange(500) > 300,
        ),
    ),
    Sick(
        "lr_moves_without_steps",
        lambda r: run(norms(r, 300), ADAM, lr=0.99 ** np.arange(300), skipped=np.arange(300) > 250),
    ),
]
"""The finding that must be among those made."""
