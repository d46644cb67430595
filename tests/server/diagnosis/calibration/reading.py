"""A run of the calibration set, as the diagnosis takes it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gradsight import wire
from gradsight_server.diagnosis import Column, Context, LayerNorms, StreamSteps
from tests.server.diagnosis.calibration.truth import CHECK_SEEDS, TUNING_SEEDS

SEEDS = (*TUNING_SEEDS, *CHECK_SEEDS)
FOLDER = Path(__file__).parent / "runs"


@cache
def _file(name: str) -> dict[str, NDArray[Any]]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def recorded_run(name: str, seed: int) -> tuple[StreamSteps, Context]:
    """The steps of one training with one seed, and its stream's record."""
    file = _file(name)
    record = json.loads(str(file["record"]))
    arrays = {key: array[SEEDS.index(seed)] for key, array in file.items() if key != "record"}
    num_steps = record["num_steps"]
    norm = arrays["norm"].astype(np.float64)
    max_norm = _column(arrays["max_norm"])
    coef = np.where(np.isfinite(norm) & max_norm.recorded, np.minimum(1, max_norm.values / (norm + 1e-6)), 1.0)
    first_layer = arrays.get("first_layer", np.full(num_steps, -1))
    steps = StreamSteps.of(
        np.arange(num_steps),
        loss=arrays["loss"],
        lr=arrays["lr"],
        grad_norm_before_clip=norm,
        max_norm=max_norm,
        clip_coef=coef if record["apply_clip"] else np.ones(num_steps),
        loss_scale=_column(arrays["scale"]),
        skipped=np.unpackbits(arrays["skipped"], count=num_steps),
        first_nonfinite_layer=[None if layer < 0 else record["layers"][layer] for layer in first_layer.tolist()],
        layers=_layers(arrays, tuple(record["layers"])),
    )
    return steps, Context(record=msgspec.convert(record["stream"], wire.StreamRecord))


def _column(values: NDArray[Any]) -> Column:
    """−1 is "not recorded"."""
    recorded = ~(values < 0)
    return Column(np.where(recorded, values.astype(np.float64), np.nan), recorded)


def _layers(arrays: dict[str, NDArray[Any]], names: tuple[str, ...]) -> LayerNorms | None:
    if "layer_step" not in arrays:
        return None
    return LayerNorms(arrays["layer_step"].astype(np.int64), names, arrays["layer_norms"])
