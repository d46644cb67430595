"""Run: what any framework holds. It names a training run, takes what is logged, and never gets in its way."""

import atexit
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

from gradsight import door, launch, wire
from gradsight.alerts import Alert
from gradsight.errors import ConfigurationError, ServerRefusedTokenError, TransportError
from gradsight.exporter import Exporter, Status
from gradsight.given_layers import NO_NORMS, GivenLayers
from gradsight.policies import clip_coef as clip_ratio
from gradsight.rows import Attempt, Resolvable, StepRow
from gradsight.transport import HttpTransport

DEFAULT_SERVER = "http://127.0.0.1:8420"
FIRST_CONTACT_S = 2.0
FINISH_WITHIN_S = 10.0
HEARTBEAT_WITH_CONTROL_S = 0.5
"""How soon a wish for another threshold is heard of, however slow the steps."""


class Run:
    """A training run: a name on the server, and a way there that never blocks, raises or prints while training.

    Args:
        project: The project it belongs to.
        name: What people call it; None takes the first digits of its id.
        config: Settings to show with it; values JSON cannot carry are shown as their repr.
        tags: Words to find it by.
        total_steps: How many optimizer steps are planned.
        server: Address of the service; `GRADSIGHT_SERVER`, else http://127.0.0.1:8420.
        token: `GRADSIGHT_TOKEN`, where the server asks for one.
        spool_dir: Where steps wait on disk for the server; `GRADSIGHT_SPOOL_DIR`, else `.gradsight`.
        resume: Id of the run this launch goes on with.
        mode: "online"; "offline" spools and never connects; "disabled" does nothing. `GRADSIGHT_MODE`.
        all_ranks: Record every rank of a distributed launch, not rank 0 alone (needs `GRADSIGHT_RUN_ID`).
        quiet: Leave out the one line on stderr.

    Raises:
        ConfigurationError: (a ValueError) names the argument that cannot be right, and its value.
    """

    def __init__(
        self,
        project: str = "default",
        name: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        total_steps: int | None = None,
        server: str | None = None,
        token: str | None = None,
        spool_dir: str | os.PathLike[str] | None = None,
        resume: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        all_ranks: bool = False,
        quiet: bool = False,
    ) -> None:
        rank, world_size = launch.place()
        self.id = door.run_id(resume, is_shared=all_ranks and world_size > 1)
        self.project = door.word("project", project)
        self.name = self.id[:8] if name is None else door.word("name", name)
        if server is not None:
            self.server = door.server(server)
        else:
            self.server = door.server(os.environ.get("GRADSIGHT_SERVER", DEFAULT_SERVER), what="GRADSIGHT_SERVER")
        self.spool_dir = door.folder("spool_dir", spool_dir or os.environ.get("GRADSIGHT_SPOOL_DIR") or ".gradsight")
        self.is_finished = False
        if token is not None:
            self._token = door.token(token)
        else:
            self._token = door.token(os.environ.get("GRADSIGHT_TOKEN"), what="GRADSIGHT_TOKEN")
        self._exporter: Exporter | None = None
        self._pid = os.getpid()
        self._layers = GivenLayers()
        self._metric_names: set[str] = set()
        self._last_stream = "main"
        record = wire.RunRecord(
            config=door.config(config),
            tags=door.words("tags", tags),
            total_steps=door.total_steps(total_steps),
            frameworks=door.frameworks(),
            world_size=world_size,
        )
        if resume is not None:  # what the first launch said of the run stays, where this one says nothing
            record = _said(record, config=config, tags=tags, total_steps=total_steps)
        if resume is None or name is not None:
            record.name = self.name
        if resume is None or project != "default":
            record.project = self.project
        chosen = mode or os.environ.get("GRADSIGHT_MODE") or "online"
        if chosen not in ("online", "offline", "disabled"):
            raise ConfigurationError(f"mode must be 'online', 'offline' or 'disabled', got {chosen!r}.")
        if chosen == "disabled" or (rank and not all_ranks):
            return
        attempt = Attempt(launch.new_attempt(self.id, all_ranks=all_ranks), time.time(), rank)
        if resume is None:
            record.started_at_s = attempt.started_at_s
        said = self._greet(record) if chosen == "online" else f"offline; {self._where_steps_wait()}"
        connect = (lambda: HttpTransport(self.server, self._token)) if chosen == "online" else None
        self._exporter = Exporter(self.id, attempt, self.spool_dir, connect)
        self._exporter.describe(record)
        atexit.register(self._at_exit)
        if not quiet and sys.stderr is not None:
            with suppress(OSError, ValueError):  # it may be closed
                print(f"gradsight: {said}", file=sys.stderr)

    def _greet(self, record: wire.RunRecord) -> str:
        """Introduce the run to the server; what to tell the user about it."""
        transport = HttpTransport(self.server, self._token)
        try:
            transport.put_run(self.id, wire.encode(record), timeout_s=FIRST_CONTACT_S)
            return self.url
        except ServerRefusedTokenError:
            return f"{self.server} wants a token (GRADSIGHT_TOKEN); {self._where_steps_wait()}"
        except TransportError as error:
            return f"{error}; {self._where_steps_wait()}"
        finally:
            transport.close()

    def _where_steps_wait(self) -> str:
        try:
            (self.spool_dir / "spool").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.spool_dir / "spool"):
                return f"spooling to {self.spool_dir} (send it later: gradsight sync)"
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return f"and {self.spool_dir} cannot be written ({reason}): steps are kept in memory, and lost at the end"

    @property
    def url(self) -> str:
        """Where to look at this run."""
        return f"{self.server}/runs/{self.id}"

    def show(self, height: int = 720) -> None:
        """Put this run's page into a notebook, live, `height` pixels high.

        Raises:
            ConfigurationError: there is no IPython here, so no notebook to show it in.
        """
        if isinstance(height, bool) or not isinstance(height, int) or height < 1:
            raise ConfigurationError(f"height must be a number of pixels from 1 on, got {height!r}.")
        try:
            from IPython.display import IFrame, display  # late: training needs none of it
        except ImportError:
            raise ConfigurationError(
                f"show() needs a notebook, and there is no IPython here: open {self.url} in a browser."
            ) from None
        display(IFrame(self.url, width="100%", height=height))

    @property
    def is_recording(self) -> bool:
        """Whether anything is recorded: not when disabled, nor on ranks that do not send."""
        return self._exporter is not None

    @property
    def num_dropped(self) -> dict[str, int]:
        """Rows lost so far in this process, by reason; empty when nothing was."""
        return self._exporter.dropped if self._exporter else {}

    def log_step(
        self,
        step: int,
        *,
        stream: str = "main",
        loss: float | None = None,
        lr: float | None = None,
        grad_norm_before_clip: float | None = None,
        max_norm: float | None = None,
        clip_coef: float | None = None,
        loss_scale: float | None = None,
        skipped: bool | None = None,
        layer_norms: Mapping[str, float | None] | None = None,
    ) -> None:
        """Record one optimizer step of any framework.

        Args:
            step: Counted from 0, skipped steps included.
            stream: Which optimizer.
            grad_norm_before_clip: Norm of the unscaled gradients before clipping.
            max_norm: The threshold in force.
            clip_coef: What gradients were multiplied by; worked out from norm and threshold where left out.
            loss_scale: The scale the backward of this step used.
            skipped: Whether the parameters were left as they were.
            layer_norms: Per layer, unscaled, before clipping; None, or left out, for a layer without a gradient.
        """
        if self._exporter is None:
            return
        try:
            if clip_coef is None and grad_norm_before_clip is not None and max_norm is not None:
                clip_coef = clip_ratio(door.number(grad_norm_before_clip), door.number(max_norm))
            given = {
                "loss": loss,
                "lr": lr,
                "grad_norm_before_clip": grad_norm_before_clip,
                "max_norm": max_norm,
                "clip_coef": clip_coef,
                "loss_scale": loss_scale,
            }
            columns: dict[str, Any] = {key: door.number(value) for key, value in given.items() if value is not None}
            door.norm("grad_norm_before_clip", columns.get("grad_norm_before_clip", 0.0))
            if skipped is not None:
                columns["skipped"] = door.truth("skipped", skipped)
            step, stream = door.step(step), door.stream(stream)
            layer_set, norms, is_whole = self._layers.norms(stream, layer_norms) if layer_norms else NO_NORMS
            self._record(stream, StepRow(step, time.time(), columns, layer_set, norms))
            if not is_whole:
                self._lost("too_many_layer_sets", None)
        except Exception as error:  # the boundary: a wrong value must not end a training
            self._lost("bad_value", error)

    def log_metrics(self, step: int, metrics: Mapping[str, float], *, stream: str = "main") -> None:
        """Record values of your own, a validation loss say; up to 32 different names in a run."""
        if self._exporter is None:
            return
        try:
            items = list(metrics.items())
        except Exception as error:  # the boundary: a wrong value must not end a training
            self._lost("bad_value", error)
            return
        for name, value in items:
            try:
                metric = self._metric(step, name, value)
                self._exporter.submit(door.stream(stream), metric, is_step=False)
            except Exception as error:  # one wrong value must not take the others along
                self._lost("bad_value", error)

    def _metric(self, step: int, name: str, value: float) -> wire.Metric:
        if name not in self._metric_names and len(self._metric_names) >= wire.MAX_METRIC_NAMES:
            raise ValueError(f"metrics must have at most {wire.MAX_METRIC_NAMES} names, the next is {name!r}")
        metric = wire.Metric(step=door.step(step), name=door.word("name", name), value=door.number(value))
        self._metric_names.add(name)
        return metric

    def log_event(self, kind: str, *, step: int | None = None, message: str = "", stream: str | None = None) -> None:
        """Record that something happened, "evaluation began" say; on the stream used last unless told which."""
        self._log_event(kind, step=step, message=message, stream=stream)

    def _log_event(
        self, kind: str, *, step: int | None, message: str, stream: str | None, control_id: int | None = None
    ) -> None:
        if self._exporter is None:
            return
        try:
            event = wire.Event(
                kind=door.word("kind", kind, most=64),
                step=None if step is None else door.step(step),
                message=door.text(message, most=4096),
                wall_time_s=time.time(),
                control_id=control_id,
            )
            on_stream = self._last_stream if stream is None else door.stream(stream)
            self._exporter.submit(on_stream, event, is_step=False)
        except Exception as error:  # the boundary: a wrong value must not end a training
            self._lost("bad_value", error)

    def on_alert(self, callback: Callable[[Alert], Any]) -> None:
        """Call back with each alert that opens, repeats or is over, in a thread of its own; what it raises is counted.

        The server's alerts come with its answers. Two come without a server too: a burst of non-finite gradients, and a
        run of which every step is. May be called several times; on ranks that do not send nothing ever comes.

        Raises:
            ConfigurationError: it cannot be called.
        """
        if not callable(callback):
            raise ConfigurationError(f"callback must be a function of one alert, got {callback!r}.")
        if self._exporter is not None:
            self._exporter.hearing.call(callback)

    def finish(self, status: Status = "finished") -> None:
        """Send what is left (for at most ten seconds; the rest stays spooled) and end the run. Twice is fine.

        Raises:
            ConfigurationError: a status other than "finished" or "failed".
        """
        if status not in ("finished", "failed"):
            raise ConfigurationError(f"status must be 'finished' or 'failed', got {status!r}.")
        if self.is_finished:
            return
        self.is_finished = True
        atexit.unregister(self._at_exit)
        if self._exporter is not None:
            if os.getpid() == self._pid:  # a forked child ends itself, not its parent's run
                self.log_event(status)
            try:
                self._exporter.close(timeout_s=FINISH_WITHIN_S)
            except Exception as error:  # the boundary: the training has ended well, whatever becomes of telemetry
                self._lost("close_error", error)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left_well = kind is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        self.finish("finished" if left_well else "failed")

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.name}, {self.url})"

    def _at_exit(self) -> None:
        # The interpreter has set this where it ends by an exception nobody caught.
        self.finish("failed" if getattr(sys, "last_value", None) is not None else "finished")

    def _hear(self, listener: Callable[[Alert], None]) -> None:
        if self._exporter is not None:
            self._exporter.hearing.listen(listener)

    def _allow_control(self) -> None:
        if self._exporter is not None:
            self._exporter.heartbeat_after_s = HEARTBEAT_WITH_CONTROL_S

    def _wish(self, stream: str) -> wire.Control | None:
        return None if self._exporter is None else self._exporter.hearing.wish(stream)

    def _declare_stream(self, stream: str, record: wire.StreamRecord, *, num_layers: int) -> None:
        if self._exporter is not None:
            update = wire.RunRecord(streams={stream: record}, frameworks=door.frameworks())
            self._exporter.describe(update, num_layers=num_layers)

    def _record(self, stream: str, row: Resolvable) -> None:
        if self._exporter is not None:
            self._last_stream = stream
            self._exporter.submit(stream, row)

    def _lost(self, reason: str, error: BaseException | None) -> None:
        if self._exporter is not None:
            self._exporter.count_dropped(reason, 1, error)


def _said(record: wire.RunRecord, **given: Any) -> wire.RunRecord:
    """The record without the arguments that were left at their empty defaults."""
    for name, value in given.items():
        if not value:
            setattr(record, name, wire.UNSET)
    return record
