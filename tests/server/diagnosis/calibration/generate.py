"""Make the calibration set: `python -m tests.server.diagnosis.calibration.generate [NAME…]`, some minutes on one core.

Each training is written to runs/NAME.npz with all its seeds. Values keep as many bits as a diagnosis could need and no
more, so that the whole set stays small; coefficients follow from norm and threshold.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gradsight.policies import GlobalNorm
from tests.server.diagnosis.calibration.recipe import Recorded, Training, train
from tests.server.diagnosis.calibration.trainings import TRAININGS
from tests.server.diagnosis.calibration.truth import CHECK_SEEDS, TUNING_SEEDS

FOLDER = Path(__file__).parent / "runs"


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in names or TRAININGS:
        runs = []
        for seed in (*TUNING_SEEDS, *CHECK_SEEDS):
            training = TRAININGS[name]()
            recorded = train(training, seed)
            runs.append(packed(recorded))
        path = FOLDER / f"{name}.npz"
        write(path, {"record": np.array(json.dumps(_record(training, recorded)))} | stacked(runs))
        print(f"{name}: {path.stat().st_size / 1024:.1f} KiB", flush=True)


def stacked(runs: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """One array for all seeds, [seed, …]: a hundred small ones would be half headers."""
    found = {name: np.stack([run[name] for run in runs]) for name in runs[0] if all(name in run for run in runs)}
    # A layer's NaN may have come with some seeds only.
    layers = [run.get("first_layer", np.full(len(run["norm"]), -1, dtype="i2")) for run in runs]
    return found | {"first_layer": np.stack(layers)} if any((layer >= 0).any() for layer in layers) else found


def write(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def packed(recorded: Recorded) -> dict[str, NDArray[Any]]:
    """The run as small arrays; −1 stands for "not recorded"."""
    columns = recorded.columns
    found: dict[str, NDArray[Any]] = {
        "loss": rounded(columns["loss"], bits=8),
        "norm": rounded(columns["grad_norm_before_clip"], bits=13),
        "max_norm": rounded([-1 if value is None else value for value in columns["max_norm"]], bits=20),
        "lr": rounded(columns["lr"], bits=12),
        "scale": rounded([-1 if value is None else value for value in columns["loss_scale"]], bits=20),
        "skipped": np.packbits(np.array(columns["skipped"], dtype=np.bool_)),
    }
    if recorded.layer_step:
        found["layer_step"] = np.array(recorded.layer_step, dtype=np.int32)
        found["layer_norms"] = rounded(recorded.layer_norms, bits=7)
    layers = columns["first_nonfinite_layer"]
    if any(layers):
        found["first_layer"] = np.array([recorded.layer_names.index(name) if name else -1 for name in layers], "i2")
    return found


def rounded(values: list[Any], *, bits: int) -> NDArray[np.float32]:
    """As float32 whose mantissa has so many bits and zeros below, which packs well."""
    given = np.array(values, dtype=np.float32)
    spare = 23 - bits
    whole = given.view(np.uint32) + np.uint32(1 << (spare - 1))
    kept = np.where(np.isfinite(given), whole >> spare << spare, given.view(np.uint32))
    return kept.astype(np.uint32).view(np.float32)


def _record(training: Training, recorded: Recorded) -> dict[str, Any]:
    policy = training.max_norm
    scaler = None
    if training.static_scale is not None:
        scaler = f"static({training.static_scale!r})"
    elif training.precision == "fp16":
        scaler = f"dynamic(init_scale={training.init_scale!r}, growth_interval={training.growth_interval})"
    return {
        "stream": {
            "optimizer": {"class": "SGD" if training.optimizer == "sgd" else "AdamW", "lr": training.lr},
            "policy": None if policy is None else str(GlobalNorm(policy)),  # type: ignore[arg-type]
            "precision": training.precision,
            "scaler": scaler,
        },
        "layers": recorded.layer_names,
        "apply_clip": training.apply_clip,
        "num_steps": training.num_steps,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
