"""What is wrong with the record itself: lost rows, gaps, ranks that disagree."""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning


def ranks_disagree(observed: Observed) -> Iterator[Found]:
    """Ranks that should hold the same total norm report different ones, so they clip differently."""
    others = [norms for norms in observed.context.rank_norms.values() if len(norms) == observed.num_rows]
    if not others or observed.num_rows == 0:
        return
    by_rank = np.stack([observed.norm, *others])
    by_rank = np.where(np.isfinite(by_rank), by_rank, np.nan)
    several = np.count_nonzero(np.isfinite(by_rank), axis=0) >= 2
    low = np.where(np.isfinite(by_rank), by_rank, np.inf).min(axis=0)
    high = np.where(np.isfinite(by_rank), by_rank, -np.inf).max(axis=0)
    differ = several & (high - low > borders.RANK_TOLERANCE * high)
    rows = np.flatnonzero(differ)
    if len(rows) < min(borders.RANK_STEPS, max(1, int(np.count_nonzero(several)))):
        return
    worst = rows[int(np.argmax(high[rows] / np.maximum(low[rows], np.finfo(np.float64).tiny)))]
    yield Found(
        code="ranks_disagree",
        severity="warning",
        evidence={
            "num_steps": len(rows),
            "num_ranks": len(others) + 1,
            "at_step": observed.step_at(worst),
            "largest_norm": float(high[worst]),
            "smallest_norm": float(low[worst]),
        },
        steps=spanning(observed, rows[0], rows[-1]),
    )


def telemetry_lost(observed: Observed) -> Iterator[Found]:
    """The training process lost rows: what is shown has holes."""
    lost = sum(max(0, count) for count in observed.context.dropped.values())
    if lost == 0:
        return
    num_recorded = observed.num_rows if observed.facts is None else observed.facts.num_steps
    fraction = lost / (lost + num_recorded)
    yield Found(
        code="telemetry_lost",
        severity="warning" if fraction > borders.LOST_FRACTION else "info",
        evidence={"num_rows": lost, "fraction": fraction},
        names=tuple(sorted(reason for reason, count in observed.context.dropped.items() if count > 0)),
        steps=spanning(observed, 0, observed.num_rows - 1) if observed.num_rows else None,
    )


def telemetry_gap(observed: Observed) -> Iterator[Found]:
    """Step numbers jump: steps in between were not recorded."""
    distances = np.diff(observed.step)
    if len(distances) < borders.BURST_WINDOW:
        return
    usual = float(np.percentile(distances, borders.GAP_PERCENTILE, method="lower"))
    gaps = np.flatnonzero(distances > borders.GAP_RATIO * max(usual, 1.0))
    if len(gaps) == 0:
        return
    largest = int(gaps[np.argmax(distances[gaps])])
    yield Found(
        code="telemetry_gap",
        severity="info",
        evidence={"num_gaps": len(gaps), "num_steps": float(distances[gaps].sum() - len(gaps) * usual)},
        steps=spanning(observed, largest, largest + 1),
    )
