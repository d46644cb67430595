"""Saying once over how many steps a log's numbers are means: seen from how far apart its first lines are."""

from collections.abc import Iterator, Mapping

from gradsight_server.importers.items import Meaning


class Means:
    """Of a log that prints the mean since its line before.

    Args:
        columns: The log's own names by our columns.
        remark: What else there is to say of each.
    """

    def __init__(self, columns: Mapping[str, str], *, remark: str = "") -> None:
        self._columns = columns
        self._remark = remark
        self._step: float | None = None
        self.is_said = False

    def seen(self, step: float | None) -> Iterator[Meaning]:
        """To be asked at each point until `is_said`."""
        if self.is_said or step is None:
            return
        if self._step is not None and step > self._step:
            yield from self.say(step - self._step)
        self._step = step

    def say(self, num_steps: float) -> Iterator[Meaning]:
        """Where the configuration tells; nothing is to be said of single steps."""
        if not self.is_said and not num_steps <= 1:
            for column, source in self._columns.items():
                yield Meaning(column, source, averaged_over_steps=num_steps, remark=self._remark)
        self.is_said = True
