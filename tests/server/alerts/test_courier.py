"""Messages reach each target in order, at least once, and not for ever."""

import threading
from collections.abc import Callable, Iterator

import pytest

from gradsight_server.alerts import courier
from gradsight_server.alerts.courier import Courier
from gradsight_server.alerts.messages import Note
from gradsight_server.alerts.notify import Target
from gradsight_server.store import alert_rows, models, outbox
from gradsight_server.store.alert_rows import Message
from tests.server.api.kit import wait_until
from tests.server.store.kit import RUN, Store


class Place:
    """A target of the test's own, which fails or waits where it is told to."""

    def __init__(self, name: str, **asks: str) -> None:
        self.name = name
        self.got: list[Note] = []
        self.problem: str | None = None
        self.is_free = threading.Event()
        self.is_free.set()
        self.num_asked = 0
        self.target = Target(name, name, "Test", asks.get("project", "*"), asks.get("severity", "info"), self._send)  # type: ignore[arg-type]

    def _send(self, note: Note, severity: str) -> str | None:
        self.num_asked += 1
        self.is_free.wait(30)
        if self.problem is None:
            self.got.append(note)
        return self.problem

    @property
    def titles(self) -> list[str]:
        return [note.lines[0] for note in self.got]


class Post:
    """A courier at work on a database, at a clock that the test sets."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_s = 1e9
        self._couriers: list[Courier] = []

    def open(self, *places: Place) -> Courier:
        """A server with these targets starts."""
        found = Courier(self.store.db, [place.target for place in places], public_url=None, clock=lambda: self.now_s)
        found.start()
        self._couriers.append(found)
        return found

    def tell(self, title: str, *, severity: str = "warning", project: str = "lm") -> None:
        payload = {"title": title, "run_name": "r", "stream": None, "attempt": None, "first_step": None,
                   "last_step": None, "num_repeats": 0, "value": None, "layer": None}  # fmt: skip
        message = Message(RUN, project, severity, payload, self.now_s)
        self.store.write(lambda conn: alert_rows.post(conn, [message]))

    def progress(self, place: Place) -> outbox.Progress:
        return self.store.read(outbox.progress, [place.name])[place.name]

    def close(self) -> None:
        for found in self._couriers:
            found.close()


@pytest.fixture
def post(store: Store) -> Iterator[Post]:
    made = Post(store)
    yield made
    made.close()


def pump_until(found: Courier, is_true: Callable[[], bool]) -> None:
    """Does the leader's chore again and again until it is."""

    def look() -> bool:
        found.pump()
        return is_true()

    wait_until(look)


def test_messages_come_in_order_and_a_new_target_hears_of_what_comes_from_then_on(post: Post) -> None:
    a, b = Place("a"), Place("b")
    first = post.open(a)
    post.tell("one")
    pump_until(first, lambda: len(a.got) >= 1)
    second = post.open(a, b)
    post.tell("two")
    post.tell("three")
    pump_until(second, lambda: len(b.got) >= 2)
    pump_until(second, lambda: len(a.got) >= 3)
    assert (a.titles, b.titles) == (["one", "two", "three"], ["two", "three"])
    wait_until(lambda: post.progress(b).num_sent == 2)


def test_a_target_is_passed_over_what_it_does_not_ask_for(post: Post) -> None:
    grave, vision = Place("grave", severity="critical"), Place("vision", project="vision-*")
    found = post.open(grave, vision)
    for title, severity, project in (("a", "warning", "lm"), ("b", "critical", "lm"), ("c", "info", "vision-1")):
        post.tell(title, severity=severity, project=project)
    pump_until(found, lambda: len(grave.got) >= 1)
    pump_until(found, lambda: len(vision.got) >= 1)
    wait_until(lambda: post.progress(grave).num_sent == 1)
    pump_until(found, lambda: post.progress(grave).delivered_up_to == 3)
    assert (grave.titles, vision.titles) == (["b"], ["c"])


def test_a_failure_is_tried_again_later_and_later(post: Post) -> None:
    place = Place("a")
    place.problem = "no way"
    found = post.open(place)
    post.tell("one")
    pauses = []
    for num in range(1, 5):
        pump_until(found, lambda: post.progress(place).num_failures == num)  # noqa: B023
        state = post.progress(place)
        assert (state.failing_since_s, state.last_error) == (1e9, "no way")
        assert state.next_try_at_s is not None
        pauses.append(state.next_try_at_s - post.now_s)
        found.pump()
        assert place.num_asked == num, "not before its time"
        post.now_s = state.next_try_at_s
    assert pauses == [2, 4, 8, 16]
    place.problem = None
    pump_until(found, lambda: len(place.got) >= 1)
    wait_until(lambda: post.progress(place).failing_since_s is None)


def test_a_target_that_was_down_for_a_day_is_not_flooded_with_old_news(post: Post) -> None:
    place = Place("a")
    place.problem = "down"
    found = post.open(place)
    post.tell("old")
    pump_until(found, lambda: post.progress(place).num_failures == 1)
    post.now_s += courier.GIVE_UP_S + 1
    place.problem = None
    post.tell("new")
    pump_until(found, lambda: len(place.got) >= 1)
    assert place.titles == ["new"]
    wait_until(lambda: (post.progress(place).num_given_up, post.progress(place).num_sent) == (1, 1))


def test_a_target_that_hangs_is_said_to_and_holds_nobody_up(post: Post) -> None:
    slow, quick = Place("slow"), Place("quick")
    slow.is_free.clear()
    found = post.open(slow, quick)
    post.tell("one")
    pump_until(found, lambda: len(quick.got) >= 1)
    assert not found.hangs("slow")
    post.now_s += courier.HANGS_AFTER_S + 1
    pump_until(found, lambda: found.hangs("slow"))
    assert "not answered" in (post.progress(slow).last_error or "")
    post.tell("two")
    pump_until(found, lambda: len(quick.got) >= 2)
    assert slow.num_asked == 1
    slow.is_free.set()
    pump_until(found, lambda: len(slow.got) >= 2)
    assert slow.titles == ["one", "two"]
    wait_until(lambda: post.progress(slow).failing_since_s is None)
    assert not found.hangs("slow")


def test_after_a_burst_messages_are_gathered(post: Post) -> None:
    place = Place("a")
    found = post.open(place)
    for number in range(courier.BURST):
        post.tell(f"{number}")
        pump_until(found, lambda: len(place.got) >= number + 1)  # noqa: B023
    wait_until(lambda: post.progress(place).num_sent == courier.BURST)
    post.tell("x")
    post.tell("y")
    found.pump()
    assert place.num_asked == courier.BURST
    post.now_s += courier.REFILL_S
    pump_until(found, lambda: len(place.got) >= courier.BURST + 1)
    assert place.got[-1].title == "Gradsight: 2 alerts"


def test_what_was_sent_but_not_noted_is_sent_again_by_the_next_server(post: Post) -> None:
    place = Place("a")
    place.is_free.clear()
    first = post.open(place)
    post.tell("one")
    pump_until(first, lambda: place.num_asked == 1)
    second = post.open(place)  # the first was killed while the message was under way
    pump_until(second, lambda: place.num_asked == 2)
    place.is_free.set()
    wait_until(lambda: place.titles == ["one", "one"])


def test_old_messages_are_taken_away_and_ids_go_on(post: Post) -> None:
    for title in ("a", "b"):
        post.tell(title)
    later = post.now_s + outbox.KEPT_S + 1
    post.store.write(lambda conn: outbox.prune(conn, now_s=later))
    assert [row["outbox_id"] for row in post.store.rows(models.outbox)] == [2]
    post.tell("c")
    assert [row["outbox_id"] for row in post.store.rows(models.outbox)] == [2, 3]
