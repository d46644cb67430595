"""Monitor: what a PyTorch training loop holds. Mixed precision, clipping, the optimizer step, and what was seen."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter, time
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from gradsight import wire
from gradsight.amp import AmpStep, LossScale, Outcome
from gradsight.errors import ClosedError, ConfigurationError
from gradsight.layers import BackwardOrder, Layers, Model
from gradsight.policies import GlobalNorm, as_policy, positive
from gradsight.reading import Reading
from gradsight.run import Run
from gradsight.seen import SeenStep

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class StepResult:
    """What one step did. On a GPU the values are read from the device when they are looked at, not before."""

    __slots__ = ("_reading", "step")

    def __init__(self, step: int, reading: Reading) -> None:
        self.step = step
        self._reading = reading

    @property
    def grad_norm_before_clip(self) -> float | None:
        """Norm of the unscaled gradients before clipping; None where there was no gradient."""
        return self._reading.values()["grad_norm_before_clip"]  # type: ignore[return-value]

    @property
    def max_norm(self) -> float | None:
        """The threshold in force; None without clipping."""
        return self._reading.values().get("max_norm")  # type: ignore[return-value]

    @property
    def clip_coef(self) -> float | None:
        """What the gradients were multiplied by, 1.0 where nothing was clipped; None where there was no gradient."""
        return self._reading.values().get("clip_coef")  # type: ignore[return-value]

    @property
    def loss_scale(self) -> float | None:
        """The scale this step's backward used; None without scaling."""
        return self._reading.values().get("loss_scale")  # type: ignore[return-value]

    @property
    def skipped(self) -> bool:
        """Whether the optimizer left the parameters as they were."""
        return bool(self._reading.values()["skipped"])

    @property
    def skip_reason(self) -> Literal["overflow", "nonfinite", "no_gradient", "user"] | None:
        return self._reading.values()["skip_reason"]  # type: ignore[return-value]

    def __repr__(self) -> str:
        names = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss_scale", "skipped", "skip_reason")
        return f"StepResult(step={self.step}, {', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class Monitor:
    """Runs one optimizer's steps with mixed precision and clipping, and streams what it saw to a run.

    Args:
        model: A module, or (name, parameter) pairs: the names are the layers' names.
        optimizer: Holds parameters of `model`, and no others.
        run: Where to record; None clips and scales without recording.
        stream: Name of this optimizer's series, for loops with several.
        precision: "fp32", "bf16" (autocast) or "fp16" (autocast and loss scaling).
        clip: A threshold, a policy, or None: no clipping.
        loss_scale: For fp16: "dynamic", a constant, or a GradScaler of your own.
        update_scaler: False on all but the last of the monitors that share a scaler.
        fused: False keeps the unscale-and-clip factor out of the optimizer's fused kernel; None uses it where it can.
        layer_every: Record per-layer norms every so many steps.
        skip_nonfinite: Skip a step with NaN or Inf gradients in fp32 and bf16 too.

    Raises:
        ConfigurationError: (a ValueError) names the argument that cannot be right, and its value.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        *,
        run: Run | None = None,
        stream: str = "main",
        precision: Literal["fp32", "bf16", "fp16"] = "fp32",
        clip: float | GlobalNorm | None = None,
        loss_scale: Literal["dynamic"] | float | GradScaler = "dynamic",
        update_scaler: bool = True,
        fused: bool | None = None,
        layer_every: int = 1,
        skip_nonfinite: bool = True,
    ) -> None:
        if precision not in PRECISIONS:
            raise ConfigurationError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}.")
        if not isinstance(layer_every, int) or layer_every < 1:
            raise ConfigurationError(f"layer_every must be a whole number from 1 on, got {layer_every!r}.")
        if not isinstance(stream, str) or not 1 <= len(stream) <= 256:
            raise ConfigurationError(f"stream must be a name of 1 to 256 characters, got {stream!r}.")
        if not isinstance(optimizer, Optimizer):
            raise ConfigurationError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}.")
        self.policy = as_policy(clip)
        self.precision = precision
        self.stream = stream
        self.num_steps = 0
        self._optimizer = optimizer
        self._layers = Layers(model, optimizer)
        scaling = _scaling(precision, loss_scale, self._layers.device.type)
        self._loss_scale = LossScale(scaling, update=update_scaler)
        self._amp = AmpStep(optimizer, self._loss_scale, fused=fused is not False, skip_nonfinite=skip_nonfinite)
        self._layer_every = layer_every
        self._loss: Tensor | None = None
        self._has_backward = False
        self._witness: tuple[ref[Tensor], int] | None = None
        self._backward_order: BackwardOrder | None = None
        self._last_end: float | None = None
        self._run = run if run is not None and run.is_recording else None
        if run is not None and run.is_finished:
            raise ClosedError(f"run must not be finished, got {run!r}.")
        if self._run is not None:
            self._run._declare_stream(stream, self._stream_record(), num_layers=len(self._layers.layer_set))

    @property
    def scaler(self) -> GradScaler | None:
        """The GradScaler in use, to share with another monitor; None without dynamic loss scaling."""
        return self._loss_scale.scaler

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for the forward pass: autocast to the monitor's precision, nothing for fp32."""
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(self._layers.device.type, dtype=dtype)

    def backward(self, loss: Tensor) -> None:
        """Backward of the scaled loss. For accumulation call it k times with `loss / k`, then `step()`."""
        seen = loss.detach()
        self._loss = seen if self._loss is None else self._loss + seen
        self._has_backward = True
        first = self._backward_order is None
        if first:
            self._backward_order = BackwardOrder(self._layers.parameters)
        self._loss_scale.scaled(loss).backward()  # type: ignore[no-untyped-call]
        if first and self._backward_order is not None:
            self._backward_order.stop()

    def step(self, loss: Tensor | None = None, *, closure: Callable[[], Any] | None = None) -> StepResult:
        """One optimizer step: backward of `loss` where given, then measure, unscale, clip, step, update, record.

        Args:
            loss: 0-dim; leave it out after `backward`.
            closure: For optimizers that evaluate the loss themselves (LBFGS): clears the gradients, computes the
                loss, calls its backward and returns it. Every evaluation is clipped, the first one is recorded.

        Raises:
            ConfigurationError: a closure together with loss scaling, which torch has no step for.
        """
        if loss is not None:
            self.backward(loss)
        begin = perf_counter()
        self._layers.refresh()
        if closure is not None:
            present, outcome = self._step_with_closure(closure)
        else:
            present, grads = self._layers.gradients()
            if self._is_fresh(grads):
                outcome = self._amp.step(grads, self.policy)
                self._witness = (ref(grads[-1]), grads[-1]._version)
            else:
                present, outcome = [], None
        reading = Reading(outcome, loss=self._loss, lr=self._lr(), is_scaled=self._loss_scale.is_used)
        step = self.num_steps
        self.num_steps += 1
        self._loss, self._has_backward = None, False
        if self._run is not None:
            self._record(self._run, step, reading, present, begin, outcome.optimizer_time_s if outcome else 0.0)
        return StepResult(step, reading)

    def _step_with_closure(self, closure: Callable[[], Any]) -> tuple[list[int] | None, Outcome | None]:
        if self._loss_scale.is_used:
            raise ConfigurationError("closure must be None with loss scaling: torch's GradScaler takes none.")
        seen: list[tuple[list[int] | None, Outcome]] = []

        def clipped() -> Any:
            loss = closure()
            present, grads = self._layers.gradients()
            if grads:
                outcome = self._amp.clip(grads, self.policy)
                if not seen:
                    seen.append((present, outcome))
                    self._loss = loss.detach() if isinstance(loss, Tensor) else None
            return loss

        begin = perf_counter()
        self._optimizer.step(clipped)
        if not seen:
            return [], None
        present, outcome = seen[0]
        outcome.optimizer_time_s = perf_counter() - begin
        return present, outcome

    def _is_fresh(self, grads: list[Tensor]) -> bool:
        """Whether a backward has come since the last step: ours, or one that changed the gradients."""
        if not grads or self._has_backward or self._witness is None:
            return bool(grads)
        last, version = self._witness
        return last() is not grads[-1] or grads[-1]._version != version

    def _record(
        self, run: Run, step: int, reading: Reading, present: list[int] | None, begin: float, optimizer_time_s: float
    ) -> None:
        """Hand the step to the run. Whatever goes wrong here is counted and never reaches the training loop."""
        try:
            with_layers = step % self._layer_every == 0
            reading.start_copy(with_layers=with_layers)
            end = perf_counter()
            times = {
                "step_time_s": None if self._last_end is None else end - self._last_end,
                "hook_time_s": end - begin - optimizer_time_s,
            }
            self._last_end = end
            layer_set = self._layers.layer_set
            run._record(
                self.stream,
                SeenStep(step, time(), reading, times, layer_set, present, self._backward_order, with_layers),
            )
        except Exception as error:
            run._lost("hook_error", error)

    def _lr(self) -> float | Tensor | None:
        lr = self._optimizer.param_groups[0].get("lr")
        return lr.detach().clone() if isinstance(lr, Tensor) else lr

    def _stream_record(self) -> wire.StreamRecord:
        optimizer, group = self._optimizer, self._optimizer.param_groups[0]
        betas = group.get("betas")
        lr, momentum = group.get("lr"), group.get("momentum")
        return wire.StreamRecord(
            optimizer=wire.Optimizer(
                class_name=type(optimizer).__name__,
                lr=None if lr is None else float(lr),
                betas=None if betas is None else [float(beta) for beta in betas],
                momentum=None if momentum is None else float(momentum),
            ),
            policy=None if self.policy is None else str(self.policy),
            precision=self.precision,
            scaler=str(self._loss_scale) if self._loss_scale.is_used else None,
            num_parameters=self._layers.num_parameters,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs: the step count, the loss scale, the policy's text form, the run's id."""
        scaler = self._loss_scale.scaler
        return {
            "num_steps": self.num_steps,
            "policy": None if self.policy is None else str(self.policy),
            "scaler": None if scaler is None else scaler.state_dict(),
            "run_id": None if self._run is None else self._run.id,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            ConfigurationError: `state` belongs to another policy or precision; nothing is changed then.
        """
        policy = None if self.policy is None else str(self.policy)
        if state["policy"] != policy:
            raise ConfigurationError(f"state must be of policy {policy!r}, got {state['policy']!r}.")
        scaler = self._loss_scale.scaler
        if (state["scaler"] is None) != (scaler is None):
            raise ConfigurationError(
                f"state must {'not ' if scaler is None else ''}hold a scaler for {self.precision!r}."
            )
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
        self.num_steps = int(state["num_steps"])

    def close(self) -> None:
        """Stop recording; the run itself is the user's to finish. Closing twice is fine."""
        self._run = None


def _scaling(precision: str, loss_scale: Any, device_type: str) -> float | GradScaler | None:
    """Where the loss scale comes from: a constant, a GradScaler, or None."""
    if precision != "fp16":
        if loss_scale != "dynamic":
            raise ConfigurationError(f"loss_scale must be left out with precision {precision!r}, got {loss_scale!r}.")
        return None
    if loss_scale == "dynamic":
        return GradScaler(device_type)
    if isinstance(loss_scale, GradScaler):
        return loss_scale
    return positive("loss_scale", loss_scale)
