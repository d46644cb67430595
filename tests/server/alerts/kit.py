"""Streams of steps for the alert rules, and what they make of them, batch by batch as a server sees them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec

from gradsight_server.alerts.columns import Columns
from gradsight_server.alerts.life import News
from gradsight_server.alerts.rules import DEFAULTS, Kind, Rule, changed
from gradsight_server.alerts.setting import setting_of
from gradsight_server.alerts.sliding import State, decode, encode
from gradsight_server.alerts.watch import Watch

FP16: dict[str, Any] = {"precision": "fp16", "scaler": "dynamic(init_scale=65536.0, growth_interval=2000)"}
FP32: dict[str, Any] = {"precision": "fp32", "scaler": None}
NAN = math.nan


class Told(NamedTuple):
    """News in short."""

    kind: str
    change: str
    step: int


class Stream:
    """One stream's rules; what they remember goes through its bytes after each batch, as in the database."""

    def __init__(self, record: Mapping[str, Any] | None = None, rules: Mapping[Kind, Rule] | None = None) -> None:
        self.state = State(attempt_key=1)
        self.news: list[News] = []
        self.alerts: dict[int, dict[str, Any]] = {}
        self.now_s = 0.0
        self.rules = dict(DEFAULTS) if rules is None else dict(rules)
        self._record = msgspec.json.encode(record or {}).decode()
        self._ids = count(1)

    def send(self, norms: Iterable[float | None] = (), *, first: int | None = None, **columns: Any) -> list[Told]:
        """What a batch makes of it; NaN and Inf among norms and losses are told apart as at the door."""
        norms = list(norms)
        size = len(norms) or len(next(iter(columns.values())))
        start = self.state.last_step + 1 if first is None else first
        return self.take(columns_of(range(start, start + size), norms or None, **columns))

    def take(self, columns: Columns, *, num_lost: int | None = None) -> list[Told]:
        kept = decode(encode(self.state))
        assert kept is not None
        watch = Watch(kept, self.rules, setting_of(self._record), now_s=self.now_s, new_id=lambda: next(self._ids))
        watch.see(columns)
        if num_lost is not None:
            watch.lose(num_lost)
        self.state = watch.state
        self.news += watch.life.news
        for alert_id, written in watch.life.writes.items():
            self.alerts.setdefault(alert_id, {}).update(written)
        return [Told(found.kind, found.change, found.step) for found in watch.life.news]

    @property
    def told(self) -> list[Told]:
        return [Told(found.kind, found.change, found.step) for found in self.news]

    @property
    def open(self) -> list[str]:
        return [alert["kind"] for alert in self.alerts.values() if alert["is_open"]]


def columns_of(step: Sequence[int], norms: Sequence[float | None] | None = None, **columns: Any) -> Columns:
    """Columns as the store hands them over."""
    losses = columns.pop("loss", None)
    found = Columns(step=list(step), **columns)
    if norms is not None:
        found.norm, found.norm_is_odd = _split(norms)
    if losses is not None:
        found.loss, found.loss_is_odd = _split(losses)
    return found


def _split(values: Sequence[float | None]) -> tuple[list[float | None], list[bool] | None]:
    is_odd = [value is not None and not math.isfinite(value) for value in values]
    return [None if odd else value for value, odd in zip(values, is_odd, strict=True)], is_odd if any(is_odd) else None


def with_rule(kind: Kind, **change: Any) -> dict[Kind, Rule]:
    """The default rules, one of them changed."""
    return DEFAULTS | {kind: changed(DEFAULTS[kind], change)}
