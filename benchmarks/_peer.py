"""One tracker takes in the log of `peers.py`: python _peer.py NAME FOLDER STEPS LAYERS [SERVER].

Runs in the environment of that tracker, so it needs nothing but the tracker itself. Prints one JSON line.
"""

import json
import os
import random
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter, time
from typing import Any

SCALARS = ("loss", "lr", "grad_norm_before_clip", "max_norm", "clip_coef", "loss_scale")
Scalars = dict[str, float]
Log = Callable[[int, Scalars, Scalars], None]
"""Takes a step, its scalars, and its layers' norms by name."""
Close = Callable[[], None]
"""Returns once all of it is where it is kept."""


def rows(num_steps: int, num_layers: int) -> list[tuple[Scalars, Scalars]]:
    """The log, the same for all, made before any clock runs."""
    numbers = random.Random(0)
    names = [f"blocks.{i}.weight" for i in range(num_layers)]
    made = []
    for step in range(num_steps):
        layers = {name: numbers.lognormvariate(-3, 1) for name in names}
        norm = sum(value * value for value in layers.values()) ** 0.5
        scalars = (2 - step / 1e4 + numbers.gauss(0, 0.1), 3e-4, norm, 1.0, min(1.0, 1 / norm), 65536.0)
        made.append((dict(zip(SCALARS, scalars, strict=True)), layers))
    return made


def gradsight(_folder: Path, server: str) -> tuple[Log, Close]:
    import gradsight  # late, like all of them: each has its own environment

    run = gradsight.Run("peers", server=server, quiet=True)

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        run.log_step(step, **scalars, layer_norms=layers)  # type: ignore[arg-type]  # its columns, by name

    return log, run.finish


def tensorboard(folder: Path, _: str) -> tuple[Log, Close]:
    """As `torch.utils.tensorboard` does: an event for each value."""
    events: Any = import_module("tensorboard.compat.proto.event_pb2")
    summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
    writing: Any = import_module("tensorboard.summary.writer.event_file_writer")
    writer = writing.EventFileWriter(str(folder))

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        for name, value in (*scalars.items(), *layers.items()):
            summary = summaries.Summary(value=[summaries.Summary.Value(tag=name, simple_value=value)])
            writer.add_event(events.Event(step=step, wall_time=time(), summary=summary))

    return log, writer.close


def wandb(folder: Path, _: str) -> tuple[Log, Close]:
    wandb: Any = import_module("wandb")
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(project="peers", dir=str(folder), mode="offline", settings=settings)

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        run.log(scalars | layers, step=step)

    return log, run.finish


def mlflow(folder: Path, _: str) -> tuple[Log, Close]:
    mlflow: Any = import_module("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.start_run()

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        mlflow.log_metrics(scalars | layers, step=step)

    return log, mlflow.end_run


def trackio(folder: Path, _: str) -> tuple[Log, Close]:
    os.environ["TRACKIO_DIR"] = str(folder)
    trackio: Any = import_module("trackio")
    trackio.init(project="peers")

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        trackio.log(scalars | layers, step=step)

    return log, trackio.finish


def aim(folder: Path, _: str) -> tuple[Log, Close]:
    aim: Any = import_module("aim")
    run = aim.Run(repo=str(folder), system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)

    def log(step: int, scalars: Scalars, layers: Scalars) -> None:
        run.track(scalars | layers, step=step)

    return log, run.close


TRACKERS: dict[str, Callable[[Path, str], tuple[Log, Close]]] = {
    "gradsight": gradsight,
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "trackio": trackio,
    "aim": aim,
}


def cpu_s() -> float:
    """Processor time of this process and of those it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    name, folder, num_steps, num_layers, *rest = sys.argv[1:]
    made = rows(int(num_steps), int(num_layers))
    log, close = TRACKERS[name](Path(folder), rest[0] if rest else "")
    began_s, cpu_before_s, in_thread_s = perf_counter(), cpu_s(), 0.0
    for step, (scalars, layers) in enumerate(made):
        before_s = perf_counter()
        log(step, scalars, layers)
        in_thread_s += perf_counter() - before_s
    close()
    total_s = perf_counter() - began_s
    print(json.dumps({"in_thread_s": in_thread_s, "total_s": total_s, "cpu_s": cpu_s() - cpu_before_s}))


if __name__ == "__main__":
    main()
