"""Where a point of a log belongs: its run, attempt and step; and which points are one step told in parts.

A log says of a point at most a stream, a rank and a number. Numbers may be missing, rounded (`1K`, `2.06e+04`), counted
anew in each epoch, go back because a run was resumed, or start again because another run follows in the same file.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from gradsight import wire
from gradsight_server.importers.items import Integers, Point, Points

NORM = "grad_norm_before_clip"
MAX_TURNS = 1_000
"""Of one file; a log whose numbers go back more often is not one of steps."""
NUM_LABELS = 64
"""So many of the newest numbers tell how far apart steps are, and to how many digits they are rounded."""


@dataclass(slots=True)
class Row:
    """One step, or a part of it."""

    run: int
    attempt: int
    """Within the run, from 0 on."""
    stream: str
    rank: int
    step: int
    point: Point
    threshold: float | None = None
    """The max_norm that the log's configuration had in force."""
    was_given: bool = False
    """It has been given once already, as things stood then."""


@dataclass(slots=True)
class Rows:
    """Rows of one attempt, one behind the other, as columns."""

    run: int
    attempt: int
    stream: str
    rank: int
    step: Integers
    points: Points
    threshold: float | None = None

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, part: slice) -> "Rows":
        return replace(self, step=self.step[part], points=self.points[part])

    def each(self) -> Iterator[Row]:
        for step, point in zip(self.step.tolist(), self.points.each(), strict=True):
            yield Row(self.run, self.attempt, self.stream, self.rank, step, point, self.threshold)


@dataclass(slots=True)
class Turn:
    """A place where the numbers do not simply rise."""

    line: int
    kind: str
    """`resume`, `launch` (goes on, but another launch), `run`."""
    before: int
    after: int


@dataclass(slots=True)
class _Track:
    """The points of one stream and rank."""

    launch: int
    run: int
    attempt: int
    label: float | None = None
    """The number of the point before, as the log has it."""
    step: int = -1
    first_label: float | None = None
    epoch: float | None = None
    first_epoch: float | None = None
    offset: int = 0
    """What is added to a number that is counted within an epoch."""
    digits: int | None = None
    """Significant digits of rounded numbers; None while they look exact."""
    labels: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LABELS))
    open: Row | None = None
    has_copies: bool = False
    """There have been further points of one number."""
    num_points: int = 0


class Placing:
    """Gives rows, one step each, as points come.

    Args:
        emit: Takes a row once nothing more is told of its step. After `flush` it may get a row again, with more in it.
        emit_many: Takes rows of which nothing more is told.
        on_place: Called with the run of a point before its row is made; gives the threshold in force for a stream.
    """

    def __init__(
        self,
        emit: Callable[[Row], None],
        emit_many: Callable[[Rows], None],
        on_place: Callable[[int, str], float | None],
    ) -> None:
        self._emit = emit
        self._emit_many = emit_many
        self._on_place = on_place
        self._tracks: dict[tuple[str, int], _Track] = {}
        self._launch = 0
        self._has_points_in_launch = False
        self._is_other_run = False
        self.run = 0
        self.attempt = 0
        self.turns: list[Turn] = []
        self.remarks: Counter[str] = Counter()
        """How often something had to be worked out: unnumbered, rounded, per_epoch, copies, again, odd_steps."""
        self._digits: int | None = None

    def restart(self) -> None:
        """Another launch writes from here on."""
        if self._has_points_in_launch:
            self._launch += 1
            self._has_points_in_launch = False

    def other_run(self) -> None:
        """The next point is of another run, whatever its number."""
        self._is_other_run = bool(self._tracks)

    def round_to(self, digits: int) -> None:
        """Numbers are known to be rounded to so many digits."""
        self._digits = max(1, digits)

    def point(self, point: Point) -> None:
        if not point.values and not point.layer_norms:
            self._aside(point)
            return
        self._has_points_in_launch = True
        track = self._tracks.get((point.stream, point.rank))
        if point.epoch is not None and not math.isfinite(point.epoch):
            point.epoch = None
        label = point.step
        if label is None or not 0 <= label <= wire.MAX_STEP or label % 1:  # NaN is in no range
            self._note_odd(point)
            label = None
        if track is None:
            self._begin_track(point, label)
        elif track.run != self.run or track.attempt != self.attempt:
            self._follow(track, point, label)
        elif self._is_other_run:
            self._begin_run(point.line, track.step, _shown(label, 0))
            self._follow(track, point, label)
        elif label is None:
            self._unnumbered(track, point)
        elif track.launch != self._launch:
            self._launched(track, point, label)
        elif track.label is None or label > track.label:
            self._forward(track, point, label)
        elif label == track.label:
            self._same(track, point, label)
        else:
            self._back(track, point, label)

    def points(self, points: Points) -> bool:
        """Whether these simply go on from the point before; else nothing was done, and they are to come one by one."""
        track = self._tracks.get((points.stream, points.rank))
        if track is None or not points.values or track.digits is not None or self._is_other_run:
            return False
        if len(points) < 2:  # the last one stays open
            return False
        if (track.run, track.attempt, track.launch) != (self.run, self.attempt, self._launch):
            return False
        steps = _steps_after(track, points)
        if steps is None or not _are_epochs(track, points):
            return False
        if points.step is None:
            self.remarks["unnumbered"] += len(points)
        if track.open is not None and not track.open.was_given:
            self._emit(track.open)
        threshold = self._on_place(self.run, points.stream)
        rows = Rows(self.run, track.attempt, points.stream, points.rank, steps, points, threshold)
        self._emit_many(rows[:-1])
        (track.open,) = rows[-1:].each()
        track.step = track.open.step
        track.num_points += len(points)
        if points.step is not None:
            track.labels.extend(points.step[-NUM_LABELS:].tolist())
            track.label = track.labels[-1]
        if points.epoch is not None:
            track.epoch = track.open.point.epoch
        return True

    def flush(self) -> None:
        """Gives what is told so far of the steps that are not complete yet; they stay open."""
        for track in self._tracks.values():
            if track.open is not None and not track.open.was_given:
                track.open.was_given = True
                point = track.open.point
                so_far = replace(point, values=dict(point.values), metrics=dict(point.metrics))
                self._emit(replace(track.open, point=so_far))  # a copy: whoever gets it may put it right

    def close(self) -> None:
        for track in self._tracks.values():
            self._shut(track)

    # One case each

    def _note_odd(self, point: Point) -> None:
        self.remarks["unnumbered" if point.step is None else "odd_steps"] += 1

    def _begin_track(self, point: Point, label: float | None) -> None:
        if self._is_other_run:
            self._begin_run(point.line, 0, 0)
        track = _Track(self._launch, self.run, self.attempt, digits=self._digits)
        self._tracks[point.stream, point.rank] = track
        self._advance(track, point, label, 0 if label is None else int(label))

    def _aside(self, point: Point) -> None:
        """Metrics alone, an evaluation say: of the step they name, without moving on."""
        if not point.metrics:
            return
        track = self._tracks.get((point.stream, point.rank)) or next(iter(self._tracks.values()), None)
        label = point.step
        if label is not None and (not 0 <= label <= wire.MAX_STEP or label % 1):
            self._note_odd(point)
            label = None
        if track is not None and track.open is not None and label in (None, track.label):
            track.open.point.metrics.update(point.metrics)
            track.open.was_given = False
            return
        if label is not None:
            step = int(label) + (track.offset if track is not None else 0)
        else:
            step = max(track.step, 0) if track is not None else 0
        self._on_place(self.run, point.stream)
        self._emit(Row(self.run, self.attempt, point.stream, point.rank, min(step, wire.MAX_STEP), point))

    def _unnumbered(self, track: _Track, point: Point) -> None:
        epoch = point.epoch
        if epoch is not None and track.epoch is not None and epoch < track.epoch - 1e-9:
            begins_again = track.first_epoch is not None and epoch <= track.first_epoch + 1e-9
            self._turn(track, point, None, "run" if begins_again else "resume")
        else:
            self._advance(track, point, None, track.step + 1)

    def _launched(self, track: _Track, point: Point, label: float) -> None:
        """The first point after a banner."""
        step = int(label) + track.offset
        starts_over = label <= self._spacing(track) or label == track.first_label
        if step <= track.step:
            self._turn(track, point, label, "run" if starts_over else "resume")
        else:
            self._turn(track, point, label, "launch")

    def _forward(self, track: _Track, point: Point, label: float) -> None:
        if track.digits is None:
            step = int(label) + track.offset
            self._advance(track, point, label, step if step > track.step else track.step + 1)
        else:
            self._advance(track, point, label, self._rounded(track, label))

    def _same(self, track: _Track, point: Point, label: float) -> None:
        """The same number again: the rest of the step, a copy of it, a number that is rounded, or the step anew.

        Lines that do not name a rank may be micro-batches as well as ranks: the last one stands for the step.
        """
        if track.digits is not None:
            self._advance(track, point, label, self._rounded(track, label))
            return
        before = track.open
        if before is None:
            self._advance(track, point, label, track.step)
            return
        values = before.point.values
        if same_values(values, point.values):
            before.point.metrics.update(point.metrics)
            self._note_copy(track)
            return
        common = values.keys() & point.values.keys()
        if same_values({name: values[name] for name in common}, {name: point.values[name] for name in common}):
            _merge(before.point, point)
            before.was_given = False
            return
        if not track.has_copies and self._looks_rounded(track, label):
            track.digits = _digits(track.labels)
            self.remarks["rounded"] += 1
            self._advance(track, point, label, self._rounded(track, label))
            return
        track.has_copies = True
        self.remarks["again"] += 1
        _take_over(before.point, point)
        before.was_given = False

    def _note_copy(self, track: _Track) -> None:
        track.has_copies = True
        self.remarks["copies"] += 1

    def _back(self, track: _Track, point: Point, label: float) -> None:
        epoch, before = point.epoch, track.epoch
        if epoch is not None and before is not None and math.floor(epoch) > math.floor(before):
            self.remarks["per_epoch"] += 1
            step = track.step + self._spacing(track)
            track.offset = step - int(label)
            self._advance(track, point, label, step)
            return
        starts_over = label <= self._spacing(track) and track.num_points > 1
        self._turn(track, point, label, "run" if starts_over else "resume")

    # What they share

    def _turn(self, track: _Track, point: Point, label: float | None, kind: str) -> None:
        if kind == "run":
            self._begin_run(point.line, track.step, _shown(label, 0))
        else:
            if self._note_turn(Turn(point.line, kind, track.step, _shown(label, track.step + 1))):
                self.attempt += 1
        self._follow(track, point, label)

    def _begin_run(self, line: int, before: int, after: int) -> None:
        self._is_other_run = False
        if self._note_turn(Turn(line, "run", before, after)):
            self.run += 1
            self.attempt = 0

    def _note_turn(self, turn: Turn) -> bool:
        """Whether it still counts."""
        is_one_more = len(self.turns) < MAX_TURNS
        if is_one_more:
            self.turns.append(turn)
        return is_one_more

    def _follow(self, track: _Track, point: Point, label: float | None) -> None:
        """The track goes where the file is by now: a launch is one of all ranks and streams."""
        self._shut(track)
        is_same_run = track.run == self.run
        track.run, track.attempt, track.launch = self.run, self.attempt, self._launch
        track.offset = 0
        if not is_same_run:
            track.labels.clear()
            track.first_label = track.first_epoch = None
            track.step = -1
            track.digits = self._digits
        track.label = None
        self._advance(track, point, label, track.step + 1 if label is None else int(label))

    def _advance(self, track: _Track, point: Point, label: float | None, step: int) -> None:
        before = track.open
        if before is not None and not before.was_given:
            self._emit(before)
        threshold = self._on_place(self.run, point.stream)
        if step > wire.MAX_STEP:
            step = wire.MAX_STEP
        track.open = Row(self.run, track.attempt, point.stream, point.rank, step, point, threshold)
        track.step = step
        track.num_points += 1
        track.launch = self._launch
        if label is not None:
            if track.first_label is None:
                track.first_label = label
            # A rounded number tells how far apart steps are only where it moves by more than it is rounded to.
            if track.digits is None or track.label is None or label - track.label > _unit(label, track.digits):
                track.labels.append(label)
            track.label = label
        if point.epoch is not None:
            if track.first_epoch is None:
                track.first_epoch = point.epoch
            track.epoch = point.epoch

    def _shut(self, track: _Track) -> None:
        if track.open is not None:
            if not track.open.was_given:
                self._emit(track.open)
            track.open = None

    def _spacing(self, track: _Track) -> int:
        """How far steps are apart, as far as seen; 1 where nothing is."""
        labels = list(track.labels)
        distances = Counter(int(b - a) for a, b in pairwise(labels) if b > a)
        return distances.most_common(1)[0][0] if distances else 1

    def _looks_rounded(self, track: _Track, label: float) -> bool:
        """Whether the number may stand for several steps that were recorded, as `1K` does at every 200th."""
        unit = _unit(label, _digits(track.labels))
        rises = len(set(track.labels)) > 1
        return unit > self._spacing(track) if rises else label >= 1000 and unit >= 100

    def _rounded(self, track: _Track, label: float) -> int:
        """The step after the one before where the rounded number allows it, else the number itself."""
        assert track.digits is not None
        step = track.step + self._spacing(track)
        if abs(step - label - track.offset) <= _unit(label, track.digits):
            return step
        return max(int(label) + track.offset, track.step + 1)


def _steps_after(track: _Track, points: Points) -> Integers | None:
    """The steps of points whose numbers rise from that of the track on, or that have none as it has none."""
    labels = points.step
    if (labels is None) != (track.label is None):
        return None
    if labels is None:
        return np.arange(track.step + 1, track.step + 1 + len(points))
    if not labels[0] > max(track.label or 0.0, track.step - track.offset) or labels[-1] + track.offset > wire.MAX_STEP:
        return None
    steps = labels.astype(np.int64)
    return steps + track.offset if (steps == labels).all() and (np.diff(steps) > 0).all() else None


def _are_epochs(track: _Track, points: Points) -> bool:
    """Whether the epochs, where there are any, go on from the one before without a fall, in which a run may begin."""
    if points.epoch is None:
        return True
    before = points.epoch[0] if track.epoch is None else track.epoch
    return track.first_epoch is not None and bool((np.diff(points.epoch, prepend=before) >= 0).all())


def same_values(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two points tell the same; a NaN is like another."""
    if one.keys() != other.keys():
        return False
    return all(value == other[name] or (value != value and other[name] != other[name]) for name, value in one.items())


def _merge(into: Point, point: Point) -> None:
    into.values.update(point.values)
    into.metrics.update(point.metrics)
    into.layer_norms.update(point.layer_norms)
    into.skip_reason = into.skip_reason or point.skip_reason
    into.first_nonfinite_layer = into.first_nonfinite_layer or point.first_nonfinite_layer
    if into.wall_time_s is None:
        into.wall_time_s = point.wall_time_s


def _take_over(into: Point, point: Point) -> None:
    """The later of two points of a step in place of the earlier; a norm that is not finite is never covered up."""
    norm = into.values.get(NORM)
    _merge(into, point)
    if norm is not None and not math.isfinite(norm):
        into.values[NORM] = norm


def _shown(label: float | None, otherwise: int) -> int:
    return otherwise if label is None else int(label)


def _digits(labels: deque[float]) -> int:
    """The most significant digits any of them has."""
    return max((len(str(int(label)).rstrip("0")) for label in labels), default=1) or 1


def _unit(label: float, digits: int) -> int:
    """What a number of this size is rounded to, with so many significant digits."""
    length = len(str(int(label)))
    return int(10 ** max(length - digits, 0))
