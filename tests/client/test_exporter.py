"""Queue and sender against a transport that can fail in every way a server can."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gradsight import exporter as exporter_module
from gradsight import spool, wire
from gradsight.errors import ServerRefusedError, ServerRefusedTokenError, ServerUnreachableError, WireError
from gradsight.exporter import Exporter
from gradsight.frames import Frame, read_frames
from gradsight.rows import Attempt, LayerSet, StepRow
from gradsight.spool import Writer
from gradsight.transport import MemoryTransport, send_spooled


@dataclass
class MoodyTransport(MemoryTransport):
    """Takes what it is given, or raises what `mood` holds; `hang` makes it wait."""

    mood: Exception | None = None
    hang: threading.Event = field(default_factory=threading.Event)
    num_calls: int = 0

    def put_run(self, run_id: str, body: bytes, *, timeout_s: float = 10.0) -> None:
        self.num_calls += 1
        if self.mood is not None and not (isinstance(self.mood, ServerRefusedError) and self.mood.status == 404):
            raise self.mood
        super().put_run(run_id, body)

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        self.num_calls += 1
        if self.mood is not None:
            mood = self.mood
            if isinstance(mood, ServerRefusedError):
                self.mood = None  # a refusal is about one request
            raise mood
        return super().post_batch(run_id, stream, body)

    @property
    def steps(self) -> list[int]:
        return [step for _, _, batch in self.batches for step in batch.step]


class StrictTransport(MoodyTransport):
    """Refuses what the wire contract does, as the server would."""

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        try:
            return super().post_batch(run_id, stream, body)
        except WireError as error:
            raise ServerRefusedError(str(error), status=422) from error


@pytest.fixture
def transport() -> MoodyTransport:
    return MoodyTransport()


@pytest.fixture
def exporter(transport: MoodyTransport, tmp_path: Path) -> Iterator[Exporter]:
    made = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: transport)
    made.describe(wire.RunRecord(name="n"))
    yield made
    made.close(timeout_s=5.0)


def wait_until(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    until = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < until, "did not happen in time"
        pause.wait(0.01)


def log(exporter: Exporter, steps: range, layer_set: LayerSet | None = None) -> None:
    norms = [1.0] * len(layer_set) if layer_set else None
    for step in steps:
        assert exporter.submit("main", StepRow(step, 1.0, {"loss": 1.0}, layer_set, norms))


def test_rows_arrive_in_order_and_nothing_is_left_behind(
    exporter: Exporter, transport: MoodyTransport, tmp_path: Path
) -> None:
    log(exporter, range(500))
    wait_until(lambda: len(transport.steps) == 500)
    assert exporter.close(timeout_s=5.0)
    assert transport.steps == list(range(500))
    assert transport.runs["a" * 32][0].name == "n"
    assert list(tmp_path.iterdir()) == []


def test_an_outage_is_bridged_by_the_spool(exporter: Exporter, transport: MoodyTransport) -> None:
    transport.mood = ServerUnreachableError("down")
    log(exporter, range(100))
    wait_until(lambda: transport.num_calls >= 2)
    assert transport.steps == []
    transport.mood = None
    wait_until(lambda: len(transport.steps) == 100)
    assert transport.steps == list(range(100))
    assert exporter.dropped == {}


def test_a_wrong_token_is_waited_out(exporter: Exporter, transport: MoodyTransport) -> None:
    transport.mood = ServerRefusedTokenError("401")
    log(exporter, range(10))
    wait_until(lambda: transport.num_calls >= 2)
    transport.mood = None
    wait_until(lambda: transport.steps == list(range(10)))


def test_a_batch_that_is_refused_is_counted_and_the_next_goes_on(exporter: Exporter, transport: MoodyTransport) -> None:
    transport.mood = ServerRefusedError("422", status=422)
    wait_until(lambda: True)
    transport.mood = None
    log(exporter, range(1))
    wait_until(lambda: transport.steps == [0])
    transport.mood = ServerRefusedError("422", status=422)
    log(exporter, range(1, 3))
    wait_until(lambda: exporter.dropped.get("refused") == 2)
    log(exporter, range(3, 4))
    wait_until(lambda: transport.steps == [0, 3])
    wait_until(lambda: transport.batches[-1][2].dropped == {"refused": 2})


def test_a_server_with_another_database_is_told_of_the_run_again(exporter: Exporter, transport: MoodyTransport) -> None:
    log(exporter, range(1))
    wait_until(lambda: transport.steps == [0])
    num_introductions = len(transport.runs["a" * 32])
    transport.mood = ServerRefusedError("404", status=404)
    log(exporter, range(1, 2))
    wait_until(lambda: transport.steps == [0, 1])
    assert len(transport.runs["a" * 32]) == num_introductions + 1


def test_layers_are_named_once_and_again_when_asked(exporter: Exporter, transport: MoodyTransport) -> None:
    layer_set = LayerSet(["a", "b"])
    log(exporter, range(1), layer_set)
    wait_until(lambda: transport.steps == [0])
    log(exporter, range(1, 2), layer_set)
    wait_until(lambda: transport.steps == [0, 1])
    assert [batch.layers for _, _, batch in transport.batches if batch.step] == [["a", "b"], None]
    transport.answer = lambda batch: wire.Answer(accepted_steps=len(batch.step), layers_needed=batch.layers is None)
    log(exporter, range(2, 3), layer_set)
    wait_until(lambda: transport.batches[-1][2].layers == ["a", "b"])


def test_a_quiet_run_sends_heartbeats(
    exporter: Exporter, transport: MoodyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter_module, "HEARTBEAT_AFTER_S", 0.05)
    log(exporter, range(1))
    wait_until(lambda: sum(not batch.step for _, _, batch in transport.batches) >= 2)
    assert {stream for _, stream, _ in transport.batches} == {"main"}


def test_the_server_sets_the_pace(exporter: Exporter, transport: MoodyTransport) -> None:
    transport.answer = lambda batch: wire.Answer(accepted_steps=len(batch.step), flush_after_s=0.05)
    log(exporter, range(1))
    wait_until(lambda: transport.steps == [0])
    num_before = len(transport.batches)
    for step in range(1, 6):
        log(exporter, range(step, step + 1))
        wait_until(lambda step=step: transport.steps[-1] == step)  # type: ignore[misc]
    assert len(transport.batches) == num_before + 5


def test_a_queue_that_overflows_drops_the_oldest_and_says_so(
    tmp_path: Path, transport: MoodyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter_module, "MAX_QUEUE_ROWS", 300)
    monkeypatch.setattr(exporter_module, "DRAIN_EVERY_S", 0.5)
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: transport)
    log(exporter, range(1000))
    exporter.close(timeout_s=5.0)
    num_dropped = exporter.dropped["queue_full"]
    assert num_dropped >= 600
    assert transport.steps == list(range(num_dropped, 1000))
    assert transport.batches[0][2].sequence == num_dropped  # the gap shows
    assert transport.batches[-1][2].dropped == {"queue_full": num_dropped}


def test_closing_while_nobody_answers_is_quick_and_keeps_everything(
    exporter: Exporter, transport: MoodyTransport, tmp_path: Path
) -> None:
    transport.mood = ServerUnreachableError("down")
    log(exporter, range(10))
    begin = time.monotonic()
    assert exporter.close(timeout_s=10.0) is False
    assert time.monotonic() - begin < 5.0
    assert list(tmp_path.glob("spool/*/*/*.seg"))


def test_a_later_process_sends_what_an_earlier_one_left(tmp_path: Path) -> None:
    down = MoodyTransport(mood=ServerUnreachableError("down"))
    earlier = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: down)
    earlier.describe(wire.RunRecord(name="earlier"))
    log(earlier, range(10))
    earlier.close(timeout_s=1.0)
    up = MoodyTransport()
    later = Exporter("c" * 32, Attempt("d" * 32, 2.0, 0), tmp_path, lambda: up)
    later.describe(wire.RunRecord(name="later"))
    wait_until(lambda: up.steps == list(range(10)))
    assert later.close(timeout_s=5.0)
    assert up.runs["a" * 32][0].name == "earlier"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(wire.Event(kind="n", message="a\0b"), id="NUL in a message"),
        pytest.param(StepRow(1, 1.0, {"loss": "high"}), id="a text as a number"),
        pytest.param(StepRow(1, 1.0, {"loss": 1.0}, LayerSet([""]), [1.0]), id="a layer without a name"),
        pytest.param(StepRow(1, 1.0, {"first_nonfinite_layer": "\ud800"}), id="half a surrogate pair"),
        pytest.param(StepRow(1, 1.0, {"unheard_of": 1.0}), id="an unknown column"),
    ],
)
def test_a_bad_entry_takes_no_other_along(what: Any, tmp_path: Path) -> None:
    """Whatever slips past the door: the server refuses it, or it cannot be encoded; everything else arrives."""
    server = StrictTransport()
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: server)
    exporter.describe(wire.RunRecord(name="n"))
    log(exporter, range(5))
    exporter.submit("main", what, is_step=isinstance(what, StepRow))
    log(exporter, range(5, 10))
    assert exporter.close(timeout_s=10.0)
    assert set(range(10)) - {1} <= set(server.steps)
    assert sum(exporter.dropped.values()) >= 1
    assert list(tmp_path.rglob("*.seg")) == []


def test_a_stream_that_is_no_text_does_not_stop_the_others(tmp_path: Path) -> None:
    server = StrictTransport()
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: server)
    exporter.submit(5, StepRow(0, 1.0, {"loss": 1.0}))  # type: ignore[arg-type]
    log(exporter, range(10))
    assert exporter.close(timeout_s=10.0)
    assert server.steps == list(range(10))


def test_what_a_server_refuses_is_kept_to_look_at(
    exporter: Exporter, transport: MoodyTransport, tmp_path: Path
) -> None:
    log(exporter, range(1))
    wait_until(lambda: transport.steps == [0])
    transport.mood = ServerRefusedError("422", status=422)
    log(exporter, range(1, 2))
    wait_until(lambda: "refused" in exporter.dropped)
    (kept,) = tmp_path.glob("refused/*.frames")
    assert len(read_frames(kept, 0, 1 << 20).frames) == 1


class PickyTransport(MoodyTransport):
    """Refuses every batch that has this step."""

    bad_step = 5

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        if self.bad_step in wire.decode(body, wire.Batch).step:
            raise ServerRefusedError("422", status=422)
        return super().post_batch(run_id, stream, body)


def test_what_is_refused_takes_nothing_along_that_it_was_merged_with(tmp_path: Path) -> None:
    down, picky = MoodyTransport(mood=ServerUnreachableError("down")), PickyTransport()
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: down)
    for step in range(10):
        log(exporter, range(step, step + 1))
        exporter._drain()
    exporter.close(timeout_s=0.1)
    report = send_spooled(tmp_path, picky)
    assert picky.steps == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert (report.num_steps, report.num_refused) == (9, 1)
    (kept,) = tmp_path.glob("refused/*.frames")
    assert [frame.num_steps for frame in read_frames(kept, 0, 1 << 20).frames] == [1]


def test_the_server_hears_of_what_it_refused_at_the_end(tmp_path: Path) -> None:
    picky = PickyTransport()
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: picky)
    log(exporter, range(5))
    wait_until(lambda: picky.steps == list(range(5)))
    log(exporter, range(5, 6))
    assert exporter.close(timeout_s=5.0)
    assert exporter.dropped == {"refused": 1}
    assert picky.batches[-1][2].dropped == {"refused": 1}


class ForgetfulTransport(MoodyTransport):
    """Knows only runs that were introduced."""

    def post_batch(self, run_id: str, stream: str, body: bytes, *, timeout_s: float = 10.0) -> wire.Answer:
        if run_id not in self.runs:
            raise ServerRefusedError("404", status=404)
        return super().post_batch(run_id, stream, body)


def test_a_spool_whose_first_message_is_damaged_is_sent_all_the_same(tmp_path: Path) -> None:
    down, up = MoodyTransport(mood=ServerUnreachableError("down")), ForgetfulTransport()
    exporter = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: down)
    exporter.describe(wire.RunRecord(name="n"))
    log(exporter, range(10))
    exporter.close(timeout_s=0.1)
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    data = bytearray(segment.read_bytes())
    data[20] ^= 0xFF
    segment.write_bytes(data)
    report = send_spooled(tmp_path, up)
    assert up.steps == list(range(10))
    assert (report.num_refused, report.num_damaged) == (0, 1)


def test_a_spool_that_is_deleted_meanwhile_loses_nothing_in_hand(exporter: Exporter, tmp_path: Path) -> None:
    transport = exporter._connect() if exporter._connect else None
    assert isinstance(transport, MoodyTransport)
    log(exporter, range(5))
    wait_until(lambda: transport.steps == list(range(5)))
    transport.mood = ServerUnreachableError("down")
    log(exporter, range(5, 10))
    wait_until(lambda: bool(list(tmp_path.glob("spool/*/*/*.seg"))))
    shutil.rmtree(tmp_path / "spool")
    log(exporter, range(10, 15))
    wait_until(lambda: bool(list(tmp_path.glob("spool/*/*/*.seg"))))
    assert spool.take(next(tmp_path.glob("spool/*/*"))) is None, "it is this process's again"
    transport.mood = None
    assert exporter.close(timeout_s=5.0)
    assert sorted(set(transport.steps)) == list(range(15))
    assert exporter.dropped == {}


def test_damage_in_an_earlier_spool_is_counted_not_passed_over_in_silence(tmp_path: Path) -> None:
    down = MoodyTransport(mood=ServerUnreachableError("down"))
    earlier = Exporter("a" * 32, Attempt("b" * 32, 1.0, 0), tmp_path, lambda: down)
    log(earlier, range(5))
    earlier.close(timeout_s=1.0)
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    up = MoodyTransport()
    later = Exporter("c" * 32, Attempt("d" * 32, 2.0, 0), tmp_path, lambda: up)
    later.describe(wire.RunRecord(name="later"))
    wait_until(lambda: later.dropped == {"spool_damaged": 1})
    assert later.close(timeout_s=5.0)


def test_damage_is_counted_once_however_often_it_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool" / "run" / "one")
    for number in range(3):
        writer.append(Frame("batch", "0" * 32, "main", 1, bytes([number] * 20)))
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    for _ in range(3):  # a server that is down has it read again and again
        frames, position = writer.read(1 << 20)
    assert [frame.body[0] for frame in frames] == [0, 2]
    assert writer.num_damaged == 0
    writer.acknowledge(position)
    assert writer.num_damaged == 1
    writer.close()


def test_the_run_is_introduced_once(exporter: Exporter, transport: MoodyTransport) -> None:
    exporter.submit("main", StepRow(0, 1.0, {"loss": 1.0}))
    assert exporter.close(timeout_s=5.0)
    assert [record.name for record in transport.runs["a" * 32]] == ["n"]
    assert transport.steps == [0]


def test_much_is_sent_at_once_however_long_the_server_would_have_us_gather(
    exporter: Exporter, transport: MoodyTransport
) -> None:
    transport.answer = lambda batch: wire.Answer(accepted_steps=len(batch.step), flush_after_s=60.0)
    exporter.submit("main", StepRow(0, 1.0, {"loss": 1.0}))
    wait_until(lambda: transport.steps == [0])
    layers = LayerSet([f"layer.{i}" for i in range(100)])
    num_steps = exporter_module.SEND_AT_BYTES // (4 * len(layers)) + 1
    for step in range(1, 1 + num_steps):
        exporter.submit("main", StepRow(step, 1.0, {"loss": 1.0}, layers, [0.5] * len(layers)))
    wait_until(lambda: len(transport.steps) == 1 + num_steps)


def test_much_does_not_shorten_the_pauses_between_tries(exporter: Exporter, transport: MoodyTransport) -> None:
    transport.mood = ServerUnreachableError("down")
    layers = LayerSet([f"layer.{i}" for i in range(100)])
    for step in range(exporter_module.SEND_AT_BYTES // (4 * len(layers)) + 1):
        exporter.submit("main", StepRow(step, 1.0, {"loss": 1.0}, layers, [0.5] * len(layers)))
    wait_until(lambda: transport.num_calls > 0)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        exporter.submit("main", StepRow(10_000, 1.0, {"loss": 1.0}))
        time.sleep(0.05)
    assert transport.num_calls <= 4, "0.25 s and twice as long each time"
