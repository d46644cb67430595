"""The trainings of the calibration set, by name. What is right or wrong with each is written in truth.py."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gradsight.thresholds import Percentile, ZScore
from tests.server.diagnosis.calibration.models import cnn, group_policy, lstm, mlp, transformer
from tests.server.diagnosis.calibration.recipe import Fault, Training


def at(steps: range | tuple[int, ...], factor: float) -> Callable[[int], float]:
    """A loss that is `factor` times as large on these steps: a bad batch, a sum where a mean was meant."""
    return lambda step: factor if step in steps else 1.0


def nan_gradient(name: str, steps: range) -> Fault:
    """NaN in the gradient of one layer."""
    handles: list[Any] = []

    def fault(step: int, model: nn.Module, x: Tensor) -> Tensor:
        while handles:
            handles.pop().remove()
        if step in steps:
            parameter = model.get_parameter(name)
            handles.append(parameter.register_hook(lambda grad: grad * math.nan))  # type: ignore[no-untyped-call]
        return x

    return fault


def nan_weight(name: str, step_of_fault: int) -> Fault:
    """A weight becomes NaN and stays so."""

    def fault(step: int, model: nn.Module, x: Tensor) -> Tensor:
        if step == step_of_fault:
            with torch.no_grad():
                model.get_parameter(name).view(-1)[0] = math.nan
        return x

    return fault


def input_times(factor: Callable[[int], float]) -> Fault:
    return lambda step, model, x: x * factor(step)


SPIKES = (137, 171, 222, 260, 301, 333, 380, 404, 447, 472)
warm = Training.__dataclass_fields__["lr_factor"].default
small_transformer = partial(transformer, width=16, num_blocks=1, context=16)
fp16_mlp = partial(Training, task=mlp, precision="fp16", growth_interval=50, max_norm=2.8, num_steps=500)
sgd_mlp = partial(Training, task=mlp, optimizer="sgd", lr=0.05, num_steps=600)
adam_mlp = partial(Training, task=mlp, num_steps=600)
sgd_cnn = partial(Training, task=cnn, optimizer="sgd", lr=0.05, num_steps=400)
adam_transformer = partial(Training, task=transformer, num_steps=450)
adam_lstm = partial(Training, task=lstm, lr=1e-2, num_steps=400)
sgd_lstm = partial(Training, task=lstm, optimizer="sgd", lr=1.0, num_steps=400)

TRAININGS: dict[str, Callable[[], Training]] = {
    # The threshold, by model and optimizer
    "mlp-sgd-right": lambda: sgd_mlp(max_norm=2.0, layer_every=8),
    "mlp-sgd-too-tight": lambda: sgd_mlp(max_norm=0.2),
    "mlp-sgd-off": lambda: sgd_mlp(),
    "mlp-sgd-too-loose": lambda: sgd_mlp(max_norm=1000.0, loss_factor=at(SPIKES, 20.0), lr=0.005),
    "mlp-adam-right": lambda: adam_mlp(max_norm=2.8),
    "mlp-adam-too-tight": lambda: adam_mlp(max_norm=0.3),
    "mlp-adam-inactive": lambda: adam_mlp(max_norm=20.0),
    "cnn-sgd-right": lambda: sgd_cnn(max_norm=1.3, layer_every=6),
    "cnn-sgd-too-tight": lambda: sgd_cnn(max_norm=0.15),
    "cnn-sgd-off": lambda: sgd_cnn(),
    "transformer-adam-right": lambda: adam_transformer(max_norm=0.7, layer_every=8),
    "transformer-adam-too-tight": lambda: adam_transformer(max_norm=0.12),
    "transformer-adam-inactive": lambda: adam_transformer(max_norm=5.0),
    "transformer-adam-off": lambda: adam_transformer(),
    "transformer-adam-too-loose": lambda: adam_transformer(max_norm=60.0, loss_factor=at(SPIKES, 40.0)),
    "transformer-adam-spikes-caught": lambda: adam_transformer(max_norm=0.8, loss_factor=at(SPIKES, 40.0)),
    "transformer-adam-spikes-off": lambda: adam_transformer(loss_factor=at(SPIKES, 40.0)),
    "transformer-adam-detection": lambda: adam_transformer(max_norm=0.1, num_steps=300),
    "lstm-adam-right": lambda: adam_lstm(max_norm=0.24),
    "lstm-adam-too-tight": lambda: adam_lstm(max_norm=0.02),
    "lstm-adam-off": lambda: adam_lstm(),
    "lstm-adam-too-loose": lambda: adam_lstm(max_norm=50.0, loss_factor=at(SPIKES, 60.0)),
    "lstm-sgd-right": lambda: sgd_lstm(max_norm=0.215),
    "lstm-sgd-too-tight": lambda: sgd_lstm(max_norm=0.02),
    "mlp-adam-percentile": lambda: adam_mlp(max_norm=Percentile(q=10)),
    "transformer-adam-zscore": lambda: adam_transformer(max_norm=ZScore(), loss_factor=at(SPIKES, 40.0)),
    "cnn-sgd-outgrown": lambda: sgd_cnn(max_norm=3.0, loss_factor=at(range(200), 8.0)),
    # Loss scale
    "fp16-sawtooth": lambda: fp16_mlp(init_scale=2.0**24),
    "fp16-from-far-too-high": lambda: fp16_mlp(init_scale=2.0**40, growth_interval=2000),
    "fp16-just-started": lambda: fp16_mlp(init_scale=2.0**40, growth_interval=2000, num_steps=70),
    "fp16-transformer": lambda: Training(
        task=small_transformer, precision="fp16", init_scale=2.0**24, growth_interval=50, max_norm=0.8, num_steps=300
    ),
    "fp16-thrashing": lambda: fp16_mlp(
        growth_interval=15, loss_factor=lambda step: 1e30 if step > 100 and step % 100 < 6 else 1.0
    ),
    "fp16-collapsing": lambda: fp16_mlp(
        growth_interval=2000, fault=input_times(lambda step: 1.06 ** max(0, step - 300)), num_steps=430
    ),
    "fp16-collapsed": lambda: fp16_mlp(loss_factor=lambda step: 1e30 if step >= 300 else 1.0),
    "fp16-model-nan": lambda: fp16_mlp(
        fault=nan_weight("2.weight", 300), lr_factor=lambda step: min(1.0, (step + 1) / 30) * 0.995**step
    ),
    "fp16-static": lambda: fp16_mlp(static_scale=1024.0),
    "fp16-static-too-high": lambda: fp16_mlp(static_scale=2.0**17),
    "fp16-clipped-while-scaled": lambda: fp16_mlp(max_norm=1.0, clip_scaled=True, growth_interval=40),
    "fp16-resume": lambda: fp16_mlp(init_scale=2.0**24, growth_interval=100, restart_at=250),
    "bf16-right": lambda: adam_transformer(max_norm=0.75, precision="bf16", num_steps=350),
    # Faults
    "nan-in-layer": lambda: adam_transformer(max_norm=0.7, fault=nan_gradient("blocks.1.fc1.weight", range(300, 305))),
    "nan-batch-once": lambda: adam_transformer(max_norm=0.7, loss_factor=at((300,), math.nan)),
    "nan-batch-unguarded": lambda: adam_mlp(max_norm=2.8, loss_factor=at((400,), math.nan), guard=False),
    "spike-kills": lambda: sgd_mlp(
        task=partial(mlp, head_bias=False), fault=input_times(at((350,), 100.0)), num_steps=500
    ),
    "spike-hurts": lambda: sgd_mlp(fault=input_times(at((350,), 60.0)), num_steps=500),
    "learning-rate-goes-wrong": lambda: adam_transformer(
        max_norm=0.7, num_steps=300, lr_factor=lambda step: 1000.0 if step >= 200 else min(1.0, (step + 1) / 30)
    ),
    "resume": lambda: adam_transformer(max_norm=0.7, restart_at=225),
    "no-signal-steps": lambda: Training(task=group_policy, lr=2e-3, max_norm=10.0, num_steps=600),
    "vanishing": lambda: adam_mlp(
        task=partial(mlp, nn.Sigmoid, depth=9), layer_every=6, max_norm=1.0, lr=1e-3, num_steps=420
    ),
    "logged-after-clip": lambda: adam_mlp(max_norm=1.5, record_after_clip=True),
    "clip-not-applied": lambda: sgd_mlp(max_norm=0.5, apply_clip=False),
}
