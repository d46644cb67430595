"""Which step and which engine an overflow of DeepSpeed belongs to: from counts, scales and times of day."""

from dataclasses import dataclass
from itertools import pairwise

COPY_S = 1.0
"""Lines without a rank that say the same within so long are of several ranks."""


@dataclass(slots=True)
class Overflow:
    line: int
    time_s: float | None
    scale: float | None = None
    after: float | None = None
    iteration: int | None = None


@dataclass(slots=True)
class Progress:
    line: int
    time_s: float | None
    step: int
    skipped: int
    lr: float | None


@dataclass(slots=True)
class Engine:
    stream: str
    step: int = 0
    skipped: int = 0
    time_s: float | None = None
    step_s: float | None = None
    scale: float | None = None
    """For the next step, where it has just been reduced."""
    expected: float | None = None
    has_skips: bool = False


def shared(engines: list[Engine], overflows: list[Overflow], wanted: list[int]) -> list[list[Overflow]]:
    """Whose overflow is which: of those that still lack some, the one whose scale it is, and whose turn it is."""
    shares: list[list[Overflow]] = [[] for _ in engines]
    if len(engines) == 1:
        return [overflows]
    turn = 0
    for overflow in overflows:
        lacking = [i for i in range(len(engines)) if len(shares[i]) < wanted[i]]
        if not lacking:
            break
        mine = min(lacking, key=lambda i: (_is_foreign(overflow, engines[i]), (i - turn) % len(engines)))
        turn = mine + 1
        shares[mine].append(overflow)
        engines[mine].expected = overflow.after
    return shares


def _is_foreign(overflow: Overflow, engine: Engine) -> int:
    """0: the scale the engine had last; 1: one to which that may have grown; 2: neither."""
    if engine.expected is None or overflow.scale is None or overflow.scale == engine.expected:
        return 0
    return 1 if overflow.scale > engine.expected else 2


def guess(overflow: Overflow, engine: Engine, progress: Progress, first: Overflow) -> float | None:
    """The step of an overflow: from its iteration, else by its time between the lines around it.

    Before the first progress line of all, the first overflow is taken to be of the first step.
    """
    if overflow.iteration is not None and engine.step <= overflow.iteration < progress.step:
        return overflow.iteration + 1.0
    begin_s, begin = (engine.time_s, engine.step) if engine.time_s is not None else (first.time_s, engine.step + 1)
    if overflow.time_s is None or begin_s is None or progress.time_s is None or progress.time_s <= begin_s:
        return None
    return begin + (overflow.time_s - begin_s) / (progress.time_s - begin_s) * (progress.step - begin)


def after_last(engine: Engine, overflows: list[Overflow]) -> list[int | None]:
    """The steps of overflows that no progress line follows; None where nothing tells: the next one.

    Where no progress line has told how long a step takes, the shortest time between two overflows does.
    """
    step_s, begin_s = engine.step_s, engine.time_s
    times = [overflow.time_s for overflow in overflows if overflow.time_s is not None]
    if step_s is None or begin_s is None:
        step_s = min((b - a for a, b in pairwise(times) if b > a), default=None)
        begin_s = times[0] - step_s if step_s is not None else None
    steps: list[int | None] = []
    last = engine.step
    for overflow in overflows:
        step = None
        if overflow.iteration is not None and overflow.iteration >= last:
            step = overflow.iteration + 1
        elif step_s and begin_s is not None and overflow.time_s is not None:
            step = max(last + 1, engine.step + round((overflow.time_s - begin_s) / step_s))
        last = last if step is None else step
        steps.append(step)
    return steps


def is_copy(found: Overflow, last: Overflow) -> bool:
    says_same = (found.scale, found.after) == (last.scale, last.after) and found.after != found.scale
    if found.time_s is None or last.time_s is None:
        return says_same
    return says_same and abs(found.time_s - last.time_s) < COPY_S
