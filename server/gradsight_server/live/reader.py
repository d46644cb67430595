"""From committed ticks to messages: neighbours join, and what a chart cannot simply append becomes `stale`."""

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from gradsight_server.alerts.store import alert
from gradsight_server.errors import AlertNotFoundError, RunNotFoundError
from gradsight_server.live.subscriber import Message, message, stale
from gradsight_server.store import attempts
from gradsight_server.store.summaries import run_summaries
from gradsight_server.store.ticks import Tick, standing, tick_payload

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_STEPS_PER_TICK = 5_000
MAX_NEWS = 500
"""Payloads built in one read; a reader who is further behind reads its figures afresh."""
MAX_STREAMS_KNOWN = 50_000


class News(NamedTuple):
    """Steps that came, and how far their stream's attempt had come before."""

    tick: Tick
    known_step: int | None

    def joined(self, after: "News") -> "News | None":
        """Both as one, where the other only goes on from here."""
        mine, other = self.tick, after.tick
        is_same = (mine.run_id, mine.stream_key, mine.attempt_key) == (
            other.run_id,
            other.stream_key,
            other.attempt_key,
        )
        if not is_same or (other.first_step or 0) <= (mine.last_step or 0):
            return None
        return News(replace(other, first_step=mine.first_step), self.known_step)


class Progress:
    """How far each stream's attempts have come: steps after that can be appended, others change what was shown."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int | None], dict[int | None, int]] = {}
        self._rewound: dict[str, int] = {}

    def advance(self, tick: Tick) -> int | None:
        """Notes the tick's steps, and gives the last step known before; None for an attempt's first."""
        of_stream = self._last.setdefault((tick.run_id, tick.stream_key), {})
        known = of_stream.get(tick.attempt_key)
        is_rewound = bool(of_stream) if known is None else (tick.first_step or 0) <= known
        if is_rewound:
            self._rewound[tick.run_id] = tick.position
        of_stream[tick.attempt_key] = max(tick.last_step or 0, -1 if known is None else known)
        return known

    def rewound_at(self, run_id: str) -> int:
        """The newest position at which steps came that could not be appended; 0 for none."""
        return self._rewound.get(run_id, 0)

    def forget(self, run_id: str) -> None:
        self._rewound.pop(run_id, None)
        for key in [key for key in self._last if key[0] == run_id]:
            del self._last[key]

    @property
    def is_full(self) -> bool:
        return len(self._last) > MAX_STREAMS_KNOWN


def tick_messages(conn: "Connection", news: Iterable[News], position: int) -> list[Message]:
    """The new points of watched runs, in the order they were committed, so that any id is a place to resume at.

    That is why only neighbours are joined: between the two halves of a joined tick stands no other.
    """
    joined: list[News] = []
    for item in news:
        both = joined[-1].joined(item) if joined else None
        if both is not None:
            joined[-1] = both
        else:
            joined.append(item)
    if len(joined) > MAX_NEWS:
        return [stale(run_id, position) for run_id in dict.fromkeys(item.tick.run_id for item in joined)]
    return [found for item in joined if (found := _tick_message(conn, item)) is not None]


def run_messages(conn: "Connection", run_ids: Collection[str], position: int) -> list[Message]:
    """The runs in brief; one that is gone by now gives none."""
    found = run_summaries(conn, list(run_ids), now_s=time.time()) if run_ids else {}
    return [message("run", summary, position=position, run_id=run_id) for run_id, summary in found.items()]


def deleted_messages(ticks: Iterable[Tick]) -> list[Message]:
    return [
        message("deleted", {"run_id": tick.run_id}, position=tick.position, run_id=tick.run_id)
        for tick in ticks
        if tick.kind == "deleted"
    ]


def alert_messages(conn: "Connection", ticks: Iterable[Tick]) -> Iterator[Message]:
    """What became of alerts, of whichever run; one whose run is gone by now gives none."""
    for tick in ticks:
        if tick.kind == "alert" and tick.alert_id is not None:
            try:
                found = alert(conn, tick.run_id, tick.alert_id)
            except AlertNotFoundError:
                continue
            yield message("alert", found | {"change": tick.change}, position=tick.position, run_id=tick.run_id)


def in_order(messages: Iterable[Message]) -> list[Message]:
    """By position, so that each id stands for everything before it."""
    return sorted(messages, key=lambda found: found.position)


def _tick_message(conn: "Connection", news: News) -> Message | None:
    """The new points; `stale` where they cannot be appended; None where they are not shown at all."""
    tick = news.tick
    place = _place(conn, tick, news.known_step)
    if place == "hidden":
        return None
    if place == "changed":
        return stale(tick.run_id, tick.position)
    try:
        payload = tick_payload(conn, tick, now_s=time.time())
    except RunNotFoundError:
        return None
    if len(payload["steps"]["step"]) > MAX_STEPS_PER_TICK:
        return stale(tick.run_id, tick.position)
    return message("tick", payload, position=tick.position, run_id=tick.run_id, is_for_all=False)


def _place(conn: "Connection", tick: Tick, known_step: int | None) -> Literal["appended", "changed", "hidden"]:
    """Where the steps stand in what a chart shows: after its end, inside it, or not in it."""
    now = standing(conn, tick)
    if not now.is_shown:
        return "hidden"
    if known_step is None:
        # The first this process hears of the attempt. One of several takes the place of others' last steps; and where
        # there are steps behind these, they were there before.
        is_appended = len(attempts.in_order(conn, tick.run_id)) == 1 and now.newest_step == tick.last_step
    else:
        is_appended = now.is_alone and (tick.first_step or 0) > known_step
    return "appended" if is_appended else "changed"
