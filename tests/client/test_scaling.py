"""Loss scaling: traces of the scale, scalers that are shared, scales and precisions that do not go together."""

import copy
import math
import pickle
import warnings
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD, Optimizer

import gradsight
from gradsight import DynamicScale
from gradsight.errors import ConfigurationError
from gradsight.scaling import HysteresisScaler
from tests.client.conftest import rows, sent, small_model
from tests.client.planted import ORDERS, Bench, close, loss_with, order_of, zeros_like


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


def runs_of(*lengths: tuple[float, int]) -> list[float]:
    """[(value, how often it comes in a row)] written out."""
    return list(chain.from_iterable(repeat(value, length) for value, length in lengths))


def scales_of(bench: Bench, num_steps: int, overflows: set[int]) -> list[tuple[float | None, bool]]:
    """(scale used, skipped) of each step."""
    results = [bench.step([[math.inf if step in overflows else 1e-3]]) for step in range(num_steps)]
    return [(result.loss_scale, result.skipped) for result in results]


# Traces of the scale

TORCH_TRACE = runs_of(
    *((65536, 1), (32768, 1), (16384, 1), (8192, 5), (16384, 2), (8192, 5), (16384, 1), (8192, 5), (16384, 5)),
    *((32768, 5), (16384, 1), (8192, 5), (16384, 5), (32768, 4), (16384, 5), (32768, 5), (65536, 4)),
)
TORCH_OVERFLOWS = {0, 1, 2, 9, 15, 30, 31, 45}


@pytest.mark.parametrize("is_own", [True, False], ids=["own scaler", "settings"])
def test_the_scale_moves_as_torchs_does(is_own: bool, order: str) -> None:
    own = GradScaler("cpu", init_scale=65536.0, growth_interval=5)
    scale = own if is_own else DynamicScale(init_scale=65536.0, growth_interval=5)
    bench = Bench([[0.0]], precision="fp16", loss_scale=scale)
    steps = scales_of(bench, 60, TORCH_OVERFLOWS)
    assert [scale for scale, _ in steps] == TORCH_TRACE
    assert {step for step, (_, skipped) in enumerate(steps) if skipped} == TORCH_OVERFLOWS
    assert bench.monitor.scaler is not None
    assert bench.monitor.scaler.get_scale() == 65536.0


def test_scales_before_and_after_are_recorded(run: gradsight.Run, order: str) -> None:
    scale = DynamicScale(init_scale=65536.0, growth_interval=5)
    bench = Bench([[0.0]], precision="fp16", loss_scale=scale, run=run)
    scales_of(bench, 60, TORCH_OVERFLOWS)
    recorded = rows(sent(run))
    assert recorded["loss_scale"] == TORCH_TRACE
    assert recorded["loss_scale_after"] == [*TORCH_TRACE[1:], 65536.0]
    assert {step for step, reason in enumerate(recorded["skip_reason"]) if reason == "overflow"} == TORCH_OVERFLOWS


def test_the_scale_does_not_grow_past_float32(order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=DynamicScale(init_scale=2.0**125, growth_interval=1))
    scales = [bench.step([[2.0**-120]]).loss_scale for _ in range(5)]
    assert scales == [2.0**125, 2.0**126, 2.0**127, 2.0**127, 2.0**127]
    assert bench.parameters[0].tolist() == [-5 * 2.0**-120]


def test_the_scale_falls_to_zero_and_the_parameters_stay(order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=DynamicScale(init_scale=1.0))
    scales = [bench.step([[math.nan]]).loss_scale for _ in range(153)]
    assert scales[0] == 1.0
    assert scales[1] == 0.5
    assert scales[126] == 1.1754943508222875e-38
    assert scales[149] == 1.401298464324817e-45
    assert scales[150:] == [0.0, 0.0, 0.0]
    # torch would divide finite gradients by zero here, find no overflow, and apply NaN.
    assert bench.step([[1.0]]).skip_reason == "overflow"
    assert bench.parameters[0].tolist() == [0.0]


@pytest.mark.parametrize("fused", [True, False])
def test_finite_gradients_that_unscale_past_float32_are_an_overflow(fused: bool, order: str) -> None:
    bench = Bench([[0.0, 0.0]], fused=fused, precision="fp16", loss_scale=2.0**-140)
    assert bench.step([[2.0**20, 0.0]]).skip_reason == "overflow"  # 1 / scale is past float32
    bench = Bench([[0.0, 0.0]], fused=fused, precision="fp16", loss_scale=2.0**-60)
    bench.monitor.backward(loss_with(bench.parameters, [[1.0, 0.0]]))
    bench.parameters[0].grad = torch.tensor([2.0**80, 0.0])
    assert bench.monitor.step().skip_reason == "overflow"
    assert bench.parameters[0].tolist() == [0.0, 0.0]
    assert bench.step([[2.0**20, 0.0]]).skipped is False
    assert bench.parameters[0].tolist() == [-(2.0**20), 0.0]


# Hysteresis

MEGATRON_TRACE = runs_of(
    *((256, 2), (128, 1), (64, 5), (128, 6), (256, 5), (512, 3), (256, 1), (128, 1), (64, 5)),
    *((128, 5), (256, 5), (512, 7), (1024, 5), (2048, 5), (4096, 4)),
)
"""Overflows at 0, 1, 2, 8, 20, 21, 22, 23, 40 with a hysteresis of 2 and growth after 5: the scale used."""
MEGATRON_OVERFLOWS = {0, 1, 2, 8, 20, 21, 22, 23, 40}


def hysteresis(left: int = 2) -> DynamicScale:
    return DynamicScale(init_scale=256.0, growth_interval=5, hysteresis=left)


def test_hysteresis_forgives_and_is_filled_up_by_growth(order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=hysteresis())
    steps = scales_of(bench, 60, MEGATRON_OVERFLOWS)
    assert [scale for scale, _ in steps] == MEGATRON_TRACE
    assert {step for step, (_, skipped) in enumerate(steps) if skipped} == MEGATRON_OVERFLOWS  # forgiven, not applied


def test_more_hysteresis_takes_more_overflows() -> None:
    # After three overflows in all, however far apart, each further one halves; growth fills up.
    bench = Bench([[0.0]], precision="fp16", loss_scale=hysteresis(3))
    scales = [scale for scale, _ in scales_of(bench, 21, {0, 2, 4, 6, 12, 13, 14, 15})]
    assert scales == runs_of((256, 5), (128, 2), (64, 5), (128, 3), (64, 1), (32, 5))


@pytest.mark.parametrize("at", [1, 2, 3, 8, 9, 21, 41])
def test_hysteresis_survives_a_resume(at: int, order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=hysteresis())
    scales_of(bench, at, MEGATRON_OVERFLOWS)
    resumed = Bench([[0.0]], precision="fp16", loss_scale=hysteresis())
    resumed.monitor.load_state_dict(bench.monitor.state_dict())
    later = {step - at for step in MEGATRON_OVERFLOWS}
    assert [scale for scale, _ in scales_of(resumed, 60 - at, later)] == MEGATRON_TRACE[at:]


def test_a_state_without_hysteresis_can_be_gone_on_from_with_one() -> None:
    plain = Bench([[0.0]], precision="fp16", loss_scale=DynamicScale(64.0, 5))
    plain.step([[1.0]])
    bench = Bench([[0.0]], precision="fp16", loss_scale=hysteresis())
    bench.monitor.load_state_dict(plain.monitor.state_dict())
    assert [scale for scale, _ in scales_of(bench, 3, {0, 1})] == [64.0, 64.0, 32.0]
    back = Bench([[0.0]], precision="fp16", loss_scale=DynamicScale(8.0, 5))
    back.monitor.load_state_dict(bench.monitor.state_dict())
    assert back.step([[1.0]]).loss_scale == 32.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_scaler_with_hysteresis_can_be_copied(copied: Any) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=hysteresis())
    scales_of(bench, 1, {0})
    again = copied(bench.monitor.scaler)
    assert isinstance(again, HysteresisScaler)
    assert again.state_dict() == bench.monitor.scaler.state_dict()  # type: ignore[union-attr]
    other = Bench([[0.0]], precision="fp16", loss_scale=again)
    assert [scale for scale, _ in scales_of(other, 3, {0, 1})] == MEGATRON_TRACE[1:4]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"init_scale": 0.0}, r"init_scale must be positive and finite, got 0\.0"),
        ({"init_scale": math.inf}, "init_scale .* inf"),
        ({"growth_interval": 0}, "growth_interval must be a whole number from 1 on, got 0"),
        ({"hysteresis": 0}, "hysteresis must be a whole number from 1 on, got 0"),
        ({"hysteresis": 1.5}, "hysteresis .* 1.5"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        DynamicScale(**settings)


# A constant scale


def test_a_constant_scale_never_moves_and_still_guards(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=512.0, clip=1.0, run=run)
    assert scales_of(bench, 4, {1}) == [(512.0, False), (512.0, True), (512.0, False), (512.0, False)]
    assert bench.parameters[0].tolist() == pytest.approx([-3e-3])
    recorded = rows(sent(run))
    assert recorded["loss_scale_after"] == [512.0] * 4
    assert recorded["skip_reason"] == [None, "overflow", None, None]


# A scaler of the user's own, shared


class Pair:
    """Two optimizers in one loop on one scaler, as of a GAN."""

    def __init__(self, run: gradsight.Run | None = None, **scale: Any) -> None:
        self.scaler = GradScaler("cpu", **({"init_scale": 1024.0, "growth_interval": 3} | scale))
        self.monitors, self.parameters, self.optimizers = [], [], []
        for stream, is_last in (("generator", False), ("discriminator", True)):
            named = zeros_like([[0.0]])
            optimizer = SGD([named[0][1]], lr=1.0)
            self.monitors.append(
                gradsight.Monitor(
                    named,
                    optimizer,
                    run=run,
                    stream=stream,
                    precision="fp16",
                    loss_scale=self.scaler,
                    update_scaler=is_last,
                )
            )
            self.parameters.append(named[0][1])
            self.optimizers.append(optimizer)

    def step(self, *gradients: float | None) -> list[gradsight.StepResult]:
        """A step of each, with this gradient or without one."""
        results = []
        for monitor, optimizer, parameter, gradient in zip(
            self.monitors, self.optimizers, self.parameters, gradients, strict=True
        ):
            optimizer.zero_grad()
            results.append(monitor.step(None if gradient is None else loss_with([parameter], [[gradient]])))
        return results


def test_two_streams_have_one_series_of_scales(run: gradsight.Run, order: str) -> None:
    pair = Pair(run)
    for step in range(8):
        pair.step(math.inf if step == 2 else 1.0, math.nan if step == 6 else 1.0)
    transport = sent(run)
    generator, discriminator = rows(transport, "generator"), rows(transport, "discriminator")
    assert generator["loss_scale"] == discriminator["loss_scale"] == runs_of((1024, 3), (512, 3), (1024, 1), (512, 1))
    assert discriminator["loss_scale_after"] == runs_of((1024, 2), (512, 3), (1024, 1), (512, 2))
    assert generator["skip_reason"] == [None, None, "overflow", None, None, None, None, None]  # each one's own
    assert discriminator["skip_reason"] == [None, None, None, None, None, None, "overflow", None]


def test_an_overflow_of_one_is_not_taken_for_one_of_the_other(order: str) -> None:
    pair = Pair()
    first, second = pair.step(1.0, math.inf)
    assert (first.skipped, second.skipped) == (False, True)  # also when it is looked at after the update
    first, second = pair.step(math.inf, 1.0)
    assert (first.skipped, second.skipped) == (True, False)


def test_the_scale_is_updated_when_one_has_no_gradient(order: str) -> None:
    pair = Pair(growth_interval=1)
    assert [result.skip_reason for result in pair.step(1.0, None)] == [None, "no_gradient"]
    assert pair.scaler.get_scale() == 2048.0
    assert [result.skip_reason for result in pair.step(None, 1.0)] == ["no_gradient", None]
    assert pair.scaler.get_scale() == 4096.0
    assert [result.skip_reason for result in pair.step(math.inf, None)] == ["overflow", "no_gradient"]
    assert pair.scaler.get_scale() == 2048.0
    assert [result.skip_reason for result in pair.step(None, None)] == ["no_gradient", "no_gradient"]
    assert pair.scaler.get_scale() == 2048.0


def test_the_scale_is_updated_when_the_last_one_is_skipped_by_choice(order: str) -> None:
    pair = Pair(growth_interval=1)
    pair.monitors[0].step(loss_with([pair.parameters[0]], [[1.0]]))
    assert pair.monitors[1].skip().skip_reason == "no_gradient"
    assert pair.scaler.get_scale() == 2048.0


def test_one_overflow_among_several_steps_before_the_update_counts(order: str) -> None:
    pair = Pair()
    for gradient in (1.0, math.inf, 1.0):  # three critic's steps to one of the generator
        pair.optimizers[0].zero_grad()
        pair.monitors[0].step(loss_with([pair.parameters[0]], [[gradient]]))
    pair.optimizers[1].zero_grad()
    pair.monitors[1].step(loss_with([pair.parameters[1]], [[1.0]]))
    assert pair.scaler.get_scale() == 512.0
    assert pair.parameters[0].tolist() == [-2.0]


def test_the_user_can_update_the_scaler(order: str) -> None:
    named = zeros_like([[0.0]])
    optimizer = SGD([named[0][1]], lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1)
    monitor = gradsight.Monitor(named, optimizer, precision="fp16", loss_scale=scaler, update_scaler=False)
    for expected in (8.0, 16.0):
        optimizer.zero_grad()
        assert monitor.step(loss_with([named[0][1]], [[1.0]])).loss_scale == expected
        scaler.update()


# unscale_ by the user


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_the_user_has_unscaled_are_taken_as_they_are(fused: bool, run: gradsight.Run, order: str) -> None:
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    bench = Bench([[0.0, 0.0]], fused=fused, precision="fp16", loss_scale=scaler, clip=1.0, run=run)
    norms = []
    for gradient in ([3.0, 4.0], [math.inf, 0.0], [0.3, 0.4], [0.3, 0.4], [0.3, 0.4]):
        bench.optimizer.zero_grad()
        bench.monitor.backward(loss_with(bench.parameters, [gradient]))
        scaler.unscale_(bench.optimizer)
        norms.append(bench.monitor.step().grad_norm_before_clip)
    assert norms == pytest.approx([5.0, math.inf, 0.5, 0.5, 0.5])
    assert close(bench.parameters, [[-0.6 - 0.9, -0.8 - 1.2]])
    transport = sent(run)
    assert rows(transport)["loss_scale"] == [1024.0, 1024.0, 512.0, 512.0, 1024.0]
    told = [event for _, _, batch in transport.batches for event in batch.events]
    assert [(event.kind, event.step) for event in told if event.kind == "unscaled"] == [("unscaled", 0)]


# Precisions


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("scale", [GradScaler("cpu"), DynamicScale(), 1024.0, GradScaler("cpu", enabled=False)])
def test_a_scale_is_refused_where_there_is_nothing_to_scale(precision: Any, scale: Any) -> None:
    model = small_model()
    with pytest.raises(ConfigurationError, match=f"loss_scale must be left out with precision '{precision}'"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), precision=precision, loss_scale=scale)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, "static", True, None])
def test_a_scale_that_is_none_is_refused(scale: Any) -> None:
    model = small_model()
    with pytest.raises(ConfigurationError, match="loss_scale must be"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), precision="fp16", loss_scale=scale)


def test_bf16_records_no_scale(run: gradsight.Run) -> None:
    model = small_model().to(torch.bfloat16)
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run, precision="bf16")
    assert monitor.scaler is None
    with monitor.autocast():
        loss = model(torch.ones(2, 4)).float().sum()
    result = monitor.step(loss)
    assert result.loss_scale is None
    transport = sent(run)
    assert rows(transport)["loss_scale"] == rows(transport)["loss_scale_after"] == [None]
    streams = [record.streams["main"] for records in transport.runs.values() for record in records if record.streams]
    assert {stream.scaler for stream in streams} == {None}


def test_a_scaler_that_is_turned_off_scales_nothing_and_the_guard_stays(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=GradScaler("cpu", enabled=False), run=run)
    assert bench.monitor.scaler is None
    assert bench.step([[1.0]]).loss_scale is None
    assert bench.step([[math.inf]]).skip_reason == "nonfinite"
    assert bench.parameters[0].tolist() == [-1.0]


@pytest.mark.parametrize("fused", [True, False])
def test_fp16_parameters_are_trained_and_named(fused: bool, run: gradsight.Run, order: str) -> None:
    """torch's scaler refuses them: 'Attempting to unscale FP16 gradients'."""
    grads = [[200.0, 0.25], [0.5]]
    bench = Bench(grads, fused=fused, dtype=torch.float16, precision="fp16", loss_scale=256.0, clip=50.0, run=run)
    result, applied = bench.applied(grads)
    norm = math.sqrt(200**2 + 0.25**2 + 0.5**2)
    assert result.grad_norm_before_clip == pytest.approx(norm, rel=1e-3)  # in float32: its square is past fp16
    assert close(applied, [[200 * 50 / norm, 0.25 * 50 / norm], [0.5 * 50 / norm]], rtol=2e-3)
    told = [event for _, _, batch in sent(run).batches for event in batch.events]
    assert [event.kind for event in told] == ["float16_parameters", "finished"]
    assert told[0].message.startswith("2 of 2 parameters are float16: loss scaling cannot unscale their gradients")


def test_fp16_parameters_keep_small_factors() -> None:
    """1 / 65536 is subnormal in fp16: unscaling by it there would lose three digits."""
    for order in ORDERS:
        with order_of(order):
            bench = Bench([[0.0]], dtype=torch.float16, precision="fp16", loss_scale=65536.0 / 3)
            _, applied = bench.applied([[1.0]])
            assert close(applied, [[1.0]], rtol=1e-3)


def test_an_unscaled_backward_is_told_apart() -> None:
    bench = Bench([[0.0]], precision="fp16")
    loss_with(bench.parameters, [[1.0]]).backward()  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigurationError, match="gradients must come from a scaled loss"):
        bench.monitor.step()
    assert bench.parameters[0].tolist() == [0.0]


def test_a_backward_of_the_users_own_through_the_scaler_is_fine() -> None:
    bench = Bench([[0.0]], precision="fp16")
    assert bench.monitor.scaler is not None
    bench.monitor.scaler.scale(loss_with(bench.parameters, [[2.0]])).backward()  # type: ignore[no-untyped-call]
    assert bench.monitor.step().grad_norm_before_clip == 2.0
    assert bench.parameters[0].tolist() == [-2.0]


def test_the_users_own_scaler_is_left_to_the_user(order: str) -> None:
    """A step of torch's own with the same scaler goes on to work between ours."""
    model = nn.Linear(2, 1)
    optimizer: Optimizer = SGD(model.parameters(), lr=0.01)
    scaler = GradScaler("cpu", init_scale=16.0)
    monitor = gradsight.Monitor(model, optimizer, precision="fp16", loss_scale=scaler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(1, 2)).sum()
            if step % 2:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                monitor.step(loss)
    assert scaler.get_scale() == 16.0
    assert scaler.state_dict()["_growth_tracker"] == 4
