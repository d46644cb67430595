"""Per-tensor and total gradient norms, accumulated in float32 or wider.

Shapes: L layers (parameter tensors) that have a gradient. All norms are of the gradients as they stand in `.grad`:
scaled, when the backward was.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Scalar = float | Tensor
"""A float on the host, or a 0-dim float64 tensor nobody has waited for."""

LONG_CPU_TENSOR = 131_072
"""Above this many elements a float32 norm on the CPU is off by more than 1e-6 (pytorch#68326): take it in rows. Below,
rows would cost more than the drift is worth; it is 1e-4 at most, where all elements are equal and round the same way.
"""
ROW_LENGTH = 1024
"""With rows twice as long equal elements are past 1e-6 again."""
LONG_FOR_OTHER_NORMS, ROW_LENGTH_FOR_OTHER_NORMS = 2048, 256
"""Norms other than L2 drift sooner: equal elements are off by up to 4e-6, others by less than 1e-6."""
DEVICES_WITH_WIDE_NORMS = frozenset({"cuda"})
"""Where a kernel that is waiting for memory adds up in float64 at no cost. Nothing can be read there to tell finite
gradients with a huge norm from an overflow, and in float64 their squares do not overflow."""


@torch.no_grad()
def layer_norms(grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """The p-norm of each gradient.

    Args:
        grads: L gradients on one device, any shapes and dtypes, dense or sparse (never densified, never changed).
        norm_type: p, `inf` for the largest absolute value.

    Returns:
        Tensor [L], float32 (float64 where a gradient is, or is long, and on CUDA), on the gradients' device. No host
        sync.
    """
    plain = [_as_measurable(grad, norm_type) for grad in grads]
    is_wide = plain[0].device.type in DEVICES_WITH_WIDE_NORMS or any(grad.dtype == torch.float64 for grad in plain)
    dtype = torch.float64 if is_wide else torch.float32
    longest = LONG_CPU_TENSOR if norm_type == 2.0 else LONG_FOR_OTHER_NORMS
    long = [] if math.isinf(norm_type) else [i for i, grad in enumerate(plain) if _is_long_on_cpu(grad, longest)]
    if not long:
        return torch.stack(torch._foreach_norm(plain, norm_type, dtype=dtype))
    found = dict(zip(long, _norms_by_rows([plain[index] for index in long], norm_type), strict=True))
    short = [index for index in range(len(plain)) if index not in found]
    if short:
        norms = torch._foreach_norm([plain[index] for index in short], norm_type, dtype=dtype)
        found.update(zip(short, norms, strict=True))
    return torch.stack([found[index] for index in range(len(plain))])


def layer_norms_on_host(grads: Sequence[Tensor], norm_type: float = 2.0) -> list[float]:
    """The same as L floats, for gradients on any devices; a float32 norm that overflowed over finite elements is
    taken again in float64, so that a value is non-finite exactly where a gradient has a non-finite element."""
    values: list[float] = []
    by_device: dict[torch.device, list[int]] = {}
    for index, grad in enumerate(grads):
        by_device.setdefault(grad.device, []).append(index)
    if len(by_device) == 1:
        values = layer_norms(grads, norm_type).tolist()
    else:
        values = [0.0] * len(grads)
        for indices in by_device.values():
            norms = layer_norms([grads[index] for index in indices], norm_type).tolist()
            for index, norm in zip(indices, norms, strict=True):
                values[index] = norm
    for index, value in enumerate(values):
        if not math.isfinite(value):
            values[index] = exact_norm(grads[index], norm_type)
    return values


class HostMeter:
    """`layer_norms_on_host` for the same layers step after step. Whether their gradients are of the plain kind, which
    one kernel measures as they are, is looked at once; should they change, that kernel raises and all is looked at."""

    def __init__(self) -> None:
        self._plain: tuple[Sequence[str], float] | None = None

    def __call__(self, names: Sequence[str], grads: Sequence[Tensor], norm_type: float) -> list[float]:
        """Norms [L] as floats; `names` is the same object as long as the same layers have a gradient."""
        if self._plain is not None and self._plain[0] is names and self._plain[1] == norm_type:
            try:
                with torch.no_grad():
                    norms = torch.stack(torch._foreach_norm(list(grads), norm_type, dtype=torch.float32))
                values: list[float] = norms.tolist()
                if math.isfinite(sum(values)):
                    return values
            except (RuntimeError, NotImplementedError):
                self._plain = None
        values = layer_norms_on_host(grads, norm_type)
        self._plain = (names, norm_type) if all(_is_plain(grad, grads[0].device, norm_type) for grad in grads) else None
        return values


def norm_of(norms: Sequence[float] | Tensor, norm_type: float = 2.0) -> Scalar:
    """The p-norm of layers' norms: a float of floats, a 0-dim float64 tensor of a tensor [L]."""
    if isinstance(norms, Tensor):
        return total_norm_on_device(norms, norm_type)
    return total_norm(norms, norm_type)


def total_norm(values: Sequence[float], norm_type: float = 2.0) -> float:
    """The p-norm of the layers' norms, combined in float64 on the host."""
    if norm_type == 2.0:
        return math.hypot(*values)
    if math.isinf(norm_type):
        return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)
    largest = math.nan if any(map(math.isnan, values)) else max(values, default=0.0)
    if not 0.0 < largest < math.inf:
        return largest
    try:  # relative to the largest, since the power of a norm may be past what a float holds
        return float(largest * math.fsum((value / largest) ** norm_type for value in values) ** (1.0 / norm_type))
    except OverflowError:
        return math.inf


def total_norm_on_device(norms: Tensor, norm_type: float = 2.0) -> Tensor:
    """The same on the device: norms [L] float32 in, 0-dim float64 out. No host sync."""
    if math.isinf(norm_type):
        return norms.double().amax() if norms.numel() else norms.new_zeros((), dtype=torch.float64)
    total: Tensor = torch.linalg.vector_norm(norms.double(), norm_type)
    return total


@torch.no_grad()
def exact_norm(grad: Tensor, norm_type: float = 2.0) -> float:
    """One gradient's norm in float64: slow, for the rare one whose float32 norm is not finite."""
    wide = _as_measurable(grad, norm_type).double()
    largest = float(wide.abs().amax())
    if not 0.0 < largest < math.inf:
        return largest
    return largest * float(torch.linalg.vector_norm(wide / largest, norm_type))


def _as_measurable(grad: Tensor, norm_type: float) -> Tensor:
    """What a norm kernel takes and what has the same norm: coalesced values, real numbers, at least one element."""
    if grad.layout != torch.strided:
        grad = grad.coalesce().values()
    if grad.is_complex():
        grad = torch.view_as_real(grad.resolve_conj()) if norm_type == 2.0 else grad.abs()
    return grad if grad.numel() else grad.new_zeros(1)


def _is_plain(grad: Tensor, device: torch.device, norm_type: float) -> bool:
    longest = LONG_CPU_TENSOR if norm_type == 2.0 else LONG_FOR_OTHER_NORMS
    is_short = math.isinf(norm_type) or not _is_long_on_cpu(grad, longest)
    is_narrow = grad.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return is_short and is_narrow and grad.layout == torch.strided and grad.device == device and grad.numel() > 0


def _is_long_on_cpu(grad: Tensor, long: int) -> bool:
    return grad.numel() > long and grad.device.type == "cpu" and grad.dtype != torch.float64


def _norms_by_rows(grads: Sequence[Tensor], norm_type: float) -> Sequence[Tensor]:
    """p-norms of gradients that are all longer than a row, float64: the norms of their rows, combined."""
    length = ROW_LENGTH if norm_type == 2.0 else ROW_LENGTH_FOR_OTHER_NORMS
    flats = [grad.reshape(-1).contiguous() for grad in grads]
    rows: list[Tensor] = [
        torch.linalg.vector_norm(flat.unfold(0, length, length), norm_type, dim=1, dtype=torch.float32)
        for flat in flats
    ]
    ends = [flat[len(norms) * length :] for flat, norms in zip(flats, rows, strict=True)]
    of_ends = torch.stack(torch._foreach_norm(ends, norm_type, dtype=torch.float32)).double()
    wide = torch.split(torch.cat(rows).double(), [len(norms) for norms in rows])
    of_rows = torch.stack(torch._foreach_norm(wide, norm_type))
    both: Tensor = torch.linalg.vector_norm(torch.stack((of_rows, of_ends)), norm_type, dim=0)
    return both.unbind()
