"""A rule tried over recorded steps: what it would have told of, in bounded time, the newest runs first."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, select

from gradsight_server.alerts.columns import Columns
from gradsight_server.alerts.groups import is_of_group, rules_of_group
from gradsight_server.alerts.rules import Change, Kind, Rule, effective
from gradsight_server.alerts.setting import Setting, setting_of
from gradsight_server.alerts.silence import Quiet, is_silent
from gradsight_server.alerts.sliding import State
from gradsight_server.alerts.watch import Watch
from gradsight_server.store import attempts, judged
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.models import runs, steps, streams
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rule_book import Scope, scopes_of

BUDGET_S = 2.0
MAX_RUNS = 500
MAX_STEPS = 200_000
"""Of one attempt at a stream: its newest."""
CHUNK = 2_000
PART = 256
"""Steps between two looks at the clock that cool-downs are told by."""
MAX_LISTED = 20
PACE_STEPS = 32

_COLUMNS = tuple(judged.FROM.items())
_READ = Prepared(
    select(steps.c.step, steps.c.wall_time_s, steps.c.nonfinite, *(steps.c[source] for _, source in _COLUMNS))
    .where(bound_segment(steps))
    .order_by(steps.c.step)
    .limit(bindparam("how_many"))
)
_NTH_NEWEST = Prepared(
    select(steps.c.step).where(bound_segment(steps)).order_by(steps.c.step.desc()).limit(1).offset(bindparam("skip"))
)


@dataclass(slots=True)
class Fired:
    """What the rule would have told of in one run."""

    run_id: str
    run_name: str
    project: str
    num_fired: int = 0
    num_repeats: int = 0
    first_step: int | None = None

    def fire(self, step: int | None) -> None:
        self.num_fired += 1
        if self.first_step is None:
            self.first_step = step


@dataclass(slots=True)
class Replay:
    """What was looked at, and what came of it."""

    found: list[Fired] = field(default_factory=list)
    num_runs: int = 0
    num_steps: int = 0
    is_complete: bool = True


def replay(
    conn: Connection,
    kind: Kind,
    by_scope: Mapping[Scope, Mapping[Kind, Change]],
    *,
    project: str | None,
    run_id: str | None,
    since_s: float,
) -> Replay:
    """Tries the rules of these scopes over the steps recorded since a moment.

    Args:
        project, run_id: Only there.
    """
    done = Replay()
    until_s = time.monotonic() + BUDGET_S
    rows = _runs(conn, project, run_id, since_s)
    for run in rows[:MAX_RUNS]:
        if time.monotonic() > until_s:
            done.is_complete = False
            break
        scopes = [by_scope[scope] for scope in scopes_of(run.project, run.run_id) if scope in by_scope]
        fired = Fired(run.run_id, run.name, run.project)
        _of_run(conn, kind, effective(scopes), fired, done, since_s, until_s)
        done.num_runs += 1
        if fired.num_fired or fired.num_repeats:
            done.found.append(fired)
    done.is_complete = done.is_complete and len(rows) <= MAX_RUNS
    done.found.sort(key=lambda fired: -fired.num_fired)
    return done


def _runs(conn: Connection, project: str | None, run_id: str | None, since_s: float) -> list[Row[Any]]:
    query = select(runs.c.run_id, runs.c.name, runs.c.project).where(runs.c.last_step_at_s >= since_s)
    if project is not None:
        query = query.where(runs.c.project == project)
    if run_id is not None:
        query = query.where(runs.c.run_id == run_id)
    return list(conn.execute(query.order_by(runs.c.last_step_at_s.desc()).limit(MAX_RUNS + 1)))


def _of_run(
    conn: Connection,
    kind: Kind,
    rules: Mapping[Kind, Rule],
    fired: Fired,
    done: Replay,
    since_s: float,
    until_s: float,
) -> None:
    launches = attempts.in_order(conn, fired.run_id)
    if kind == "telemetry_loss":
        for launch in launches:
            lost = sum(rows for reasons in launch.dropped.values() for rows in reasons.values())
            if launch.started_at_s >= since_s and lost >= (rules[kind].threshold or 1) and rules[kind].enabled:
                fired.fire(None)
        return
    query = select(streams.c.stream_key, streams.c.stream, streams.c.record).where(streams.c.run_id == fired.run_id)
    rows = conn.execute(query.order_by(streams.c.stream_key)).all()
    policies = {stream.stream: stream.record.get("policy") for stream in rows}
    of_group = rules_of_group(rules)
    for stream in rows:
        judged_by = of_group if is_of_group(stream.stream, policies) else rules
        if not judged_by[kind].enabled:
            continue
        setting = setting_of(msgspec.json.encode(stream.record).decode())
        for launch in launches:
            key = (fired.run_id, stream.stream_key, launch.attempt_key)
            trial = _Trial(kind, judged_by, setting, launch.attempt_key, fired)
            for columns in _recorded(conn, key, since_s):
                done.num_steps += len(columns)
                trial.see(columns)
                if time.monotonic() > until_s:
                    done.is_complete = False
                    return


class _Trial:
    """The rules at work on what was recorded of one attempt at a stream."""

    def __init__(
        self, kind: Kind, rules: Mapping[Kind, Rule], setting: Setting, attempt_key: int, fired: Fired
    ) -> None:
        self._kind = kind
        self._rules = rules
        self._setting = setting
        self._state = State(attempt_key)
        self._fired = fired
        self._ids = count(1)
        self._times: list[float] = []
        self._told_at_s: float | None = None

    def see(self, columns: Columns) -> None:
        for first in range(0, len(columns), PART):
            part = columns.between(first, first + PART)
            times = [moment for moment in part.time_s or () if moment is not None]
            if self._kind == "silent_run":
                self._pauses(part)
            watch = Watch(
                self._state,
                self._rules,
                self._setting,
                now_s=times[-1] if times else 0.0,
                new_id=lambda: next(self._ids),
            )
            watch.see(part)
            for found in watch.life.news:
                if found.kind == self._kind and found.change in ("opened", "reminded"):
                    self._fired.fire(found.step)
                elif found.kind == self._kind and found.change == "repeated":
                    self._fired.num_repeats += 1

    def _pauses(self, part: Columns) -> None:
        """Pauses that the rule would have taken for silence."""
        rule = self._rules[self._kind]
        for step, moment in zip(part.step, part.time_s or (), strict=False):
            if moment is None:
                continue
            if self._times:
                silence_s, span_s = moment - self._times[-1], self._times[-1] - self._times[0]
                rate = (len(self._times) - 1) / span_s if span_s > 0 else None
                longest_s = self._state.longest_pause_s
                quiet = Quiet(silence_s=silence_s, unheard_s=0.0, steps_per_s=rate, longest_pause_s=longest_s)
                if is_silent(rule, quiet):
                    self._silent(step, moment, rule)
            self._times = [*self._times[1 - PACE_STEPS :], moment]

    def _silent(self, step: int, moment: float, rule: Rule) -> None:
        if self._told_at_s is not None and moment - self._told_at_s < rule.cool_down_s:
            self._fired.num_repeats += 1
            return
        self._told_at_s = moment
        self._fired.fire(step)


def _recorded(conn: Connection, key: tuple[str, int, int], since_s: float) -> Iterator[Columns]:
    """The newest steps of an attempt, by rising number, from a moment on."""
    next_step: int = _NTH_NEWEST.scalar(conn, segment_parameters(*key) | {"skip": MAX_STEPS}) or 0
    while rows := _READ.rows(conn, segment_parameters(*key, next_step) | {"how_many": CHUNK}):
        next_step = rows[-1][0] + 1
        if rows[-1][1] is None or rows[-1][1] >= since_s:
            yield _as_columns(rows)
        if len(rows) < CHUNK:
            return


def _as_columns(rows: list[tuple[Any, ...]]) -> Columns:
    step, times, masks, *columns = map(list, zip(*rows, strict=True))
    found: dict[str, Any] = {
        name: column
        for (name, _), column in zip(_COLUMNS, columns, strict=True)
        if any(value is not None for value in column)
    }
    if "skipped" in found:
        found["skipped"] = [None if value is None else bool(value) for value in found["skipped"]]
    return Columns(step=step, time_s=times, **found, **judged.odd_columns(masks))
