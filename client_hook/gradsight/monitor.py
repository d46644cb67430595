"""Monitor: what a PyTorch training loop holds. Mixed precision, clipping, the optimizer step, and what was seen."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from time import perf_counter, time
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from gradsight import arguments, control, door, saved_state, wire
from gradsight.alerts import Alert
from gradsight.amp import AmpStep, Outcome
from gradsight.control import Change, Control
from gradsight.described import check_names, check_records, stream_records
from gradsight.errors import ClosedError, ConfigurationError, TrainingStopped
from gradsight.freshness import Freshness
from gradsight.group_clipping import clipper_of
from gradsight.layers import BackwardOrder, Before, Layers, Model, are_finite
from gradsight.policies import Policy, as_policy
from gradsight.reading import Reading
from gradsight.result import StepResult
from gradsight.run import Run
from gradsight.sampling import Sample, Sampler
from gradsight.scaling import DynamicScale, LossScale, scaling
from gradsight.seen import SeenGroup, SeenStep, UnderflowTold
from gradsight.sharding import Shards, local, refuse, whole
from gradsight.thresholds import Threshold

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

T = TypeVar("T")


class _FirstNotFiniteError(Exception):
    """Leaves an optimizer's step before it has changed anything."""


class Gathered(NamedTuple):
    """The gradients of one step: of layers that are spread over ranks the local parts."""

    present: list[int] | None  # the layers that have a gradient; None: all
    names: list[str]
    parameters: list[Tensor]
    grads: list[Tensor]
    shards: Shards | None
    is_fresh: bool  # whether a backward has come since the last step


class Monitor:
    """Runs one optimizer's steps with mixed precision and clipping, and streams what it saw to a run.

    Args:
        model: A module, or (name, parameter) pairs: the names are the layers' names.
        optimizer: Holds parameters of `model`, and no others.
        run: Where to record; None clips and scales without recording.
        stream: Name of this optimizer's series, for loops with several.
        precision: "fp32", "bf16" (autocast) or "fp16" (autocast and loss scaling).
        clip: A threshold (a number, or one that moves), a policy, or None: no clipping.
        loss_scale: For fp16: "dynamic", a `DynamicScale`, a constant, or a GradScaler of your own.
        update_scaler: False on all but the last of the monitors that share a scaler.
        fused: False keeps the unscale-and-clip factor out of the optimizer's fused kernel; None uses it where it can.
        layer_every: Record per-layer norms every so many steps.
        skip_nonfinite: Skip a step with NaN or Inf gradients in fp32 and bf16 too.
        allow_control: Let people at the page change a fixed max_norm while this trains; on all ranks at the same step,
            for which each step then begins with one small broadcast.
        stop_on: Kinds of alerts, {"dead_run"} say: when one opens, the next `step` raises `TrainingStopped` before it
            changes anything. On the ranks that hear of alerts, which is rank 0 unless all record. Without a server
            only "nonfinite_burst" and "dead_run" are ever heard of.

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
        clip: float | Threshold | Policy | None = None,
        loss_scale: Literal["dynamic"] | float | DynamicScale | GradScaler = "dynamic",
        update_scaler: bool = True,
        fused: bool | None = None,
        layer_every: int = 1,
        skip_nonfinite: bool = True,
        allow_control: bool = False,
        stop_on: Collection[str] = (),
    ) -> None:
        arguments.one_of("precision", precision, PRECISIONS)
        layer_every = arguments.whole("layer_every", layer_every, least=1)
        update_scaler = arguments.truth("update_scaler", update_scaler)
        skip_nonfinite = arguments.truth("skip_nonfinite", skip_nonfinite)
        allow_control = arguments.truth("allow_control", allow_control)
        stop_on = arguments.alert_kinds("stop_on", stop_on)
        fused = None if fused is None else arguments.truth("fused", fused)
        door.stream(stream)
        if not isinstance(optimizer, Optimizer):
            raise ConfigurationError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}.")
        if run is not None and not isinstance(run, Run):
            raise ConfigurationError(f"run must be a gradsight.Run or None, got {run!r}.")
        if run is None and stop_on:
            raise ConfigurationError(f"stop_on must be left out without a run, which hears it, got {sorted(stop_on)}.")
        if run is not None and run.is_finished:
            raise ClosedError(f"run must not be finished, got {run!r}.")
        self.policy = self._asked_policy = as_policy(clip)
        check_names(stream, self.policy)
        self._control = Control(self.policy) if allow_control else None
        self._max_norms: dict[str | None, float] = {}  # that people have set, by pattern
        self._stop_on = stop_on
        self._alarm: Alert | None = None
        self.precision = precision
        self.stream = stream
        self.num_steps = 0
        """How many steps were attempted, skipped ones included."""
        self._optimizer = optimizer
        self._layers = Layers(model, optimizer)
        source = scaling(precision, loss_scale, self._layers.device.type)
        self._loss_scale = LossScale(source, update=update_scaler)
        self._clipper = clipper_of(self.policy, self._layers.all_names)
        refuse(self.policy, list(self._layers.all_names.values()), self._layers.parameters)
        self._amp = AmpStep(
            optimizer, self._loss_scale, self._clipper, fused=fused is not False, skip_nonfinite=skip_nonfinite
        )
        self._skip_nonfinite = skip_nonfinite
        self._layer_every = layer_every
        self._loss: Tensor | None = None
        self._has_backward = False
        self._freshness = Freshness()
        self._backward_order: BackwardOrder | None = None
        self._learns_order = True
        self._learned_for: list[int] | None = []  # the layers that were found to be missing in it last
        self._sampler = Sampler(is_fp16=precision == "fp16")
        self._last_end: float | None = None
        self._step_time_s: float | None = None
        self._told: set[str] = set()
        self._underflow_told = UnderflowTold()
        self._run = run if run is not None and run.is_recording else None
        if self._run is not None:
            records = self._stream_records()
            check_records(records)
            for name, record in records.items():
                self._run._declare_stream(name, record, num_layers=len(self._layers.layer_set))
            if self._control is not None:
                self._run._allow_control()
            if stop_on:
                self._run._hear(self._hear)
            self._tell_half_precision()

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
        if not isinstance(loss, Tensor):
            raise ConfigurationError(f"loss must be a tensor, got {loss!r}; a function goes to step(closure=…).")
        self._refresh()
        seen = whole(loss.detach()).clone()  # the user may go on with the loss in place
        learning = BackwardOrder(self._layers.parameters, self._backward_order) if self._learns_order else None
        try:
            self._loss_scale.scaled(loss).backward()  # type: ignore[no-untyped-call]
        finally:
            if learning is not None:
                learning.stop()
        if learning is not None:
            self._backward_order, self._learns_order = learning, False
        self._loss = seen if self._loss is None else self._loss + seen
        self._has_backward = True

    def step(self, loss: Tensor | None = None, *, closure: Callable[[], Any] | None = None) -> StepResult:
        """One optimizer step: backward of `loss` where given, then measure, unscale, clip, step, update, record.

        Args:
            loss: 0-dim; leave it out after `backward`.
            closure: For optimizers that evaluate the loss themselves (LBFGS): clears the gradients, computes the
                loss, calls its backward and returns it. Every evaluation is clipped; the first one is recorded, is
                what thresholds learn from, and where it is not finite the step is skipped. A step that ends in
                parameters that are not finite is taken back.

        Raises:
            ConfigurationError: a closure together with a loss, or with loss scaling, which torch has no step for; a
                loss that is no tensor.
            TrainingStopped: an alert named in `stop_on` has opened; nothing has been changed.
        """
        self._stop_if_alarmed()
        if closure is not None and (loss is not None or not callable(closure)):
            raise ConfigurationError(f"closure must be a function, given without a loss, got {closure!r}.")
        if closure is not None and self._loss_scale.is_used:
            raise ConfigurationError("closure must be None with loss scaling: torch's GradScaler takes none.")
        if loss is not None:
            self.backward(loss)
        begin = perf_counter()
        self._take_wish()
        if loss is None:  # else `backward` has done so
            self._refresh()
        if closure is not None:
            present, outcome = self._step_with_closure(closure)
            return self._finish(outcome, present, begin)
        present, names, parameters, grads, shards, is_fresh = self._gathered()
        if not is_fresh:
            self._loss_scale.update_without_step()
            return self._finish(None, [], begin)
        is_sampled = self._run is not None and bool(grads) and self._sampler.is_due(self.num_steps)
        if is_sampled:
            self._telemetry(self._sampler.before, parameters, grads)
        outcome = self._amp.step(names, parameters, grads, shards)
        sample = None
        if is_sampled:
            sample = self._telemetry(self._sampler.after, parameters, self.num_steps, self._step_time_s or 0.0)
        self._freshness.note(grads, had_backward=self._has_backward)
        return self._finish(outcome, present, begin, sample)

    def skip(self) -> StepResult:
        """Record this step as skipped by your own choice (a loss spike, say): measured, the scale updated, nothing
        applied, and no threshold learns from it. The gradients stay; clear them as always."""
        self._stop_if_alarmed()
        begin = perf_counter()
        self._take_wish()
        self._refresh()
        present, names, _, grads, shards, is_fresh = self._gathered()
        if not is_fresh:
            self._loss_scale.update_without_step()
            return self._finish(None, [], begin)
        outcome = self._amp.skip(names, grads, shards)
        self._freshness.note(grads, had_backward=self._has_backward)
        return self._finish(outcome, present, begin)

    def _hear(self, alert: Alert) -> None:
        """In another thread: the next step stops."""
        is_ours = alert.stream in (None, self.stream) or str(alert.stream).startswith(f"{self.stream}/")
        if alert.kind in self._stop_on and alert.state == "open" and is_ours:
            self._alarm = alert

    def _stop_if_alarmed(self) -> None:
        alert, self._alarm = self._alarm, None  # who catches it may go on, from a checkpoint say
        if alert is not None:
            raise TrainingStopped(alert)

    def _take_wish(self) -> None:
        """From this step on a threshold that a person asked for holds, on all ranks."""
        if self._control is None:
            return
        wish = None if self._run is None else self._run._wish(self.stream)
        refusal = None if wish is None else self._control.refusal(wish.pattern, wish.max_norm)
        asked = None if wish is None or refusal else Change(wish.pattern, wish.max_norm)
        change = self._control.agreed(asked)
        if change is not None:
            before = control.max_norm_of(self.policy, change.pattern)
            self._max_norms[change.pattern] = change.max_norm
            self._set_policy(control.changed(self._asked_policy, self._max_norms))
            if wish is not None and self._run is not None:
                of = "max_norm" if change.pattern is None else f"max_norm of {change.pattern}"
                said = f"{of} changed from {before:g} to {change.max_norm:g}"
                self._telemetry(self._answer_wish, self._run, "max_norm_changed", wish, said)
        elif wish is not None and refusal and self._run is not None:
            self._telemetry(self._answer_wish, self._run, "control_refused", wish, refusal)

    def _set_policy(self, policy: Policy | None) -> None:
        clipper = clipper_of(policy, self._layers.all_names)
        control.carry_over(self._clipper, clipper)
        self.policy, self._clipper, self._amp.clipper = policy, clipper, clipper

    def _answer_wish(self, run: Run, kind: str, wish: wire.Control, message: str) -> None:
        for name, record in self._stream_records().items():
            run._declare_stream(name, record, num_layers=len(self._layers.layer_set))
        run._log_event(kind, step=self.num_steps, message=message, stream=self.stream, control_id=wish.id or None)

    def _refresh(self) -> None:
        """Notice parameters the optimizer has got since; with the layers the order of the backward is learned anew."""
        if self._layers.refresh():
            self._backward_order, self._learns_order = None, True

    def _gathered(self) -> "Gathered":
        """The gradients of this step; those spread over ranks measured, which takes all ranks."""
        present, grads = self._layers.gradients()
        names, parameters = self._layers.having_gradients(present)
        sharding = self._layers.sharding
        if sharding is None:
            is_fresh = self._freshness.of(grads, had_backward=self._has_backward)
            return Gathered(present, names, parameters, grads, None, is_fresh)
        is_fresh = self._freshness.of(local(grads), had_backward=self._has_backward)
        shards = sharding.measure(present, grads, self._clipper.norm_type, is_fresh=is_fresh)
        return Gathered(present, names, shards.parameters, shards.grads, shards, shards.is_fresh)

    def _step_with_closure(self, closure: Callable[[], Any]) -> tuple[list[int] | None, Outcome | None]:
        seen: list[tuple[list[int] | None, Outcome]] = []

        def clipped() -> Any:
            loss = closure()
            present, names, parameters, grads, shards, _ = self._gathered()
            if grads or shards:
                outcome = self._amp.clip(names, parameters, grads, shards, is_first=not seen)
                if not seen:
                    first_loss.append(whole(loss.detach()).clone() if isinstance(loss, Tensor) else None)
                    seen.append((present, outcome))
                    if outcome.skipped:
                        raise _FirstNotFiniteError
            return loss

        first_loss: list[Tensor | None] = []
        before = Before(self._optimizer) if self._skip_nonfinite and self._layers.sharding is None else None
        begin = perf_counter()
        with suppress(_FirstNotFiniteError):
            self._optimizer.step(clipped)
        if not seen:
            return [], None
        self._loss = first_loss[0]
        present, outcome = seen[0]
        outcome.optimizer_time_s = perf_counter() - begin
        if before is not None and not outcome.skipped and not are_finite(self._layers.parameters):
            before.restore_()  # not where an evaluation was not finite: a line search comes back from those
            outcome.skipped = True
        return present, outcome

    def _finish(
        self, outcome: Outcome | None, present: list[int] | None, begin: float, sample: Sample | None = None
    ) -> StepResult:
        """Number the step, hand it to the run, give its result."""
        reading = Reading(outcome, loss=self._loss, lr=self._lr(), sample=sample)
        step = self.num_steps
        self.num_steps += 1
        self._loss, self._has_backward = None, False
        if self._run is not None:
            self._telemetry(self._record, self._run, step, reading, present, begin, outcome)
        return StepResult(step, reading)

    def _telemetry(self, work: Callable[..., T], *given: Any) -> T | None:
        """The boundary: what goes wrong on the telemetry side is counted and never reaches the training loop."""
        try:
            return work(*given)
        except Exception as error:
            if self._run is not None:
                self._run._lost("hook_error", error)
            return None

    def _record(
        self, run: Run, step: int, reading: Reading, present: list[int] | None, begin: float, outcome: Outcome | None
    ) -> None:
        reading.start_copy()
        end, now_s = perf_counter(), time()
        self._step_time_s = None if self._last_end is None else end - self._last_end
        self._last_end = end
        hook_time_s = end - begin - (outcome.optimizer_time_s if outcome else 0.0)
        times = {"step_time_s": self._step_time_s, "hook_time_s": hook_time_s}
        with_layers = step % self._layer_every == 0
        layer_set, order = self._layers.layer_set, self._backward_order
        seen = SeenStep(step, now_s, reading, times, layer_set, present, order, with_layers, self._underflow_told)
        run._record(self.stream, seen)
        if order is not None and present != self._learned_for and not order.covers(present):
            # Thawed since, or an expert that was not asked before.
            self._learned_for, self._learns_order = present, True
        if outcome is None:
            return
        for pattern in outcome.clip.groups:
            run._record(f"{self.stream}/{pattern}", SeenGroup(step, now_s, reading, pattern))
        if outcome.was_unscaled:
            message = "scaler.unscale_ was called before step: not needed, the gradients are taken as they are"
            self._tell_once("unscaled", step, message)

    def _tell_half_precision(self) -> None:
        """Parameters in fp16 have gradients in fp16: what loss scaling saved from underflow is lost in unscaling."""
        dtypes = [parameter.dtype for parameter in self._layers.parameters]
        num_half = dtypes.count(torch.float16)
        if num_half and self._loss_scale.is_used:
            what = f"{num_half} of {len(dtypes)} parameters are float16: loss scaling cannot unscale their gradients"
            self._tell_once("float16_parameters", None, f"{what} without loss; keep them in float32 under autocast")

    def _tell_once(self, kind: str, step: int | None, message: str) -> None:
        if self._run is not None and kind not in self._told:
            self._told.add(kind)
            self._run.log_event(kind, step=step, message=message, stream=self.stream)

    def _lr(self) -> float | Tensor | None:
        lr = self._optimizer.param_groups[0].get("lr")
        return lr.detach().clone() if isinstance(lr, Tensor) else lr

    def _stream_records(self) -> dict[str, wire.StreamRecord]:
        return stream_records(
            self.stream,
            self._optimizer,
            self.policy,
            precision=self.precision,
            scaler=str(self._loss_scale) if self._loss_scale.is_used else None,
            num_parameters=self._layers.num_parameters,
            allow_control=self._control is not None,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs: the step count, the loss scale, the policy and what it has learned."""
        scaler = self._loss_scale.scaler
        return {
            "num_steps": self.num_steps,
            "policy": None if self._asked_policy is None else str(self._asked_policy),
            "max_norms": dict(self._max_norms),
            "thresholds": {name: learner.state_dict() for name, learner in self._clipper.learners()},
            "scaler": None if scaler is None else scaler.state_dict(),
            "run_id": None if self._run is None else self._run.id,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`.

        Raises:
            ConfigurationError: `state` is broken, or belongs to another policy or precision; nothing is changed then.
        """
        asked = None if self._asked_policy is None else str(self._asked_policy)
        max_norms = saved_state.max_norms(state, self._asked_policy)
        policy = control.changed(self._asked_policy, max_norms)
        clipper = clipper_of(policy, self._layers.all_names)
        self.num_steps = saved_state.load(state, policy=asked, clipper=clipper, scaler=self._loss_scale.scaler)
        self.policy, self._max_norms = policy, max_norms
        self._clipper = self._amp.clipper = clipper

    def close(self) -> None:
        """Stop recording; the run itself is the user's to finish. Closing twice is fine."""
        self._run = None
