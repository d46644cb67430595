"""Monitor: what it refuses, what it records, and that it steps as it says."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD

import gradsight
from gradsight.errors import ClosedError, ConfigurationError
from tests.client.conftest import layer_rows, rows, sent, small_model


def train(monitor: gradsight.Monitor, model: nn.Module, optimizer: torch.optim.Optimizer, num_steps: int) -> None:
    for step in range(num_steps):
        optimizer.zero_grad()
        with monitor.autocast():
            loss = model(torch.full((2, 4), 1.0 + step)).float().square().mean()
        monitor.step(loss)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param({"clip": -1}, "clip must be positive, got -1", id="negative threshold"),
        pytest.param({"clip": 0.0}, "clip must be positive, got 0.0", id="threshold zero"),
        pytest.param({"clip": math.nan}, "clip must be positive, got nan", id="threshold NaN"),
        pytest.param({"clip": "1"}, "clip must be a positive number, got '1'", id="threshold as text"),
        pytest.param({"clip": True}, "clip must be a positive number, got True", id="a truth as threshold"),
        pytest.param({"precision": "fp8"}, "precision must be one of fp32, bf16, fp16, got 'fp8'", id="precision"),
        pytest.param({"precision": ["fp16"]}, "precision must be one of fp32, bf16, fp16, got ['fp16']", id="list"),
        pytest.param({"layer_every": 0}, "layer_every must be a whole number from 1 on, got 0", id="layer_every 0"),
        pytest.param({"layer_every": 1.5}, "layer_every must be a whole number from 1 on, got 1.5", id="half a layer"),
        pytest.param({"layer_every": True}, "layer_every must be a whole number from 1 on, got True", id="truth"),
        pytest.param(
            {"stream": ""},
            "no part between slashes '.' or '..', got ''",
            id="stream without name",
        ),
        pytest.param(
            {"stream": 3},
            "stream must be a text of 1 to 256 characters, none a control character, and",
            id="stream by number",
        ),
        pytest.param({"stream": "a\0b"}, "got 'a\\x00b'", id="NUL in a stream"),
        pytest.param({"stream": "a\nb"}, "got 'a\\nb'", id="two lines in a stream"),
        pytest.param({"stream": ".."}, "got '..'", id="a way up as a stream"),
        pytest.param({"stream": "a/./b"}, "got 'a/./b'", id="a dot between slashes in a stream"),
        pytest.param(
            {"clip": gradsight.Groups({"../*": gradsight.GlobalNorm(1.0)})}, "the pattern '../*'", id="pattern up"
        ),
        pytest.param({"stream": "\ud800x"}, "got '\\ud800x'", id="half a surrogate pair in a stream"),
        pytest.param(
            {"clip": gradsight.Groups({"*" * 252: gradsight.GlobalNorm(1.0)})},
            "the stream of the pattern '***",
            id="long pattern",
        ),
        pytest.param(
            {"clip": gradsight.Groups({"*\0": gradsight.GlobalNorm(1.0)})},
            r"the pattern '*\x00'",
            id="NUL in a pattern",
        ),
        pytest.param({"run": "x"}, "run must be a gradsight.Run or None, got 'x'", id="run by name"),
        pytest.param({"fused": "yes"}, "fused must be True or False, got 'yes'", id="fused"),
        pytest.param({"skip_nonfinite": "no"}, "skip_nonfinite must be True or False, got 'no'", id="skip_nonfinite"),
        pytest.param({"update_scaler": 1}, "update_scaler must be True or False, got 1", id="update_scaler"),
        pytest.param(
            {"loss_scale": 1024.0}, "loss_scale must be left out with precision 'fp32', got 1024.0", id="scale"
        ),
        pytest.param({"precision": "bf16", "loss_scale": torch.amp.GradScaler("cpu")}, "loss_scale must", id="scaler"),
        pytest.param(
            {"precision": "fp16", "loss_scale": -1.0},
            "loss_scale must be positive and finite, got -1.0",
            id="bad scale",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments: dict[str, Any], told: str) -> None:
    model = small_model()
    with pytest.raises(ConfigurationError) as refused:
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), **arguments)
    assert told in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_a_pattern_may_be_as_long_as_its_streams_name_allows() -> None:
    model = small_model()
    clip = gradsight.Groups({"*" * 251: gradsight.GlobalNorm(1.0)})
    gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), clip=clip)
    with pytest.raises(ConfigurationError, match="got 'long/"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), clip=clip, stream="long" + "/" * 9)


@pytest.mark.parametrize("exclude", [("\ud800",), ("x" * 4096,)])
def test_a_policy_that_no_server_takes_is_refused_where_it_would_be_sent(
    run: gradsight.Run, exclude: tuple[str, ...]
) -> None:
    model = small_model()
    many = gradsight.Groups({"0.*": gradsight.UnitNorm(exclude=exclude), "*": gradsight.GlobalNorm(1.0)})
    with pytest.raises(ConfigurationError, match="clip must be what a server takes"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run, clip=many)


def test_parameters_without_names_are_refused() -> None:
    model = small_model()
    wanted = r"model must be a module or \(name, parameter\) pairs, got "
    for given, told in [
        (model.parameters(), "Parameter of shape"),
        ("model", "'m'"),
        (3, "3"),
        ([("w", 1.0)], r"\('w'"),
    ]:
        with pytest.raises(ConfigurationError, match=wanted + told):
            gradsight.Monitor(given, SGD(model.parameters(), lr=0.1))  # type: ignore[arg-type]


def test_an_optimizer_of_another_model_is_refused() -> None:
    other = SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match=r"optimizer must hold the model's parameters, got 2 .*\(2, 3\)"):
        gradsight.Monitor(small_model(), other)


def test_an_optimizer_with_a_foreign_parameter_is_refused() -> None:
    model = small_model()
    optimizer = SGD([*model.parameters(), nn.Parameter(torch.zeros(7))], lr=0.1)
    with pytest.raises(ConfigurationError, match=r"got 1 .*\(7,\)"):
        gradsight.Monitor(model, optimizer)


def test_a_meta_parameter_is_refused_by_name() -> None:
    model = nn.Linear(2, 1, device="meta")
    with pytest.raises(ConfigurationError, match="got meta tensor 'weight'"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1))


def test_a_finished_run_takes_no_monitor(run: gradsight.Run) -> None:
    run.finish()
    model = small_model()
    with pytest.raises(ClosedError, match="run must not be finished"):
        gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run)


def test_every_step_is_recorded_with_its_norm_threshold_and_ratio(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.01)
    train(gradsight.Monitor(model, optimizer, run=run, clip=0.5), model, optimizer, 30)
    transport = sent(run)
    recorded = rows(transport)
    assert recorded["step"] == list(range(30))
    for norm, coef in zip(recorded["grad_norm_before_clip"], recorded["clip_coef"], strict=True):
        assert isinstance(norm, float)
        assert coef == pytest.approx(min(1.0, 0.5 / (norm + 1e-6)))
    assert recorded["max_norm"] == [0.5] * 30
    assert recorded["lr"] == [0.01] * 30
    assert recorded["skipped"] == [False] * 30
    assert recorded["loss_scale"] == [None] * 30
    assert all(isinstance(loss, float) and loss > 0 for loss in recorded["loss"])
    assert all(isinstance(time, float) and 0 <= time < 10 for time in recorded["hook_time_s"])


def test_the_recorded_loss_is_what_it_was_at_the_step(run: gradsight.Run) -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run)
    loss = model(torch.ones(2, 4)).square().mean()
    expected = float(loss.detach())
    monitor.step(loss)
    loss.detach().add_(100.0)  # an average over ranks in place, say
    assert rows(sent(run))["loss"] == [pytest.approx(expected)]


def test_layer_norms_are_a_row_per_step_and_make_up_the_total(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.01)
    train(gradsight.Monitor(model, optimizer, run=run, layer_every=2), model, optimizer, 6)
    transport = sent(run)
    norms = dict(layer_rows(transport))
    assert sorted(norms) == [0, 2, 4]
    totals = rows(transport)["grad_norm_before_clip"]
    for step, layers in norms.items():
        assert math.hypot(*layers) == pytest.approx(totals[step], rel=1e-6)
    layers_sent = [batch.layers for _, _, batch in transport.batches if batch.layers is not None]
    assert layers_sent[0] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_norms_are_recorded_unscaled(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.0)
    train(gradsight.Monitor(model, optimizer, run=run, precision="fp16", loss_scale=256.0), model, optimizer, 1)
    transport = sent(run)
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    expected = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
    assert rows(transport)["grad_norm_before_clip"][0] == pytest.approx(expected, rel=1e-2)
    assert rows(transport)["loss_scale"] == [256.0]
    assert math.hypot(*layer_rows(transport)[0][1]) == pytest.approx(expected, rel=1e-2)


def test_layers_without_a_gradient_are_counted_and_marked(run: gradsight.Run) -> None:
    linears = [nn.Linear(4, 1) for _ in range(3)]
    experts = nn.ModuleList(linears)
    optimizer = SGD(experts.parameters(), lr=0.1)
    monitor = gradsight.Monitor(experts, optimizer, run=run)
    optimizer.zero_grad()
    monitor.step(linears[1](torch.ones(2, 4)).sum())
    transport = sent(run)
    assert rows(transport)["num_layers_without_grad"] == [4]
    norms = layer_rows(transport)[0][1]
    assert [norm == -1.0 for norm in norms] == [True, True, False, False, True, True]
    assert linears[0].weight.grad is None


def test_tied_weights_are_one_layer_with_both_names(run: gradsight.Run) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    monitor.step(model(torch.ones(1, 4)).sum())
    transport = sent(run)
    assert transport.batches[0][2].layers == [["0.weight", "1.weight"]]
    assert len(layer_rows(transport)[0][1]) == 1


def test_a_step_without_a_gradient_is_a_step_with_a_reason(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0)
    result = monitor.step()
    assert (result.skipped, result.skip_reason, result.grad_norm_before_clip) == (True, "no_gradient", None)
    loss = model(torch.ones(2, 4)).sum()
    assert monitor.step(loss).skipped is False
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert monitor.step().skip_reason == "no_gradient"  # the old gradients are still there, and not applied again
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert rows(sent(run))["skip_reason"] == ["no_gradient", None, "no_gradient"]


def test_a_backward_of_the_users_own_counts_as_one() -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()  # without zero_grad: gradients pile up in place
        assert monitor.step().skipped is False


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_nonfinite_step_is_skipped_without_scaling_too(precision: Any, run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run, precision=precision, clip=1.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    result = monitor.step(model(torch.ones(2, 4)).sum() * math.nan)
    assert (result.skipped, result.skip_reason, result.clip_coef) == (True, "nonfinite", None)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    recorded = rows(sent(run))
    assert recorded["num_nonfinite_layers"] == [4]
    assert recorded["nonfinite_kind"] == ["nan"]


def test_the_guard_can_be_turned_off() -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), skip_nonfinite=False, clip=1.0)
    result = monitor.step(model(torch.ones(2, 4)).sum() * math.nan)
    assert result.skipped is False
    assert all(parameter.isnan().any() for parameter in model.parameters())


def test_the_first_nonfinite_layer_is_the_first_in_backward_order(run: gradsight.Run) -> None:
    linears = [nn.Linear(2, 2, bias=False) for _ in range(4)]
    model = nn.Sequential(*linears)
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    monitor.step(model(torch.ones(1, 2)).sum())
    linears[2].weight.register_hook(lambda grad: grad * math.inf)  # type: ignore[no-untyped-call]
    linears[0].weight.register_hook(lambda grad: grad * math.nan)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    monitor.step(model(torch.ones(1, 2)).sum())
    recorded = rows(sent(run))
    assert recorded["first_nonfinite_layer"] == [None, "2.weight"]
    assert recorded["num_nonfinite_layers"] == [0, 2]
    assert recorded["nonfinite_kind"] == [None, "nan+inf"]


def test_infinite_max_norm_measures_without_clipping(run: gradsight.Run) -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run, clip=math.inf)
    result = monitor.step(model(torch.ones(2, 4)).sum())
    assert (result.max_norm, result.clip_coef) == (None, 1.0)
    assert rows(sent(run))["max_norm"] == [None]


def test_two_monitors_share_a_scaler_that_is_updated_once() -> None:
    generator, discriminator = small_model(), small_model()
    optimizers = [SGD(model.parameters(), lr=0.01) for model in (generator, discriminator)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    first = gradsight.Monitor(
        generator, optimizers[0], stream="generator", precision="fp16", loss_scale=scaler, update_scaler=False
    )
    second = gradsight.Monitor(
        discriminator, optimizers[1], stream="discriminator", precision="fp16", loss_scale=first.scaler or "dynamic"
    )
    for _ in range(4):
        results = []
        for monitor, model in ((first, generator), (second, discriminator)):
            with monitor.autocast():
                loss = model(torch.ones(2, 4)).float().sum()
            results.append(monitor.step(loss))
        assert results[0].loss_scale == results[1].loss_scale
    assert scaler.get_scale() == 4096.0


def test_lbfgs_takes_a_closure_and_is_one_step(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    monitor = gradsight.Monitor(model, optimizer, run=run)
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (model(torch.ones(2, 4)) - 3.0).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        return loss

    monitor.step(closure=closure)
    recorded = rows(sent(run))
    assert recorded["step"] == [0]
    assert recorded["loss"] == [pytest.approx(losses[0])]
    assert len(losses) > 1
    assert losses[-1] < losses[0]


def test_a_closure_that_is_no_function_or_comes_with_a_loss_is_refused() -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1))
    loss = model(torch.ones(2, 4)).sum()
    wrong: list[dict[str, Any]] = [{"closure": 3}, {"loss": loss, "closure": lambda: loss}]
    for arguments in wrong:
        with pytest.raises(ConfigurationError, match="closure must be a function, given without a loss"):
            monitor.step(**arguments)
    assert monitor.num_steps == 0


def test_a_closure_with_loss_scaling_is_refused() -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), precision="fp16")
    with pytest.raises(ConfigurationError, match="closure must be None with loss scaling"):
        monitor.step(closure=lambda: None)


def test_a_parameter_added_later_is_watched(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model[0].parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    monitor.step(model(torch.ones(2, 4)).sum())
    optimizer.add_param_group({"params": list(model[2].parameters())})
    optimizer.zero_grad()
    monitor.step(model(torch.ones(2, 4)).sum())
    transport = sent(run)
    assert [len(norms) for _, norms in layer_rows(transport)] == [2, 4]


def test_state_goes_on_where_it_was_and_another_policy_is_refused() -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, precision="fp16", clip=1.0)
    train(monitor, model, optimizer, 3)
    state = monitor.state_dict()
    resumed = gradsight.Monitor(model, optimizer, precision="fp16", clip=1.0)
    resumed.load_state_dict(state)
    assert resumed.num_steps == 3
    assert resumed.state_dict() == state
    other = gradsight.Monitor(model, optimizer, precision="fp16", clip=2.0)
    with pytest.raises(ConfigurationError, match=r"global_norm\(2.0\).*global_norm\(1.0\)"):
        other.load_state_dict(state)
    assert other.num_steps == 0


def test_telemetry_that_fails_is_counted_and_training_goes_on(
    run: gradsight.Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)

    def broken(*_: object) -> None:
        raise RuntimeError("the telemetry side is broken")

    monkeypatch.setattr(run, "_record", broken)
    train(monitor, model, optimizer, 2)
    assert monitor.num_steps == 2
    assert run.num_dropped == {"hook_error": 2}
    assert capfd.readouterr() == ("", "")


def test_a_closed_monitor_still_steps_and_records_nothing(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    train(monitor, model, optimizer, 1)
    monitor.close()
    monitor.close()
    train(monitor, model, optimizer, 1)
    assert rows(sent(run))["step"] == [0]
