"""No line breaks a reader, whatever stands where a number should; nor does a line that goes on for long."""

import re
from collections.abc import Iterator

import pytest

from gradsight_server.importers.format import LineFormat
from gradsight_server.importers.registry import known_formats
from tests.server.importers.formats.reading import read
from tests.server.importers.formats.test_recognised import ALSO, SAMPLES

ODD = ("9" * 400, "9" * 5000, "-1", "nan", "-inf", "1e999", "", "NaN", "1,234", "٣", "tensor(1.0)", "{", "'", "|")
LONG = 50_000
REPEATED = ("a", " ", "1", "_a", "loss[", "--> ", "{'loss': ", "clip_grad ", "| > ", "'", "a: ", "a=1,", "[1/2]", "1%|")
LINES = [*SAMPLES.items(), *ALSO.items()]


def line_format(name: str) -> LineFormat:
    found = known_formats()[name]
    assert isinstance(found, LineFormat)
    return found


def with_odd_numbers(line: str) -> Iterator[str]:
    for number in re.finditer(r"\d+(?:\.\d+)?", line):
        for odd in ODD:
            yield line[: number.start()] + odd + line[number.end() :]


@pytest.mark.parametrize(("name", "line"), LINES)
def test_odd_numbers_break_nothing(name: str, line: str) -> None:
    changed = list(with_odd_numbers(line))
    got = read(line_format(name), "\n".join([*changed, line]))
    assert got.points
    values = [value for point in got.points for value in (*point.values.values(), *point.metrics.values())]
    assert all(isinstance(value, float | int) for value in values)


@pytest.mark.parametrize(("name", "line"), LINES)
def test_cut_lines_break_nothing(name: str, line: str) -> None:
    got = read(line_format(name), "\n".join([line[:end] for end in range(1, len(line))] + [line]))
    assert got.points


@pytest.mark.parametrize(("name", "line"), LINES)
def test_long_lines_end(name: str, line: str) -> None:
    """A pattern that tries again from everywhere would not come back within the time a test has."""
    for piece in REPEATED:
        longer = piece * (LONG // len(piece))
        for at in (0, len(line) // 2, len(line)):
            read(line_format(name), line[:at] + longer + line[at:])
