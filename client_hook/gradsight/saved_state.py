"""The saved state of a monitor: looked at as a whole before anything goes on from it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradsight import arguments, control
from gradsight.clipping import Clipper
from gradsight.errors import ConfigurationError
from gradsight.policies import Policy
from gradsight.scaling import check_state

if TYPE_CHECKING:
    from torch.amp import GradScaler

NAMES = ("num_steps", "policy", "thresholds", "scaler")


def load(state: Any, *, policy: str | None, clipper: Clipper, scaler: "GradScaler | None") -> int:
    """Let a new clipper and the scaler go on from `state`; gives the number of steps.

    Raises:
        ConfigurationError: `state` is broken, or belongs to another policy or precision; the scaler is unchanged then.
    """
    if not isinstance(state, Mapping) or not {*NAMES} <= state.keys():
        got = sorted(map(str, state)) if isinstance(state, Mapping) else state
        raise ConfigurationError(f"state must be one of a monitor, with {', '.join(NAMES)}, got {got!r}.")
    if state["policy"] != policy:
        raise ConfigurationError(f"state must be of policy {policy!r}, got {state['policy']!r}.")
    num_steps = arguments.whole("num_steps", state["num_steps"], least=0)
    if (state["scaler"] is None) != (scaler is None):
        expected = "no scaler" if scaler is None else "a scaler"
        raise ConfigurationError(f"state must hold {expected} for this monitor, got {state['scaler']!r}.")
    if scaler is not None:
        check_state(scaler, state["scaler"])
    learners, thresholds = dict(clipper.learners()), state["thresholds"]
    if not isinstance(thresholds, Mapping) or thresholds.keys() != learners.keys():
        expected = ", ".join(learners) or "nothing"
        raise ConfigurationError(f"thresholds must hold the states of {expected}, got {thresholds!r:.200}.")
    for name, learner in learners.items():
        learner.load_state_dict(thresholds[name])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    return num_steps


def max_norms(state: Any, policy: Policy | None) -> dict[str | None, float]:
    """Thresholds that people had set while it trained; none in a state from before they could.

    Raises:
        ConfigurationError: they are none of this policy's. A state of another policy is for `load` to refuse.
    """
    is_of_policy = isinstance(state, Mapping) and state.get("policy") == (None if policy is None else str(policy))
    return control.checked(state.get("max_norms", {}), policy) if is_of_policy else {}
