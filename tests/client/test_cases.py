"""What people have reported of their trainings, each as a small loop, and what the hook makes of it.

Sources are public issues; the numbers in the tests' names are nobody's but ours.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.checkpoint import checkpoint

import gradsight
from gradsight import DynamicScale, Ema, GlobalNorm
from gradsight.errors import ConfigurationError
from tests.client.conftest import layer_rows, rows, sent
from tests.client.planted import Bench, loss_with


def linear(inputs: int = 2) -> tuple[nn.Linear, Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(inputs, 1)
    return model, SGD(model.parameters(), lr=0.1)


def test_the_norm_before_clipping_is_told_apart_from_the_one_after(run: gradsight.Run) -> None:
    """huggingface/open-r1#609: a logged norm of 20 with a threshold of 1 is taken for broken clipping."""
    model = nn.Linear(16, 1)
    optimizer = SGD(model.parameters(), lr=1e-3)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0)
    after = []
    for step in range(5):
        optimizer.zero_grad()
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step)) * 10
        monitor.step(model(x).square().mean())
        after.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
    recorded = rows(sent(run))
    before: list[Any] = recorded["grad_norm_before_clip"]
    assert all(norm > 1.0 for norm in before)
    assert recorded["max_norm"] == [1.0] * 5
    assert after == pytest.approx([1.0] * 5, rel=1e-5)
    assert [norm * coef for norm, coef in zip(before, recorded["clip_coef"], strict=True)] == pytest.approx(after)


def test_one_overflow_is_one_step_and_spoils_no_other(run: gradsight.Run) -> None:
    """microsoft/unilm#598: the mean over a window with one overflow is NaN though the training is well."""
    bench = Bench([[0.0]], precision="fp16", loss_scale=DynamicScale(32768.0), clip=GlobalNorm(Ema()), run=run)
    for gradient in (3.1, math.inf, 2.9, 3.0):
        bench.step([[gradient]])
    recorded = rows(sent(run))
    assert recorded["grad_norm_before_clip"] == pytest.approx([3.1, math.inf, 2.9, 3.0])
    assert recorded["skipped"] == [False, True, False, False]
    assert recorded["loss_scale"] == [32768.0, 32768.0, 16384.0, 16384.0]  # never a mean: powers of two
    (learned,) = bench.monitor.state_dict()["thresholds"].values()
    assert learned["ema"] == pytest.approx(3.0)


def test_a_scaler_that_warms_up_is_a_short_run_of_skips(run: gradsight.Run) -> None:
    """Time-MoE#71: NaNs in the first steps, or one in 2000, are no reason to stop."""
    model = nn.Linear(8, 1)
    optimizer = SGD(model.parameters(), lr=1e-3)
    scale = DynamicScale(init_scale=2.0**40, growth_interval=20)
    monitor = gradsight.Monitor(model, optimizer, run=run, precision="fp16", loss_scale=scale)
    untouched = [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(30):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean() * (1e28 if step < 3 else 1.0)
        skipped = monitor.step(loss).skipped
        if step < 3:
            assert skipped
            assert all(torch.equal(a, b) for a, b in zip(untouched, model.parameters(), strict=True))
    recorded = rows(sent(run))
    assert recorded["skipped"] == [True] * 3 + [False] * 27
    assert set(recorded["skip_reason"]) == {"overflow", None}
    assert recorded["loss_scale"] == [2.0**40, 2.0**39, 2.0**38] + [2.0**37] * 20 + [2.0**38] * 7
    scales = zip(recorded["loss_scale"], recorded["loss_scale_after"], strict=True)
    assert [after < before for before, after in scales] == recorded["skipped"]  # type: ignore[operator]


def test_what_was_not_measured_is_none_and_never_zero(run: gradsight.Run) -> None:
    """radixark/miles#621: a missing norm that is logged as 0.0, a missing scale as -1.0, look like a dead model."""
    bench = Bench([None], run=run)
    bench.monitor.step()
    recorded = rows(sent(run))
    unknown = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss_scale", "loss_scale_after", "loss")
    assert {name: recorded[name] for name in unknown} == {name: [None] for name in unknown}


def test_an_optimizer_whose_parameters_had_no_part_is_a_step_without_gradient(run: gradsight.Run) -> None:
    """huggingface/blog#143: torch's scaler raises 'No inf checks were recorded for this optimizer'."""
    (a, optimizer_a), (b, optimizer_b) = linear(), linear()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    kept: dict[str, Any] = {"run": run, "precision": "fp16", "loss_scale": scaler}
    monitor_a = gradsight.Monitor(a, optimizer_a, stream="a", update_scaler=False, **kept)
    monitor_b = gradsight.Monitor(b, optimizer_b, stream="b", **kept)
    monitor_a.step(a(torch.ones(1, 2)).sum())
    result = monitor_b.step()
    assert (result.skipped, result.skip_reason, result.grad_norm_before_clip) == (True, "no_gradient", None)
    assert scaler.get_scale() == 8.0
    recorded = rows(sent(run), "b")
    assert recorded["num_layers_without_grad"] == [2]  # of 2
    assert recorded["grad_norm_before_clip"] == [None]


def test_fp16_parameters_have_a_norm_and_a_name(run: gradsight.Run) -> None:
    """pytorch#74739: 'Attempting to unscale FP16 gradients', and a norm that is inf in fp16."""
    model = nn.Linear(4, 1).half()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=1e-6), run=run, precision="fp16", loss_scale=1.0)
    monitor.backward(model(torch.full((1, 4), 6e4, dtype=torch.float16)).sum() * 1.0)
    assert monitor.step().grad_norm_before_clip == pytest.approx(math.hypot(6e4 * 2, 1), rel=1e-3)
    events = [event for _, _, batch in sent(run).batches for event in batch.events]
    assert events[0].kind == "float16_parameters"
    assert "2 of 2 parameters are float16" in events[0].message


def test_bf16_has_no_scale_to_show(run: gradsight.Run) -> None:
    """pytorch#127176, huggingface/trl#4901: a scaler with bf16 is no use; a flat line at 1.0 is no healthy one."""
    model = nn.Linear(4, 1).to(torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(ConfigurationError, match="loss_scale must be left out with precision 'bf16', got <torch"):
        gradsight.Monitor(model, optimizer, precision="bf16", loss_scale=scaler)
    monitor = gradsight.Monitor(model, optimizer, run=run, precision="bf16")
    monitor.step(model(torch.ones(1, 4, dtype=torch.bfloat16)).sum())
    assert rows(sent(run))["loss_scale"] == [None]


def test_experts_without_a_gradient_are_counted_each_step(run: gradsight.Run) -> None:
    """deepspeedai/DeepSpeed#8613: which experts have a gradient changes from step to step."""
    experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(4))
    optimizer = SGD(experts.parameters(), lr=0.1)
    monitor = gradsight.Monitor(experts, optimizer, run=run, clip=1.0)
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        used = experts[step % 2]
        assert monitor.step(used(torch.ones(2, 4)).sum()).skipped is False
    transport = sent(run)
    assert rows(transport)["num_layers_without_grad"] == [6, 6, 6]
    present = [[index for index, norm in enumerate(norms) if norm != -1.0] for _, norms in layer_rows(transport)]
    assert present == [[0, 1], [2, 3], [0, 1]]


def test_a_sparse_embedding_has_the_norm_of_its_coalesced_gradient(run: gradsight.Run) -> None:
    """pytorch#4829: duplicates that are not merged give a wrong norm; older versions raise."""
    table, head = nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1)
    model = nn.ModuleList([table, head])
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run)
    monitor.backward(head(table(torch.tensor([1, 1, 2]))).sum())
    grad = table.weight.grad
    assert grad is not None
    merged = [grad.coalesce().values(), *(p.grad for p in head.parameters() if p.grad is not None)]
    true_norm = math.sqrt(sum(float(values.square().sum()) for values in merged))
    assert monitor.step().grad_norm_before_clip == pytest.approx(true_norm, rel=1e-6)
    assert not grad.is_coalesced()


@pytest.mark.parametrize(("norm_type", "norm"), [(2.0, 13.0), (math.inf, 12.0)])
def test_complex_scalar_and_empty_parameters_have_one_norm(norm_type: float, norm: float) -> None:
    """torch's inf-norm raises on the empty one."""
    grads = [torch.tensor([3 + 4j]), torch.zeros(0, 5), torch.tensor(12.0)]
    bench = Bench(grads, clip=GlobalNorm(1e9, norm_type=norm_type))
    result = bench.step(grads)
    assert result.grad_norm_before_clip == norm
    assert isinstance(result.grad_norm_before_clip, float)


def test_a_checkpointed_shared_weight_is_recorded_once(run: gradsight.Run) -> None:
    """pytorch#81296: gradient hooks fire more than once in one backward."""
    layer = nn.Linear(3, 3, bias=False)
    fired: list[int] = []
    layer.weight.register_post_accumulate_grad_hook(lambda _: fired.append(1))  # type: ignore[no-untyped-call]
    monitor = gradsight.Monitor(layer, SGD(layer.parameters(), lr=0.1), run=run)
    x = torch.randn(2, 3, requires_grad=True)
    y = checkpoint(layer, checkpoint(layer, x, use_reentrant=True), use_reentrant=True)
    monitor.backward(y.sum())
    assert len(fired) > 1
    assert layer.weight.grad is not None
    final = float(layer.weight.grad.norm())
    assert monitor.step().grad_norm_before_clip == pytest.approx(final, rel=1e-6)
    assert rows(sent(run))["step"] == [0]


def test_a_scale_that_collapses_leaves_a_trail(run: gradsight.Run) -> None:
    """hiyouga/LlamaFactory#251: every step overflows, until others give up; torch has no floor."""
    model, optimizer = linear()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    monitor = gradsight.Monitor(model, optimizer, run=run, precision="fp16")
    for _ in range(40):
        optimizer.zero_grad()
        monitor.step(model(torch.ones(1, 2)).sum() * math.nan)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    recorded = rows(sent(run))
    assert recorded["skip_reason"] == ["overflow"] * 40
    assert recorded["nonfinite_kind"] == ["nan"] * 40  # the model's NaN, not an overflow of the scale
    assert recorded["loss_scale"] == [2.0 ** (16 - step) for step in range(40)]
    assert recorded["loss_scale_after"][-1] == 2.0**-24


def test_steps_without_signal_are_zero_and_teach_nothing(run: gradsight.Run) -> None:
    """modelscope/ms-swift#5890: all rewards alike, advantage zero, a norm of zero between others of 0.3."""
    logit = nn.Parameter(torch.zeros(4))
    optimizer = SGD([logit], lr=0.0)
    monitor = gradsight.Monitor([("logit", logit)], optimizer, run=run, clip=GlobalNorm(Ema(warmup_steps=2)))
    for rewards in ([1.0, 0, 1, 0], [1.0, 1, 1, 1], [1.0, 0, 1, 0], [1.0, 1, 1, 1], [1.0, 0, 1, 0]):
        reward = torch.tensor(rewards)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        optimizer.zero_grad()
        monitor.step(-(advantage * torch.log_softmax(logit, 0)).sum())
    recorded = rows(sent(run))
    norms: list[Any] = recorded["grad_norm_before_clip"]
    assert [norm == 0.0 for norm in norms] == [False, True, False, True, False]
    assert recorded["skipped"] == [False] * 5
    assert recorded["max_norm"][2:] == [None, pytest.approx(1.5 * norms[0]), pytest.approx(1.5 * norms[0])]


def test_the_loop_can_tell_whether_a_step_was_applied(run: gradsight.Run) -> None:
    """pytorch#67590: the schedule goes on though the update was skipped, and nothing tells."""
    for asks, rates in ((False, [1.0, 0.5, 0.25]), (True, [1.0, 1.0, 1.0])):
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=1.0)
        schedule = StepLR(optimizer, 1, 0.5)
        stream = "asks" if asks else "does not"
        monitor = gradsight.Monitor(model, optimizer, run=run, stream=stream, precision="fp16")
        optimizer.step()  # or the schedule warns that it came first
        for _ in range(3):
            optimizer.zero_grad()
            result = monitor.step(model(torch.ones(1, 2)).sum() * math.inf)
            if not (asks and result.skipped):
                schedule.step()
        assert monitor.num_steps == 3
        if asks:
            asked = rates
        else:
            unasked = rates
    transport = sent(run)
    assert rows(transport, "does not")["lr"] == unasked  # fell twice, and nothing was applied
    assert rows(transport, "asks")["lr"] == asked
    assert rows(transport, "asks")["skipped"] == [True] * 3


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0])
def test_a_threshold_that_is_not_positive_is_refused(threshold: float) -> None:
    """pytorch#31367: a negative one turns gradients round, zero means "off" to some and "nothing passes" to others."""
    model, optimizer = linear()
    with pytest.raises(ConfigurationError, match=f"clip must be positive, got {threshold!r}"):
        gradsight.Monitor(model, optimizer, clip=threshold)


def test_ranks_do_not_count_a_step_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ray-project/ray#18812: all ranks write into one log, and each skip is counted for every rank."""
    recorded = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        run = gradsight.Run(spool_dir=tmp_path / str(rank), mode="offline", quiet=True)
        bench = Bench([[0.0]], precision="fp16", loss_scale=2.0, run=run)
        results = [bench.step([[gradient]]) for gradient in (2.0, math.inf, 4.0)]
        assert [result.skipped for result in results] == [False, True, False]
        recorded.append(rows(sent(run)))
    assert recorded[0]["step"] == [0, 1, 2]
    assert recorded[0]["skipped"] == [False, True, False]
    assert recorded[1:] == [{}, {}, {}]


def test_a_step_with_several_backwards_is_one_step(run: gradsight.Run) -> None:
    """pytorch#67590: LBFGS evaluates its closure up to `max_iter` times in one step."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 1), torch.randn(16, 3), torch.randn(16, 1)
    optimizer = LBFGS(model.parameters(), max_iter=5)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    norms: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = (model(x) - y).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        return loss

    firsts = []
    for _ in range(2):
        firsts.append(len(norms))
        monitor.step(closure=closure)
    assert len(norms) > 2 + 2
    recorded = rows(sent(run))
    assert recorded["step"] == [0, 1]
    assert recorded["grad_norm_before_clip"] == pytest.approx([norms[first] for first in firsts], rel=1e-6)


def test_a_plain_loop_is_left_as_it_was_by_a_run_that_records_nothing(tmp_path: Path) -> None:
    """Turned off, the hook trains the same and leaves no trace."""
    bench = Bench([[0.0]], run=gradsight.Run(mode="disabled", spool_dir=tmp_path / "spool"), clip=1.0)
    bench.monitor.step(loss_with(bench.parameters, [[0.5]]))
    assert bench.parameters[0].tolist() == [-0.5]
    assert not (tmp_path / "spool").exists()
