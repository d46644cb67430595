"""What a log writes where it has nothing to say: placeholders, stale repeats, a clip ratio only when clipped.

Each is taken out or put right here, counted, and told in a note; nothing is made up.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradsight_server.importers.items import Meaning
from gradsight_server.importers.placing import Row, Rows

NORM, SCALE, COEF, MAX_NORM = "grad_norm_before_clip", "loss_scale", "clip_coef", "max_norm"
NOT_FINITE = -1.0
"""What DeepSpeed gives for a norm that is not finite."""


@dataclass(slots=True)
class _Stream:
    """What is known of one stream of one run."""

    is_plain: bool = False
    """Norms above zero have been seen, so that another one needs no second look."""
    norm_is_placeholder: bool = False
    norm_is_negative: bool = False
    """Negative throughout: a placeholder too."""
    scales_norm: bool = False
    coef_only_when_clipped: bool = False
    threshold: float | None = None
    """Worked out from the newest clip ratio."""
    first_threshold: float | None = None
    last_norm: float | None = None
    last_step: int = -1
    """Of `last_norm`."""
    max_norm_given: float | None = None


@dataclass(slots=True)
class Cleaning:
    """Puts rows right as they come, after it has seen some.

    Args:
        max_norm: The threshold a person says was in force: over all that the log says.
    """

    max_norm: float | None = None
    meanings: dict[str, Meaning] = field(default_factory=dict)
    """By our column's name."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many rows were put right, by kind."""
    _streams: dict[tuple[int, str], _Stream] = field(default_factory=dict)

    def look(self, rows: Sequence[Row]) -> None:
        """Learns from the first rows of a log what its numbers are."""
        by_stream: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            by_stream.setdefault((row.run, row.stream), []).append(row)
        for key, of_stream in by_stream.items():
            self._streams[key] = self._seen(of_stream)

    def _seen(self, rows: list[Row]) -> _Stream:
        norms = list(_recorded(rows, NORM))
        losses = {value for value in _recorded(rows, "loss") if value == value}
        coefs = [value for value in _recorded(rows, COEF) if value == value]
        found = _Stream()
        found.norm_is_placeholder = len(norms) > 1 and len(losses) > 1 and not any(norms)
        finite = [norm for norm in norms if math.isfinite(norm)]
        found.norm_is_negative = len(finite) > 1 and all(norm < 0 for norm in finite)
        found.coef_only_when_clipped = 0 < len(coefs) < len(norms) and all(coef < 1 for coef in coefs)
        found.max_norm_given = next((row.threshold for row in rows if row.threshold is not None), None)
        derived = (_derived(row) for row in rows)
        found.first_threshold = next((threshold for threshold in derived if threshold is not None), None)
        return found

    def clean(self, row: Row) -> None:
        key = (row.run, row.stream)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
        values = row.point.values
        norm = values.get(NORM)
        if norm is not None:
            if stream.is_plain and norm > 0 and norm != stream.last_norm:
                stream.last_norm, stream.last_step = norm, row.step
            else:
                self._norm(stream, row, norm)
        scale = values.get(SCALE)
        if scale is not None and scale <= 0:
            del values[SCALE]
            self.counts["scale_placeholder"] += 1
        if row.threshold is None or self.max_norm is not None or MAX_NORM in values:
            self._threshold(stream, row)
        else:
            values[MAX_NORM] = row.threshold

    def is_clean(self, rows: Rows) -> bool:
        """Whether nothing has to be put right in these, which then have their threshold; else nothing was done."""
        stream = self._streams.get((rows.run, rows.stream))
        values = rows.points.values
        norms, scales = values.get(NORM), values.get(SCALE)
        if stream is None or (scales is not None and not (scales > 0).all()):
            return False
        if norms is not None:
            before = math.nan if stream.last_norm is None else stream.last_norm
            is_stale = (np.diff(norms, prepend=before) == 0) & (values.get("skipped", 0.0) == 1.0)
            if not stream.is_plain or not (norms > 0).all() or is_stale.any():
                return False
        given = stream.max_norm_given if rows.threshold is None else rows.threshold
        threshold = given if self.max_norm is None else self.max_norm
        if threshold is None and MAX_NORM not in values and (COEF in values or stream.coef_only_when_clipped):
            return False
        if threshold is not None and (MAX_NORM not in values or self.max_norm is not None):
            values[MAX_NORM] = np.full(len(rows), threshold)
        if norms is not None and len(norms):
            stream.last_norm, stream.last_step = float(norms[-1]), int(rows.step[-1])
        return True

    def _norm(self, stream: _Stream, row: Row, norm: float) -> None:
        values = row.point.values
        if norm == 0 and stream.norm_is_placeholder:
            del values[NORM]
            self.counts["norm_placeholder"] += 1
            return
        stream.norm_is_placeholder = False
        if norm == -math.inf:
            values[NORM] = math.nan
            return
        if norm < 0:
            if stream.norm_is_negative or norm != NOT_FINITE:
                del values[NORM]
                self.counts["norm_negative"] += 1
            else:
                values[NORM] = math.nan
                self.counts["norm_not_finite"] += 1
            return
        stream.norm_is_negative = False
        is_repeated = math.isfinite(norm) and norm == stream.last_norm and row.step != stream.last_step
        if is_repeated and norm > 0 and values.get("skipped") == 1.0:
            del values[NORM]
            self.counts["norm_stale"] += 1
            return
        stream.last_norm, stream.last_step = norm, row.step
        meaning = self.meanings.get(NORM)
        if meaning is None or not meaning.is_scaled:
            stream.is_plain = True
            return
        stream.is_plain = False
        scale = values.get(SCALE)
        if scale is not None and 0 < scale < math.inf:
            values[NORM] = norm / scale
            self.counts["norm_unscaled"] += 1

    def _threshold(self, stream: _Stream, row: Row) -> None:
        values = row.point.values
        if self.max_norm is not None:
            values[MAX_NORM] = self.max_norm
            return
        if MAX_NORM in values:
            return
        if stream.max_norm_given is not None:
            values[MAX_NORM] = stream.max_norm_given
            return
        coef = values.get(COEF)
        if coef is None and not stream.coef_only_when_clipped:
            return
        if coef is not None and coef >= 1:
            stream.coef_only_when_clipped = False
        derived = _derived(row)
        if derived is not None:
            same = stream.threshold is not None and math.isclose(derived, stream.threshold, rel_tol=5e-3)
            stream.threshold = stream.threshold if same else derived
            values[MAX_NORM] = stream.threshold  # type: ignore[assignment]  # one of the two is there
            self.counts["threshold_from_coef"] += 1
        elif stream.coef_only_when_clipped and NORM in values:
            values[COEF] = 1.0
            known = stream.threshold if stream.threshold is not None else stream.first_threshold
            if known is not None:
                values[MAX_NORM] = known
            self.counts["coef_absent"] += 1


def _recorded(rows: Iterable[Row], name: str) -> Iterable[float]:
    return (row.point.values[name] for row in rows if name in row.point.values)


def _derived(row: Row) -> float | None:
    """The threshold by the ratio of a clipped step, without the last digits, which are those of a rounded ratio."""
    coef, norm = row.point.values.get(COEF), row.point.values.get(NORM)
    if coef is None or norm is None or not (0 < coef < 1 and 0 < norm < math.inf):
        return None
    found = coef * norm
    rounded = float(f"{found:.2g}")
    return rounded if math.isclose(found, rounded, rel_tol=5e-3) else found
