"""A healthy run, however long, raises nothing: norms that decay with heavy tails, a loss scale at its routine."""

import math

import numpy as np

from tests.server.alerts.kit import FP16, FP32, Stream

NUM_STEPS = 200_000
BATCH = 10_000
INTERVAL = 2_000


def healthy_norms(random: np.random.Generator, tail: str) -> list[float]:
    """From large and unsteady at the beginning down to a level about which they scatter with a heavy tail."""
    steps = np.arange(NUM_STEPS)
    level = np.log(0.45 + 6.0 * np.exp(-steps / 400) + 0.4 * np.exp(-steps / 30_000))
    level += 0.1 * np.sin(steps / 5_000)  # data that is harder for a while
    match tail:
        case "lognormal":
            scatter = random.normal(0.0, 0.45, NUM_STEPS)
        case "student":
            scatter = 0.22 * random.standard_t(12, NUM_STEPS)
        case _:
            scatter = np.log(random.gamma(6.0, 1 / 6.0, NUM_STEPS))
    norms: list[float] = np.exp(level + scatter).tolist()
    return norms


def test_200_000_healthy_steps_under_fp16_raise_nothing() -> None:
    random = np.random.default_rng(20240607)
    parts = [healthy_norms(random, tail) for tail in ("lognormal", "student", "gamma")]
    norms = [parts[step * 3 // NUM_STEPS][step] for step in range(NUM_STEPS)]
    skipped = [False] * NUM_STEPS
    scales, scale = [65536.0] * NUM_STEPS, 65536.0
    for step in range(NUM_STEPS):  # four skips find the scale, then one in each interval brings it back
        scales[step] = scale
        if step < 4 or step % (INTERVAL + 1) == INTERVAL:
            norms[step], skipped[step] = math.inf, True
            scale = 4096.0 if step >= 4 else scale / 2
        elif step % (INTERVAL + 1) == INTERVAL - 1:
            scale = 8192.0
    stream = Stream(FP16 | {"policy": "global_norm(1.0)", "optimizer": {"class": "AdamW"}})
    for first in range(0, NUM_STEPS, BATCH):
        part = slice(first, first + BATCH)
        stream.send(
            norms[part],
            skipped=skipped[part],
            scale=scales[part],
            max_norm=[1.0] * BATCH,
            time_s=[0.1 * step for step in range(first, first + BATCH)],
        )
    assert stream.told == []
    assert stream.state.num_rows == NUM_STEPS


def test_norms_that_fall_a_thousandfold_at_the_beginning_raise_nothing() -> None:
    random = np.random.default_rng(7)
    stream = Stream(FP32)
    norms = np.exp(7 * np.exp(-np.arange(3_000) / 150) + random.normal(0, 0.3, 3_000))
    for first in range(0, 3_000, 10):
        stream.send(norms[first : first + 10].tolist())
    assert stream.told == []
