"""What a step costs with the hook, as a ratio to PyTorch's plain recipe, both alternating in one process.

    python benchmarks/hook.py [--sizes 5M 50M] [--precisions fp16 fp32] [--pairs 15] [--device cpu] [--full]

Plain: `unscale_`, `clip_grad_norm_`, `optimizer.step`, `scaler.update` (fp32: without the scaler). Ours: `Monitor.step`
with per-layer norms every step, streaming to a real server in a process of its own. Beside it, what people do for
per-layer norms: a `.norm().item()` loop, TensorBoard scalars, and W&B's `watch` offline (those that are installed).
Gradients are given, so forward and backward are in neither. Those others run with fused AdamW; `--full` runs everything
with every optimizer, at 200 M parameters too (12 GB of memory, most of an hour). A table and, last, one JSON line.
"""

import argparse
import functools
import importlib.util
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
Beside = Callable[["Loop", Path], AbstractContextManager[EachStep]]
"""Sets up what a loop without the hook does for its norms each step, and ends it."""
NUM_WARM_UP = 3
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


def plain(loop: Loop, precision: str, device: str, each: EachStep | None = None) -> Callable[[], None]:
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


def ours(loop: Loop, *, precision: Any, run: gradsight.Run, fused: bool | None) -> Callable[[], None]:
    monitor = gradsight.Monitor(loop.named, loop.optimizer, run=run, precision=precision, clip=CLIP, fused=fused)
    if monitor.scaler is not None:
        monitor.scaler.scale(torch.ones((), device=loop.parameters[0].device))
    return lambda: void(monitor.step())


def void(_: object) -> None:
    """For lambdas that give nothing."""


@contextmanager
def item_loop(loop: Loop, folder: Path) -> Iterator[EachStep]:
    def each(grads: list[Tensor]) -> None:
        for grad in grads:
            grad.norm().item()

    yield each


@contextmanager
def tensorboard(loop: Loop, folder: Path) -> Iterator[EachStep]:
    from torch.utils.tensorboard import SummaryWriter  # late: the extra may be missing

    writer, steps = SummaryWriter(str(folder / "tensorboard")), itertools.count()

    def each(grads: list[Tensor]) -> None:
        step = next(steps)
        for (name, _), grad in zip(loop.named, grads, strict=True):
            writer.add_scalar(f"norm/{name}", grad.norm().item(), step)

    yield each
    writer.close()


@contextmanager
def wandb_watch(loop: Loop, folder: Path) -> Iterator[EachStep]:
    """`wandb.watch` works in hooks on the backward: here one that brings the given gradients to a copy of the model."""
    import wandb  # type: ignore[import-not-found, unused-ignore]  # late: it may be missing

    run = wandb.init(project="bench", mode="offline", dir=str(folder), settings=wandb.Settings(silent=True))
    watched = nn.ParameterList([nn.Parameter(parameter.detach()) for parameter in loop.parameters])
    run.watch(watched, log="gradients", log_freq=1)

    def each(grads: list[Tensor]) -> None:
        torch.autograd.backward(list(watched), grads)
        run.log({})
        watched.zero_grad()

    yield each
    run.finish()


BESIDE: dict[str, tuple[str | None, Beside, int]] = {
    "plain + .norm().item() loop": (None, item_loop, 1000),
    "plain + TensorBoard scalars": ("tensorboard", tensorboard, 1000),
    "plain + W&B offline watch": ("wandb", wandb_watch, 5),
}
"""Name → (the package it needs, how it works, at most so many pairs)."""


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
    size: str, optimizer: str, precision: str, options: Any, num_pairs: int, make: Callable[[Loop], Any]
) -> Any:
    """(ms, ms, ratio): medians of alternating pairs; the ratio is the median of the pairs' ratios."""
    base = Loop(size, optimizer, precision, options.device)
    rival = Loop(size, optimizer, precision, options.device)
    plain_step, rival_step = plain(base, precision, options.device), make(rival)
    pairs = []
    for index in range(num_pairs + NUM_WARM_UP):
        first, second = timed(plain_step, base, options.device), timed(rival_step, rival, options.device)
        if index >= NUM_WARM_UP:
            pairs.append((first, second))
    medians = [statistics.median(values) * 1e3 for values in zip(*pairs, strict=True)]
    ratio = statistics.median(second / first for first, second in pairs)
    return round(medians[0], 3), round(medians[1], 3), round(ratio, 3)


def own_cost_us(num_layers: int, num_steps: int, clip: Any) -> float:
    """Median of the hook's own time after `monitor.backward`, beside the bare tensor operations of the same step, on
    tensors so small that these cost little."""
    named = [(f"layers.{i}.weight", nn.Parameter(torch.zeros(16))) for i in range(num_layers)]
    parameters = [parameter for _, parameter in named]
    optimizer = SGD(parameters, lr=0.0, foreach=True)
    with tempfile.TemporaryDirectory() as folder, gradsight.Run(mode="offline", spool_dir=folder, quiet=True) as run:
        monitor = gradsight.Monitor(named, optimizer, run=run, clip=clip)
        bare, hooked = [], []
        cold = torch.zeros(8_000_000)
        was_clipped = False
        for _ in range(num_steps):
            optimizer.zero_grad()
            monitor.backward(1e-3 * torch.stack([parameter.sum() for parameter in parameters]).sum())
            cold.add_(1.0)  # 32 MB through the caches
            begin = perf_counter()
            collected = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch.stack(torch._foreach_norm(collected, 2.0, dtype=torch.float32)).tolist()
            if was_clipped:
                torch._foreach_mul_(collected, 1.0)
            optimizer.step()
            bare.append(perf_counter() - begin)
            cold.add_(1.0)
            begin = perf_counter()
            result = monitor.step()
            hooked.append(perf_counter() - begin)
            was_clipped = (result.clip_coef or 1.0) < 1.0
    return 1e6 * (statistics.median(hooked) - statistics.median(bare))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step costs with the hook.")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, help="default: 5M 50M; with --full all")
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "fp16"], default=["fp16", "fp32"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true", help="all sizes, and all that others do with every optimizer")
    options = parser.parse_args()
    sizes = options.sizes or (list(SIZES) if options.full else ["5M", "50M"])
    missing = [name for name, (package, _, _) in BESIDE.items() if package and not importlib.util.find_spec(package)]
    for name in missing:
        print(f"{name}: not installed")
    figures = []
    with tempfile.TemporaryDirectory() as temporary, server(Path(temporary)) as address:
        for size, precision, optimizer in itertools.product(sizes, options.precisions, OPTIMIZERS):
            for figure in contenders(size, precision, optimizer, options, address, Path(temporary)):
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
    result = {"benchmark": "hook", "figures": [asdict(figure) for figure in figures], "own_us": own}
    print(json.dumps({**result, "not_installed": missing}))


def contenders(size: str, precision: str, optimizer: str, options: Any, address: str, folder: Path) -> Iterator[Figure]:
    """Each contender in turn, against its own plain loop."""

    def against_plain(name: str, num_pairs: int, make: Callable[[Loop], Any]) -> Figure:
        return Figure(name, optimizer, precision, size, *compare(size, optimizer, precision, options, num_pairs, make))

    hooks = {"gradsight": None, "gradsight, fused=False": False}
    if "fused" not in optimizer:
        del hooks["gradsight, fused=False"]  # the same
    for name, fused in hooks.items():
        with gradsight.Run("bench", f"{size} {precision}", server=address, spool_dir=folder, quiet=True) as run:
            make = functools.partial(ours, precision=precision, run=run, fused=fused)
            yield against_plain(name, options.pairs, make)
    if not options.full and optimizer != next(iter(OPTIMIZERS)):
        return
    for name, (package, beside, most_pairs) in BESIDE.items():
        if package is None or importlib.util.find_spec(package):
            with ExitStack() as stack:

                def with_extra(loop: Loop, beside: Beside = beside, stack: ExitStack = stack) -> Callable[[], None]:
                    return plain(loop, precision, options.device, stack.enter_context(beside(loop, folder)))

                yield against_plain(name, min(options.pairs, most_pairs), with_extra)


if __name__ == "__main__":
    main()
