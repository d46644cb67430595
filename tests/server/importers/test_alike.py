"""Lines that are alike are read as columns, and say what they say one by one."""

import random
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gradsight import wire
from gradsight_server.errors import NothingToReadError
from gradsight_server.importers import alike, assembly
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.importing import Wish, import_log
from gradsight_server.importers.items import Item, Point, Points
from gradsight_server.importers.lines import LineSource
from gradsight_server.importers.logs import read_log
from gradsight_server.importers.reading import sources_of
from tests.server.importers.kit import read, write
from tests.server.importers.test_fuzz import seeds

_NUMBER = re.compile(r"(?<![\w.])(\d{1,15}\.\d+|\d{1,15})(?![\w.])")


class Taken:
    """A destination that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def put_run(self, run_id: str, record: wire.RunRecord) -> None:
        self.messages.append((run_id, wire.encode(record)))

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None:
        self.messages.append((f"{run_id}/{stream}", wire.encode(batch)))

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None: ...


def lengthened(text: str, rng: random.Random) -> str:
    """Each line of numbers many times, with other numbers; now and then one that is not alike."""
    kind = rng.randrange(3)
    lines = []
    for line in text.split("\n")[:40]:
        lines.append(line)
        for i in range(1, 30 if _NUMBER.search(line) else 1):
            lines.append(_moved(line, i, kind, rng))
            if rng.random() < 0.03:
                lines.append(rng.choice(["", "evaluating 12 of 13", line[: len(line) // 2], line.replace("1", "nan")]))
    return "\n".join(lines)


def _moved(line: str, by: int, kind: int, rng: random.Random) -> str:
    """All whole numbers are moved on, or the first, or the second."""
    place = iter(range(len(line)))

    def other(match: re.Match[str]) -> str:
        text, digits = match[0], len(match[0].partition(".")[2])
        is_moved = kind == 0 or next(place) == kind - 1
        return f"{float(text) * rng.random():.{digits}f}" if digits else str(int(text) + by) if is_moved else text

    return _NUMBER.sub(other, line)


def told(path: Path) -> Any:
    """All that is read of a log, and all that is sent of it."""
    taken = Taken()
    (source, *_) = sources_of(path)
    imported = import_log(source, taken, Wish())
    log = read_log(source)
    columns = [
        [(name, repr(getattr(column, "values", column).tolist())) for name, column in _columns(part.steps)]
        for part in log.parts
    ]
    aside = [
        {name: repr(series.values.tolist()) for name, series in part.context.metrics.items()} for part in log.parts
    ]
    return log.notes, columns, aside, imported.notes, taken.messages


def _columns(steps: Any) -> list[tuple[str, Any]]:
    return [(name, found) for name in wire.COLUMNS if hasattr(found := getattr(steps, name, None), "values")] + [
        ("step", steps.step)
    ]


def test_columns_say_what_the_lines_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "NUM_HELD", 10)
    rng = random.Random(0)
    least, num_read = alike.LEAST, 0
    for i, text in enumerate(seeds()):
        path = write(tmp_path, lengthened(text, rng), f"log-{i}")
        try:
            monkeypatch.setattr(alike, "LEAST", 2**60)
            one_by_one = told(path)
        except NothingToReadError:
            continue
        monkeypatch.setattr(alike, "LEAST", least)
        assert told(path) == one_by_one, text[:500]
        num_read += 1
    assert num_read > 30


def points_of(text: str) -> list[Item]:
    """`n=3 x=1.5` as points; a line with `odd` in it has more to it."""

    def point(at: int, line: str) -> Point | None:
        match = re.search(r"n=(\d+) x=(\S+)", line)
        return None if match is None or "odd" in line else Point(at, int(match[1]), {"loss": float(match[2])})

    source = LineSource(BytesIO(text.encode()))
    reader = Alike(source, point)
    found: list[Item] = []
    for at, line in source:
        if (one := point(at, line)) is not None:
            found.append(one)
        found += reader.after(line)
    return found


def flat(items: list[Item]) -> list[tuple[int, float | None, float]]:
    points = [one for item in items for one in (item.each() if isinstance(item, Points) else [item])]
    return [(one.line, one.step, one.values["loss"]) for one in points if isinstance(one, Point)]


def test_lines_after_the_first_become_columns() -> None:
    items = points_of("".join(f"12:00:{i:02} n={i} x={i}.25\n" for i in range(60)))
    assert [type(item) for item in items] == [Point, Points]
    assert flat(items) == [(i + 1, i, i + 0.25) for i in range(60)]


def test_a_line_of_another_kind_ends_them_and_is_counted() -> None:
    lines = [f"n={i} x=1.5" for i in range(40)]
    lines[20] = "n=20 x=nan"
    lines[30] = "an odd n=30 x=1.0"
    found = flat(points_of("\n".join(lines) + "\n"))
    assert [at for at, _, _ in found] == [i + 1 for i in range(40) if i != 30]
    assert [step for _, step, _ in found] == [i for i in range(40) if i != 30]


def test_states_of_a_progress_bar_stay_in_order() -> None:
    lines = [f"n={i} x=1.5" for i in range(40)]
    found = flat(points_of("n=100 x=1.5\rn=101 x=1.5\n" + "\n".join(lines) + "\n"))
    assert [step for _, step, _ in found] == [100, 101, *range(40)]


def test_a_number_that_reads_otherwise_when_longer_is_left_to_its_format(tmp_path: Path) -> None:
    text = "".join(f"step {i} loss 2.5 grad norm: 1.5 loss scale: 65,536 it\n" for i in range(60))
    (part,) = read(tmp_path, text).parts
    scale = part.steps.loss_scale
    assert scale is not None
    assert set(scale.values.tolist()) == {65536.0}


@pytest.mark.parametrize("text", ["007", "1.", "1e5", "-0.0", "123456789012345", "1.5E-04"])
def test_any_spelling_of_a_number_is_the_number(text: str) -> None:
    kept = f"x={text}" if "." in text or "e" in text.lower() else "x=1.5"
    step = text if text.isdigit() else "7"
    items = points_of(f"n={step} {kept}\n" * 20)
    assert isinstance(items[1], Points)
    assert set(flat(items)[5][1:]) == {int(step), float(kept[2:])}


@pytest.mark.parametrize("num_more", range(1, 5))
def test_columns_are_whole_whatever_is_left_of_them_after_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_more: int
) -> None:
    monkeypatch.setattr(assembly, "NUM_HELD", 20)
    text = "step,loss,grad_norm\n" + "".join(f"{i},2.5,{i}.5\n" for i in range(20 + num_more))
    (part,) = read(tmp_path, text).parts
    assert part.steps.step.tolist() == list(range(20 + num_more))
