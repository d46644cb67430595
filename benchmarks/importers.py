"""How fast logs are read: MB/s of each format, into a diagnosis and into the batches of an import; and their memory.

`python benchmarks/importers.py [--megabytes 4]` writes logs as the tools print them and prints a table, last one JSON
line. Times are processor time, so that a busy machine matters little.
"""

import argparse
import json
import math
import random
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from gradsight import wire
from gradsight_server.importers.importing import Wish, import_log
from gradsight_server.importers.logs import read_log
from gradsight_server.importers.reading import sources_of


def megatron(step: int, norm: float, loss: float) -> str:
    return (
        f" iteration {step:8d}/ 9000000 | consumed samples: {step * 1024:12d} | elapsed time per iteration (ms): 8312.4"
        f" | learning rate: 1.500000E-04 | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 65536.0"
        f" | grad norm: {norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def hf_console(step: int, norm: float, loss: float) -> str:
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm!r}, 'learning_rate': 4.5e-05, 'epoch': {step / 1000:.2f}}}\n"


def fairseq(step: int, norm: float, loss: float) -> str:
    return (
        f"2024-05-01 10:00:00 | INFO | train_inner | epoch 001: {step:6d} / 9000000 loss={loss:.3f}, ppl=123.4, "
        f"wps=52310.2, ups=1.9, wpb=27532, bsz=512, num_updates={step}, lr=0.0005, gnorm={norm:.3f}, loss_scale=128, "
        f"train_wall=52, gb_free=20.1, wall={step // 2}\n"
    )


def mmcv(step: int, norm: float, loss: float) -> str:
    return (
        f"2024-05-01 10:00:00,123 - mmdet - INFO - Epoch [1][{step}/9000000]\tlr: 1.000e-04, eta: 1 day, 2:03:04, "
        f"time: 0.512, data_time: 0.011, memory: 8123, loss_cls: 0.5123, loss_bbox: 0.3312, loss: {loss:.4f}, "
        f"grad_norm: {norm:.4f}\n"
    )


def llmc(step: int, norm: float, loss: float) -> str:
    return f"s:{step} trl:{loss:.4f} lr:0.000600 norm:{norm:.2f}\n"


def key_value(step: int, norm: float, loss: float) -> str:
    return f"2024-05-01 10:00:00 INFO trainer: step {step} | loss {loss:.4f} | grad norm: {norm:.4f} | lr=1.5e-4\n"


def mixed(step: int, norm: float, loss: float) -> str:
    """One line of numbers among forty of others, as most logs of long runs are."""
    return "DEBUG dataloader: worker 3 fetched shard 000123 of /data/train in 0.123 s\n" * 40 + key_value(
        step, norm, loss
    )


def jsonl(step: int, norm: float, loss: float) -> str:
    row = {"step": step, "train/loss": loss, "train/grad_norm": norm, "lr": 1.5e-4, "tokens": step * 4096}
    return json.dumps(row) + "\n"


def csv(step: int, norm: float, loss: float) -> str:
    return f"{step},{loss!r},{norm!r},0.00015,{step * 4096}\n"


LOGS: dict[str, tuple[str, Callable[[int, float, float], str]]] = {
    "megatron": ("", megatron),
    "hf_console": ("", hf_console),
    "fairseq": ("", fairseq),
    "mmcv": ("", mmcv),
    "llmc": ("", llmc),
    "key_value": ("", key_value),
    "mixed": ("", mixed),
    "jsonl": ("", jsonl),
    "csv_table": ("step,loss,grad_norm,lr,tokens\n", csv),
}


class Nowhere:
    """A destination that takes everything."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def put_run(self, run_id: str, record: wire.RunRecord) -> None:
        pass

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None:
        self.num_bytes += len(wire.encode(batch))

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None:
        pass


def write(path: Path, head: str, line: Callable[[int, float, float], str], num_bytes: int) -> int:
    """How many steps the log has."""
    rng = random.Random(0)
    step = written = 0
    with path.open("w") as file:
        written += file.write(head)
        while written < num_bytes:
            norm = math.exp(rng.gauss(0.0, 0.5))
            written += file.write(line(step, norm, 2.0 + 1.0 / (1 + step / 1000)))
            step += 1
    return step


def seconds(action: Callable[[], object], num_times: int = 5) -> float:
    """The least of several: what others do on this machine only adds to it."""
    found = []
    for _ in range(num_times):
        begun = time.process_time()
        action()
        found.append(time.process_time() - begun)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=4.0)
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    titles = ("bytes/step", "diagnose MB/s", "import MB/s", "steps/s", "import peak MB")
    print(f"{'format':12} {titles[0]:>10} {titles[1]:>14} {titles[2]:>12} {titles[3]:>10} {titles[4]:>15}")
    with tempfile.TemporaryDirectory() as folder:
        for name, (head, line) in LOGS.items():
            path = Path(folder, "log")
            num_steps = write(path, head, line, int(arguments.megabytes * 1e6))
            size = path.stat().st_size / 1e6
            (source,) = sources_of(path)
            assert source.format is not None
            read_s = seconds(lambda source=source: read_log(source))  # type: ignore[misc]  # bound as it is now
            sent_s = seconds(lambda source=source: import_log(source, Nowhere(), Wish()))  # type: ignore[misc]
            tracemalloc.start()
            small = Path(folder, "small")
            write(small, head, line, 2_000_000)
            import_log(sources_of(small)[0], Nowhere(), Wish())
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            found[name] = {
                "recognised_as": source.format.name,  # type: ignore[dict-item]  # a name among numbers
                "bytes_per_step": size * 1e6 / num_steps,
                "diagnose_mb_s": size / read_s,
                "import_mb_s": size / sent_s,
                "import_steps_s": num_steps / sent_s,
                "import_peak_mb": peak,
            }
            row = found[name]
            print(
                f"{name:12} {row['bytes_per_step']:10.0f} {row['diagnose_mb_s']:14.1f} {row['import_mb_s']:12.1f} "
                f"{row['import_steps_s']:10.0f} {row['import_peak_mb']:15.1f}  {source.format.name}",
                flush=True,
            )
    print(json.dumps({"benchmark": "importers", "megabytes": arguments.megabytes, "formats": found}))


if __name__ == "__main__":
    main()
