"""The spool: whole frames in order, whatever happens to the process or the disk."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gradsight import spool
from gradsight.frames import Frame, read_frames
from gradsight.spool import Writer


def frame(number: int, size: int = 10) -> Frame:
    return Frame("batch", "0" * 32, "main", 1, number.to_bytes(4, "little") * (size // 4))


def numbers(frames: list[Frame]) -> list[int]:
    return [int.from_bytes(frame.body[:4], "little") for frame in frames if frame.kind == "batch"]


def left_in(spool_dir: Path) -> list[int]:
    found: list[int] = []
    for folder in spool.pending(spool_dir):
        leftover = spool.take(folder)
        assert leftover is not None
        with leftover:
            for frames in leftover.runs_of_frames():
                found += numbers(frames)
    return found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with closing(Writer(tmp_path / "spool" / ("0" * 32) / "one")) as writer:
        yield writer


def test_frames_come_back_in_order_until_they_are_acknowledged(writer: Writer) -> None:
    for number in range(5):
        assert writer.append(frame(number)) == 0
    frames, position = writer.read(1 << 20)
    assert numbers(frames) == [0, 1, 2, 3, 4]
    assert numbers(writer.read(1 << 20)[0]) == [0, 1, 2, 3, 4]
    writer.append(frame(5))
    writer.acknowledge(position)
    assert numbers(writer.read(1 << 20)[0]) == [5]
    assert not writer.is_empty


def test_a_read_is_bounded_but_never_empty_handed(writer: Writer) -> None:
    for number in range(3):
        writer.append(frame(number, 400))
    frames, position = writer.read(1)
    assert numbers(frames) == [0]
    writer.acknowledge(position)
    assert numbers(writer.read(600)[0]) == [1, 2]


def test_nothing_is_left_on_disk_once_all_is_acknowledged(writer: Writer, tmp_path: Path) -> None:
    writer.append(frame(1))
    writer.acknowledge(writer.read(1 << 20)[1])
    writer.close()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_acknowledged_stays_for_a_later_process(writer: Writer, tmp_path: Path) -> None:
    for number in range(3):
        writer.append(frame(number))
    writer.close()
    assert left_in(tmp_path) == [0, 1, 2]
    assert spool.pending(tmp_path) == []


def test_segments_rotate_and_each_begins_with_the_lead(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SEGMENT_BYTES", 300)
    writer.set_lead([Frame("run", "0" * 32, "", 0, b"who")])
    for number in range(12):
        writer.append(frame(number, 100))
    segments = sorted(tmp_path.glob("spool/*/*/*.seg"))
    assert len(segments) > 3
    assert all(b"who" in segment.read_bytes() for segment in segments)
    seen: list[int] = []
    while not writer.is_empty:
        frames, position = writer.read(150)
        seen += numbers(frames)
        writer.acknowledge(position)
    assert seen == list(range(12))
    assert len(list(tmp_path.glob("spool/*/*/*.seg"))) == 1


def test_a_frame_cut_short_is_left_out(writer: Writer, tmp_path: Path) -> None:
    for number in range(3):
        writer.append(frame(number))
    writer.close()
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    os.truncate(segment, segment.stat().st_size - 3)
    assert left_in(tmp_path) == [0, 1]


def test_a_damaged_frame_is_passed_over_and_counted(writer: Writer, tmp_path: Path) -> None:
    for number in range(3):
        writer.append(frame(number))
    writer.close()
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    leftover = spool.take(segment.parent)
    assert leftover is not None
    with leftover:
        assert [number for frames in leftover.runs_of_frames() for number in numbers(frames)] == [0, 2]
    assert leftover.num_damaged == 1


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"GSF1" * 9, b"GSF1\xff\xff\xff\x7f", b"\x93\x01"])
def test_a_tail_of_rubbish_is_left_out(tail: bytes, writer: Writer, tmp_path: Path) -> None:
    """A file system may leave zeros behind after a power cut."""
    for number in range(3):
        writer.append(frame(number))
    writer.close()
    (segment,) = tmp_path.glob("spool/*/*/*.seg")
    segment.write_bytes(segment.read_bytes() + tail)
    assert left_in(tmp_path) == [0, 1, 2]
    assert spool.pending(tmp_path) == []


def test_a_full_disk_does_not_fill_with_empty_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / "spool" / "run" / "one")
    monkeypatch.setattr(spool, "MAX_SPOOL_BYTES", -1)
    for number in range(20):
        writer.append(frame(number))
    assert list(tmp_path.rglob("*.seg")) == []
    assert writer.close() == 20  # what was in memory only is lost, and told


def test_a_living_process_keeps_its_spool_to_itself(writer: Writer, tmp_path: Path) -> None:
    writer.append(frame(1))
    (folder,) = spool.pending(tmp_path)
    assert spool.take(folder) is None
    writer.close()
    leftover = spool.take(folder)
    assert leftover is not None
    with leftover:
        assert spool.take(folder) is None  # another one is sending it


def test_what_a_killed_process_wrote_is_there(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from gradsight.frames import Frame\n"
        "from gradsight.spool import Writer\n"
        "writer = Writer(Path(sys.argv[1]) / 'spool' / ('0' * 32) / 'one')\n"
        "for number in range(100):\n"
        "    writer.append(Frame('batch', '0' * 32, 'main', 1, number.to_bytes(4, 'little')))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert left_in(tmp_path) == list(range(100))


def test_a_disk_that_takes_nothing_leaves_frames_in_memory_then_drops_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_MEMORY_BYTES", 1000)
    (tmp_path / "spool").write_text("a file where a folder should be")
    writer = Writer(tmp_path / "spool" / "run" / "one")
    num_dropped = sum(writer.append(frame(number, 100)) for number in range(20))
    assert writer.error is not None
    frames, position = writer.read(1 << 20)
    assert numbers(frames) == list(range(num_dropped, 20))
    assert 0 < num_dropped < 20
    writer.acknowledge(position)
    assert writer.is_empty


def test_frames_move_from_memory_to_the_disk_once_it_takes_them_again(tmp_path: Path) -> None:
    blocker = tmp_path / "spool"
    blocker.write_text("a file where a folder should be")
    writer = Writer(tmp_path / "spool" / "run" / "one")
    writer.append(frame(0))
    _, position = writer.read(1 << 20)
    blocker.unlink()
    writer.append(frame(1))
    writer.acknowledge(position)  # of the frame that has moved meanwhile: it may be sent again, never lost
    assert numbers(writer.read(1 << 20)[0]) == [0, 1]
    writer.close()
    assert left_in(tmp_path) == [0, 1]


def test_a_disk_that_is_full_in_the_middle_of_a_frame_leaves_whole_frames(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With /dev/full in place of the segment: each write fails with "no space left on device"."""
    writer.append(frame(0))
    healthy = writer._file
    writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    writer.append(frame(1))
    assert writer.error is not None
    assert writer.error.errno == 28
    writer.append(frame(2))
    frames, position = writer.read(1 << 20)
    seen = numbers(frames)
    writer.acknowledge(position)
    assert seen + numbers(writer.read(1 << 20)[0]) == [0, 1, 2]
    assert healthy is not None
    healthy.close()


def test_of_segments_that_were_deleted_the_steps_are_counted_and_the_rest_goes_on(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SEGMENT_BYTES", 150)
    for number in range(12):
        writer.append(frame(number, 100))
    frames, position = writer.read(150)
    writer.acknowledge(position)
    num_sent = len(frames)
    last = len(numbers(read_frames(sorted(tmp_path.glob("spool/*/*/*.seg"))[-1], 0, 1 << 20).frames))
    shutil.rmtree(tmp_path / "spool")
    writer.append(frame(12, 100))
    seen: list[int] = []
    while not writer.is_empty:
        frames, position = writer.read(150)
        seen += numbers(frames)
        writer.acknowledge(position)
    assert seen == list(range(12 - last, 13)), "the segment that was written to is still in hand"
    assert writer.num_deleted == 12 - num_sent - last
