"""Norms against torch's own, against hand values, and by invariant."""

import math

import pytest
import torch
from torch import Tensor

from gradsight.norms import HostMeter, layer_norms, layer_norms_on_host, total_norm, total_norm_on_device


def test_norms_of_hand_values() -> None:
    grads = [torch.tensor([3.0, 4.0]), torch.tensor([0.0, 12.0, 0.0])]
    assert layer_norms_on_host(grads) == [5.0, 12.0]
    assert total_norm([5.0, 12.0]) == 13.0
    assert total_norm(layer_norms_on_host(grads, math.inf), math.inf) == 12.0
    assert total_norm(layer_norms_on_host(grads, 1.0), 1.0) == 19.0


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_the_total_is_torchs_total_on_host_and_device(norm_type: float) -> None:
    torch.manual_seed(0)
    grads = [torch.randn(7, 5), torch.randn(300), torch.randn(())]
    expected = float(torch.nn.utils.get_total_norm(grads, norm_type))
    assert total_norm(layer_norms_on_host(grads, norm_type), norm_type) == pytest.approx(expected, rel=2e-6)
    on_device = total_norm_on_device(layer_norms(grads, norm_type), norm_type)
    assert on_device.dtype == torch.float64
    assert float(on_device) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("numel", [131_073, 1_000_000, 10_000_019])
def test_long_tensors_on_the_cpu_are_right_to_one_in_a_million(numel: int) -> None:
    torch.manual_seed(0)
    random = torch.randn(numel)
    grads = [random, random * torch.logspace(-15, 5, numel), torch.full((numel,), 0.1), torch.full((numel,), 1.23e-4)]
    for grad, norm in zip(grads, layer_norms_on_host(grads), strict=True):
        assert norm == pytest.approx(float(grad.double().norm()), rel=1e-6)


def test_a_hundred_million_equal_elements_have_their_norm() -> None:
    grad = torch.full((100_000_000,), 0.1, dtype=torch.float16)  # half the memory, same kernel
    assert layer_norms_on_host([grad])[0] == pytest.approx(float(grad[0]) * 1e4, rel=1e-6)


def test_a_long_gradient_that_is_one_element_expanded_has_its_norm() -> None:
    grad = torch.full((1,), 0.1).expand(1000, 1000)
    assert layer_norms_on_host([grad])[0] == pytest.approx(float(grad[0, 0]) * 1e3, rel=1e-6)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0])
def test_a_lone_spike_at_the_end_of_a_long_tensor_is_seen(norm_type: float) -> None:
    grad = torch.full((300_001,), 1e-4)
    grad[-1] = 50.0
    exact = float(torch.linalg.vector_norm(grad.double(), norm_type))
    assert layer_norms_on_host([grad], norm_type)[0] == pytest.approx(exact, rel=1e-6 if norm_type == 2.0 else 4e-6)
    grad[-1] = math.nan
    assert math.isnan(layer_norms_on_host([grad], norm_type)[0])


def test_half_precision_is_measured_in_float32() -> None:
    grad = torch.full((10,), 6e4, dtype=torch.float16)
    assert layer_norms_on_host([grad])[0] == pytest.approx(6e4 * math.sqrt(10), rel=1e-3)
    assert layer_norms([grad]).dtype == torch.float32


def test_a_sparse_gradient_is_coalesced_first_and_not_changed() -> None:
    table = torch.nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 2])).sum().backward()
    grad = table.weight.grad
    assert grad is not None
    assert layer_norms_on_host([grad])[0] == pytest.approx(math.sqrt(3 * 4 + 3), rel=1e-6)
    assert not grad.is_coalesced()


def test_complex_and_empty_gradients_have_a_norm() -> None:
    grads = [torch.tensor([3 + 4j]), torch.zeros(0, 5), torch.tensor(12.0)]
    assert layer_norms_on_host(grads) == [5.0, 0.0, 12.0]
    assert layer_norms_on_host(grads, math.inf) == [5.0, 0.0, 12.0]


def test_mixed_dtypes_are_measured_together() -> None:
    grads: list[Tensor] = [torch.ones(4, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)]
    assert layer_norms_on_host(grads) == [2.0, 2.0, 2.0]


def test_a_norm_is_non_finite_only_where_an_element_is() -> None:
    huge = torch.full((4,), 1e30)  # finite, its sum of squares is past float32
    assert layer_norms_on_host([huge])[0] == pytest.approx(2e30, rel=1e-6)
    assert layer_norms_on_host([torch.tensor([1.0, math.inf])]) == [math.inf]
    assert math.isnan(layer_norms_on_host([torch.tensor([1.0, math.nan])])[0])
    assert math.isnan(total_norm([1.0, math.nan], math.inf))


def test_a_strided_gradient_has_the_norm_of_its_elements() -> None:
    torch.manual_seed(0)
    grad = torch.randn(700, 600).t()
    assert layer_norms_on_host([grad])[0] == pytest.approx(float(grad.double().norm()), rel=1e-6)


def test_the_meter_gives_the_same_norms_whatever_the_gradients_turn_into() -> None:
    torch.manual_seed(0)
    meter, names = HostMeter(), ["a", "b"]
    plain = [torch.randn(7), torch.randn(3, 2)]
    turned: list[list[Tensor]] = [
        plain,
        plain,
        [plain[0], torch.tensor([1.0, math.inf])],
        [torch.full((4,), 1e30), plain[1]],
        [plain[0].double(), plain[1]],
        plain,
        [plain[0], plain[1].to_sparse()],
        [torch.zeros(0), plain[1]],
        [torch.tensor([3 + 4j]), plain[1]],
        plain,
    ]
    for grads in turned:
        assert meter(names, grads, 2.0) == layer_norms_on_host(grads)
    assert meter(["b"], plain[1:], math.inf) == layer_norms_on_host(plain[1:], math.inf)
    assert meter(names, [torch.ones(200_000), plain[1]], 2.0) == layer_norms_on_host([torch.ones(200_000), plain[1]])
