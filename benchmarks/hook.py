"""What a step costs with the hook, as a ratio to PyTorch's plain recipe, both alternating in one process.

    python benchmarks/hook.py [--pairs 15] [--sizes 5M 50M] [--device cpu] [--quick]

Plain: `unscale_`, `clip_grad_norm_`, `optimizer.step`, `scaler.update` (fp32: without the scaler). Ours: `Monitor.step`
with per-layer norms every step, streaming to a real server in a process of its own. Beside it, what people do for
per-layer norms: a `.norm().item()` loop, TensorBoard scalars, and W&B's `watch` offline (those that are installed).
Gradients are given, so forward and backward are in neither. Prints a table and, last, one JSON line.
"""

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import gradsight

SIZES = {"5M": (125_000, 40), "50M": (333_333, 150), "200M": (500_000, 400)}
"""Name → (elements a tensor, tensors)."""
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "fused AdamW": lambda parameters: AdamW(parameters, lr=1e-4, fused=True),
    "fused SGD": lambda parameters: SGD(parameters, lr=1e-4, fused=True),
    "foreach AdamW": lambda parameters: AdamW(parameters, lr=1e-4, foreach=True),
}
EachStep = Callable[[list[Tensor]], None]
SCALE = 65536.0
CLIP = 1.0


@dataclass
class Figure:
    """One line of the table: medians over the pairs."""

    contender: str
    optimizer: str
    precision: str
    size: str
    plain_ms: float
    ours_ms: float
    ratio: float


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`gradsight serve` on a free port."""
    command = [
        str(Path(sys.executable).with_name("gradsight")),
        "serve",
        "--port",
        "0",
        "--db",
        str(folder / "bench.db"),
    ]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None, "the server did not start"
    try:
        yield found[0]
    finally:
        process.terminate()
        process.wait()


class Loop:
    """Parameters with given gradients, and an optimizer on them."""

    def __init__(self, size: str, optimizer: str, precision: str, device: str) -> None:
        numel, num_tensors = SIZES[size]
        torch.manual_seed(0)
        self.named = [
            (f"layers.{i}.weight", nn.Parameter(torch.randn(numel, device=device) * 0.02)) for i in range(num_tensors)
        ]
        self.parameters = [parameter for _, parameter in self.named]
        self.optimizer = OPTIMIZERS[optimizer](self.parameters)
        scale = SCALE if precision == "fp16" else 1.0
        self._grads = [torch.randn(numel, device=device) * (1e-3 * scale) for _ in range(num_tensors)]
        for parameter in self.parameters:
            parameter.grad = torch.empty_like(parameter)

    def load_gradients(self) -> None:
        """What a backward leaves; also evicts the caches, as a backward does."""
        for parameter, grad in zip(self.parameters, self._grads, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(grad)


def plain(
    loop: Loop, precision: str, device: str, each: Callable[[list[Tensor]], None] | None = None
) -> Callable[[], None]:
    scaler = torch.amp.GradScaler(device, init_scale=SCALE, enabled=precision == "fp16")
    scaler.scale(torch.ones((), device=device))

    def step() -> None:
        scaler.unscale_(loop.optimizer)
        if each is not None:
            each([parameter.grad for parameter in loop.parameters if parameter.grad is not None])
        nn.utils.clip_grad_norm_(loop.parameters, CLIP)
        scaler.step(loop.optimizer)
        scaler.update()

    return step


def ours(loop: Loop, precision: Any, run: gradsight.Run, *, fused: bool | None) -> Callable[[], None]:
    monitor = gradsight.Monitor(loop.named, loop.optimizer, run=run, precision=precision, clip=CLIP, fused=fused)
    if monitor.scaler is not None:
        monitor.scaler.scale(torch.ones((), device=loop.parameters[0].device))
    return lambda: void(monitor.step())


def void(_: object) -> None:
    """For lambdas that give nothing."""


def item_loop(grads: list[Tensor]) -> None:
    for grad in grads:
        grad.norm().item()


def tensorboard(folder: Path) -> EachStep:
    from torch.utils.tensorboard import SummaryWriter  # late: the extra may be missing

    writer = SummaryWriter(str(folder / "tensorboard"))
    steps = iter(range(10**9))

    def log(grads: list[Tensor]) -> None:
        step = next(steps)
        for index, grad in enumerate(grads):
            writer.add_scalar(f"norm/{index}", grad.norm().item(), step)

    return log


def timed(step: Callable[[], None], loop: Loop, device: str) -> float:
    loop.load_gradients()
    if device == "cuda":
        torch.cuda.synchronize()
    begin = perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - begin


def compare(
    contender: str, size: str, optimizer: str, precision: str, options: Any, make: Callable[[Loop], Any]
) -> Figure:
    """Medians of alternating pairs; the ratio is the median of the pairs' ratios."""
    base = Loop(size, optimizer, precision, options.device)
    rival = Loop(size, optimizer, precision, options.device)
    plain_step, rival_step = plain(base, precision, options.device), make(rival)
    pairs = []
    for index in range(options.pairs + 3):
        first, second = timed(plain_step, base, options.device), timed(rival_step, rival, options.device)
        if index >= 3:  # warm-up
            pairs.append((first, second))
    medians = [statistics.median(values) * 1e3 for values in zip(*pairs, strict=True)]
    ratio = statistics.median(second / first for first, second in pairs)
    return Figure(contender, optimizer, precision, size, round(medians[0], 3), round(medians[1], 3), round(ratio, 3))


def own_cost_us(num_layers: int, num_steps: int, clip: Any) -> float:
    """Median of the hook's own time beside the bare tensor operations, on tensors so small that these cost little."""
    named = [(f"layers.{i}.weight", nn.Parameter(torch.zeros(16))) for i in range(num_layers)]
    parameters = [parameter for _, parameter in named]
    grads = [torch.full((16,), 1e-3) for _ in parameters]
    optimizer = SGD(parameters, lr=0.0, foreach=True)
    with tempfile.TemporaryDirectory() as folder, gradsight.Run(mode="offline", spool_dir=folder, quiet=True) as run:
        monitor = gradsight.Monitor(named, optimizer, run=run, clip=clip)
        bare, hooked = [], []
        cold = torch.zeros(8_000_000)
        for _ in range(num_steps):
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.grad = grad.clone()
            cold.add_(1.0)  # 32 MB through the caches
            begin = perf_counter()
            collected = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch.stack(torch._foreach_norm(collected, 2.0, dtype=torch.float32)).tolist()
            optimizer.step()
            bare.append(perf_counter() - begin)
            cold.add_(1.0)
            begin = perf_counter()
            monitor.step()
            hooked.append(perf_counter() - begin)
    return 1e6 * (statistics.median(hooked) - statistics.median(bare))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step costs with the hook.")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["5M", "50M"])
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "fp16"], default=["fp16", "fp32"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as temporary, server(Path(temporary)) as address:
        folder = Path(temporary)
        os.environ["WANDB_MODE"] = "offline"
        for size in options.sizes:
            for precision in options.precisions:
                for optimizer in OPTIMIZERS:
                    for figure in contenders(size, precision, optimizer, options, address, folder):
                        figures.append(figure)
                        print(
                            f"{figure.size:>5} {figure.precision} {figure.optimizer:14} {figure.contender:28} "
                            f"plain {figure.plain_ms:8.2f} ms  {figure.ours_ms:8.2f} ms  ÷ {figure.ratio:.3f}",
                            flush=True,
                        )
    costs = {"global_norm(1.0)": CLIP, "zscore()": gradsight.ZScore(), "percentile()": gradsight.Percentile()}
    own = {name: round(own_cost_us(150, 400, clip), 1) for name, clip in costs.items()}
    for name, cost in own.items():
        print(f"own time beside the bare operations, 150 layers, cold caches, {name}: {cost} µs a step")
    print(json.dumps({"benchmark": "hook", "figures": [asdict(figure) for figure in figures], "own_us": own}))


def contenders(size: str, precision: str, optimizer: str, options: Any, address: str, folder: Path) -> Iterator[Figure]:
    """Each contender in turn, against its own plain loop."""
    for name, fused in {"gradsight": None, "gradsight, fused=False": False}.items():
        with gradsight.Run("bench", f"{size} {precision}", server=address, spool_dir=folder, quiet=True) as run:

            def with_hook(loop: Loop, run: gradsight.Run = run, fused: bool | None = fused) -> Callable[[], None]:
                return ours(loop, precision, run, fused=fused)

            yield compare(name, size, optimizer, precision, options, with_hook)
    beside: dict[str, EachStep] = {"plain + .norm().item() loop": item_loop}
    if importlib.util.find_spec("tensorboard"):
        beside["plain + TensorBoard scalars"] = tensorboard(folder)
    for name, each in beside.items():

        def with_extra(loop: Loop, each: EachStep = each) -> Callable[[], None]:
            return plain(loop, precision, options.device, each)

        yield compare(name, size, optimizer, precision, options, with_extra)


if __name__ == "__main__":
    main()
