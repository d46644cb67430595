"""What a server is told of a monitor's streams, beside their steps: what diagnosis needs to know."""

from typing import Literal

from torch.optim import Optimizer

from gradsight import door, wire
from gradsight.errors import ConfigurationError, WireError
from gradsight.policies import Groups, Policy


def stream_records(
    stream: str,
    optimizer: Optimizer,
    policy: Policy | None,
    *,
    precision: Literal["fp32", "bf16", "fp16"],
    scaler: str | None,
    num_parameters: int,
    allow_control: bool,
) -> dict[str, wire.StreamRecord]:
    """By name: of the stream, and of one for each group of a policy with groups."""
    policies = {stream: policy}
    if isinstance(policy, Groups):
        policies |= {f"{stream}/{pattern}": part for pattern, part in policy.policies.items()}
    return {
        name: wire.StreamRecord(
            optimizer=_optimizer(optimizer),
            policy=None if part is None else str(part),
            precision=precision,
            scaler=scaler,
            num_parameters=num_parameters,
            allow_control=allow_control,
        )
        for name, part in policies.items()
    }


def check_names(stream: str, policy: Policy | None) -> None:
    """
    Raises:
        ConfigurationError: the stream of a group would have a name that no server takes.
    """
    for pattern in policy.policies if isinstance(policy, Groups) else ():
        door.stream(f"{stream}/{pattern}", what=f"the stream of the pattern {pattern!r}")


def check_records(records: dict[str, wire.StreamRecord]) -> None:
    """
    Raises:
        ConfigurationError: the wire cannot carry them: a policy of very many groups, say.
    """
    try:
        wire.decode(wire.encode(wire.RunRecord(streams=records)), wire.RunRecord)
    except (WireError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"clip must be what a server takes: {error}.") from error


def _optimizer(optimizer: Optimizer) -> wire.Optimizer:
    group = optimizer.param_groups[0]
    betas, lr, momentum = group.get("betas"), group.get("lr"), group.get("momentum")
    return wire.Optimizer(
        class_name=type(optimizer).__name__,
        lr=None if lr is None else float(lr),
        betas=None if betas is None else [float(beta) for beta in betas],
        momentum=None if momentum is None else float(momentum),
    )
