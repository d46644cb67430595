"""What a format makes of a text, given its lines as the registry gives them."""

from collections.abc import Iterator
from dataclasses import dataclass

from gradsight_server.importers.format import LineFormat, Options
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Restart, Setting, Unread


@dataclass(frozen=True)
class Reading:
    items: tuple[Item, ...]

    @property
    def points(self) -> list[Point]:
        return [item for item in self.items if isinstance(item, Point)]

    @property
    def steps(self) -> list[float | None]:
        return [point.step for point in self.points]

    @property
    def settings(self) -> dict[str, float | str | None]:
        return {item.name: item.value for item in self.items if isinstance(item, Setting)}

    @property
    def meanings(self) -> dict[str, Meaning]:
        return {item.column: item for item in self.items if isinstance(item, Meaning)}

    @property
    def happened(self) -> list[Happened]:
        return [item for item in self.items if isinstance(item, Happened)]

    @property
    def restarts(self) -> list[Restart]:
        return [item for item in self.items if isinstance(item, Restart)]

    @property
    def unread(self) -> list[Unread]:
        return [item for item in self.items if isinstance(item, Unread)]

    def column(self, name: str, stream: str | None = None) -> list[float | None]:
        """One value a point, None where it has none."""
        return [point.values.get(name) for point in self.points if stream in (None, point.stream)]

    def recorded(self, name: str, stream: str | None = None) -> list[float]:
        return [value for value in self.column(name, stream) if value is not None]


def read(log_format: LineFormat, text: str) -> Reading:
    return Reading(tuple(log_format.read(_lines(log_format, text), Options())))


def _lines(log_format: LineFormat, text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.strip("\n").split("\n"), start=1):
        matters = log_format.pattern.search(line) or (log_format.also is not None and log_format.also.search(line))
        if matters or not log_format.only_matching:
            yield number, line
