"""What is sampled now and then: head-room, underflow, update ratio; and how often."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import gradsight
from gradsight import sampling
from gradsight.sampling import EVERY, Sampler, as_matrix, headroom_log2, underflow_fraction
from tests.client.conftest import rows, sent
from tests.client.planted import ORDERS, Bench, loss_with, order_of, take_step


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


def sampled(parameters: list[Tensor], update: Any, grads: list[Tensor] | None = None) -> sampling.Sample:
    """The sample of a step that changes the parameters by `update()`."""
    sampler = Sampler(is_fp16=True)
    sampler.before(parameters, parameters if grads is None else grads)
    with torch.no_grad():
        update()
    return sampler.after(parameters, 0, 0.0)


# Head-room and underflow


def test_head_room_is_exact() -> None:
    torch.manual_seed(0)
    grads = [torch.randn(300, 70), torch.randn(11), torch.tensor(-7.5), torch.randn(4, 4).half(), torch.zeros(0, 3)]
    largest = max(float(grad.abs().max()) for grad in grads if grad.numel())
    assert float(headroom_log2([as_matrix(grad) for grad in grads])) == math.log2(65504 / largest)


def test_head_room_counts_scaled_gradients(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0, 0.0]], precision="fp16", loss_scale=1024.0, run=run)
    bench.step([[3.0, -16.0]])
    assert rows(sent(run))["headroom_log2"] == [math.log2(65504 / (16 * 1024))]


@pytest.mark.parametrize(
    ("grad", "fraction"),
    [
        pytest.param(torch.full((8, 8), 2.0**-14), 0.0, id="the smallest normal number is none"),
        pytest.param(torch.full((8, 8), 2.0**-14 * 0.999), 1.0, id="below it all are subnormal"),
        pytest.param(torch.full((8, 8), -(2.0**-30)), 1.0, id="negative ones too"),
        pytest.param(torch.tensor([[1.0, 1e-9, 0.0, 1.0]]), 0.5, id="zeros in a live row are lost"),
        pytest.param(torch.tensor([1.0, 1e-9, 1e-9, 1.0]), 0.5, id="a vector"),
        pytest.param(torch.tensor(1e-9), 1.0, id="a scalar"),
        pytest.param(torch.tensor([[1.0, 1e-9], [0.0, 0.0], [0.0, 0.0]]), 0.5, id="unused rows do not count"),
        pytest.param(torch.zeros(5, 3), 0.0, id="all unused"),
        pytest.param(torch.zeros(0, 3), 0.0, id="empty"),
        pytest.param(torch.tensor([[1 + 1e-9j, 1j]]), 0.5, id="complex, part by part"),
        pytest.param(torch.tensor([[0.0, 0.0], [1.0, 1e-9]]).to_sparse(1), 0.5, id="sparse"),
    ],
)
def test_underflow_of_planted_gradients(grad: Tensor, fraction: float) -> None:
    assert float(underflow_fraction(as_matrix(grad))) == pytest.approx(fraction)


@pytest.mark.parametrize("shape", [(2000, 1000), (4, 300_000), (1_000_000,), (64, 8, 3, 3), (1, 500_000)])
def test_underflow_is_estimated_from_a_part(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    grad = torch.where(torch.rand(shape) < 0.3, 1e-7, 1.0)
    assert float(underflow_fraction(as_matrix(grad))) == pytest.approx(0.3, abs=0.03)


def test_sparse_complex_and_empty_gradients_are_sampled_with_the_others(run: gradsight.Run) -> None:
    parameters = [nn.Parameter(torch.zeros(4, 2)), nn.Parameter(torch.zeros(2, dtype=torch.complex64))]
    parameters += [nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.ones(2))]
    optimizer = SGD(parameters, lr=1.0)
    named = [(f"layer{index}", parameter) for index, parameter in enumerate(parameters)]
    monitor = gradsight.Monitor(named, optimizer, run=run, precision="fp16", loss_scale=1.0)
    monitor.backward(loss_with(parameters, [torch.zeros(4, 2), torch.zeros(2), torch.zeros(0, 3), torch.ones(2)]))
    twice, values = torch.tensor([[1, 1]]), torch.tensor([[2.0, 1e-9], [2.0, 0.0]])
    parameters[0].grad = torch.sparse_coo_tensor(twice, values, (4, 2), check_invariants=True)
    monitor.step()
    recorded = rows(sent(run))
    assert recorded["headroom_log2"] == [math.log2(65504 / 4)]
    assert recorded["underflow_fraction"] == [0.5]


def test_the_worst_layer_is_named_once(run: gradsight.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EVERY", 1)
    monkeypatch.setattr(sampling, "MAX_SHARE_OF_TIME", math.inf)
    bench = Bench([[0.0] * 4, [0.0] * 4], precision="fp16", loss_scale=1.0, run=run)
    a_little, most = [1.0, 1.0, 1.0, 1e-9], [1.0, 1e-9, 1e-9, 1e-9]
    for grads in ([a_little, most], [most, most], [a_little, most], [most, a_little], [a_little] * 2):
        bench.step(grads)
    transport = sent(run)
    assert rows(transport)["underflow_fraction"] == [0.75, 0.75, 0.75, 0.75, 0.25]
    told = [event for _, _, batch in transport.batches for event in batch.events if event.kind == "underflow"]
    assert [(event.step, event.message.split(":")[0]) for event in told] == [(0, "layer1"), (1, "layer0")]
    assert "75%" in told[0].message
    assert run.num_dropped == {}  # the last may be worked out while the run finishes


# Update ratio


@pytest.mark.parametrize("optimizer", [SGD, AdamW])
def test_the_update_ratio_is_near_the_exact_one(optimizer: Any, run: gradsight.Run) -> None:
    torch.manual_seed(2)
    # Square layers of a round size, whose gradients are outer products: one column is not like another.
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 3))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    monitor = gradsight.Monitor(model, optimizer(model.parameters(), lr=0.01), run=run)
    x = torch.randn(2, 1024) * torch.linspace(0, 1, 1024)
    monitor.step(model(x).square().sum())
    moved = [(new - old).detach().norm() for new, old in zip(model.parameters(), before, strict=True)]
    exact = float(torch.stack(moved).norm() / torch.stack([weight.norm() for weight in before]).norm())
    assert rows(sent(run))["update_ratio"] == [pytest.approx(exact, rel=0.05)]


def test_the_update_ratio_of_small_layers_is_exact() -> None:
    parameters = [torch.ones(30, 30), torch.tensor([3 + 4j]), torch.tensor(2.0), torch.zeros(0, 5)]
    sample = sampled(parameters, lambda: [parameter.mul_(1.01) for parameter in parameters])
    assert sample.update_ratio is not None
    assert float(sample.update_ratio) == pytest.approx(0.01, rel=1e-4)


def test_a_skipped_step_has_no_update_ratio(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0]], run=run)
    bench.parameters[0].data.fill_(1.0)
    bench.step([[math.nan]])
    assert rows(sent(run))["update_ratio"] == [None]


# How often


def test_steps_are_sampled_at_first_and_every_so_often(run: gradsight.Run) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=2.0, run=run)
    bench.monitor._sampler._next = 0
    sampler = bench.monitor._sampler
    due = []
    for step in range(2 * EVERY + 1):
        due.append(sampler.is_due(step))
        if due[-1]:
            sampler.before(bench.parameters, bench.parameters)
            sampler.after(bench.parameters, step, 1e9)
    assert [step for step, is_due in enumerate(due) if is_due] == [0, EVERY, 2 * EVERY]


def test_the_interval_grows_so_that_sampling_stays_below_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(sampling, "perf_counter", lambda: 0.5 * next(clock))  # half a second before, half after
    sampler = Sampler(is_fp16=False)
    parameters = [torch.ones(3)]
    sampler.before(parameters, parameters)
    sampler.after(parameters, 1000, 0.1)
    interval = sampler._next - 1000
    assert interval > EVERY
    assert 1.0 / (interval * 0.1) <= 0.01
    assert not sampler.is_due(1000 + interval - 1)
    assert sampler.is_due(1000 + interval)


def test_nothing_is_sampled_without_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*_: object) -> None:
        raise AssertionError("sampled")

    monkeypatch.setattr(Sampler, "before", never)
    for run in (None, gradsight.Run(mode="disabled", spool_dir=tmp_path)):
        bench = Bench([[0.0]], precision="fp16", loss_scale=2.0, run=run)
        assert bench.step([[1.0]]).skipped is False


def test_a_sample_that_fails_is_counted_and_training_goes_on(
    run: gradsight.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(sampling, "headroom_log2", broken)
    bench = Bench([[0.0]], precision="fp16", loss_scale=2.0, run=run)
    for _ in range(3):
        assert take_step(bench.monitor, bench.optimizer, bench.parameters, [[1.0]]).skipped is False
    assert bench.parameters[0].tolist() == [-3.0]
    assert run.num_dropped == {"hook_error": 1}
    assert rows(sent(run))["step"] == [0, 1, 2]
