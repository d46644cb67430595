"""The diagnosis of a stream over REST, and what another clipping policy would have done to its norms."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Request

from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, parse_policy
from gradsight.thresholds import Threshold
from gradsight_server.api.answers import Json
from gradsight_server.api.figure_cache import FigureCache
from gradsight_server.api.openapi import json_of
from gradsight_server.api.services import AttemptNumber, Bound, DatabaseHere, RunId, StreamName
from gradsight_server.diagnosis import Diagnosis, diagnose
from gradsight_server.diagnosis.inputs import Floats, Histogram
from gradsight_server.diagnosis.texts import CATALOGUES
from gradsight_server.diagnosis.whatif import MAX_REPLAYED, WhatIf, what_if, what_if_from_histogram
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store.database import Database
from gradsight_server.store.evidence import evidence, run_stamp
from gradsight_server.store.norms import newest_norms, norm_histogram

if TYPE_CHECKING:
    from sqlalchemy import Connection

router = APIRouter(prefix="/runs/{run_id}", tags=["diagnosis"])

MAX_EXACT = 20_000
"""A fixed threshold is held against so many of the newest norms one by one; against more, by their histogram."""

_replaying = threading.Semaphore(1)
"""A moving threshold goes from norm to norm in Python, for up to a second: one at a time, so that the rest goes on."""


def check_language(lang: str) -> None:
    """
    Raises:
        InvalidRequestError: nothing is said in this language.
    """
    if lang not in CATALOGUES:
        raise InvalidRequestError(f"lang must be one of {', '.join(sorted(CATALOGUES))}, got {lang!r}.")


@router.get("/diagnosis", responses={200: json_of(Diagnosis, "Verdicts and findings.")})
def get_diagnosis(
    request: Request,
    database: DatabaseHere,
    run_id: RunId,
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    lang: Annotated[str, Query(max_length=16)] = "en",
) -> Json:
    """Verdicts on clipping and loss scale, non-finite bursts, layers, and findings with numbers and advice.

    Judged are the newest steps of the range; counts and extremes are those of all of it.
    """
    check_language(lang)

    def draw() -> dict[str, Any]:
        with database.reading() as conn:
            found = evidence(conn, run_id, stream=stream, attempt=attempt, first_step=first_step, last_step=last_step)
        return diagnose(found.steps, found.context, found.facts, lang=lang).to_json()

    return _kept(request, database, run_id, ("diagnosis", stream, attempt, first_step, last_step, lang), draw)


@router.get("/what-if", responses={200: json_of(WhatIf, "What the policy would have done.")})
def get_what_if(
    request: Request,
    database: DatabaseHere,
    run_id: RunId,
    clip: Annotated[
        str,
        Query(
            max_length=4096, description="A policy of one global norm, `1.0` or `global_norm(max_norm=zscore(z=2.5))`."
        ),
    ],
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
) -> Json:
    """What this policy would have clipped, had it been in force over the recorded norms.

    Policies that look at single layers or elements need the gradients themselves and are refused.
    """
    answered = _replayed if _moves(clip) else _held_against
    asked: dict[str, Any] = {"stream": stream, "attempt": attempt, "first_step": first_step, "last_step": last_step}

    def draw() -> dict[str, Any]:
        with database.reading() as conn:
            found = answered(conn, run_id, clip, asked)
        answer: dict[str, Any] = msgspec.to_builtins(found)
        return answer

    return _kept(request, database, run_id, ("what-if", stream, attempt, first_step, last_step, clip), draw)


def _moves(clip: str) -> bool:
    """Whether the threshold goes from norm to norm; what cannot be read, `what_if` refuses in words."""
    try:
        policy = parse_policy(clip)
    except ConfigurationError:
        return False
    return isinstance(policy, GlobalNorm) and isinstance(policy.max_norm, Threshold)


def _replayed(conn: "Connection", run_id: str, clip: str, asked: dict[str, Any]) -> WhatIf:
    step, norms = newest_norms(conn, run_id, limit=MAX_REPLAYED + 1, **asked)
    with _replaying:
        found = what_if(norms[-MAX_REPLAYED:], clip, step=step[-MAX_REPLAYED:])
    if len(norms) > MAX_REPLAYED:
        note = f"A moving threshold is replayed over the newest {MAX_REPLAYED:,} steps of the range, which has more."
    elif _num_not_kept(norms, norm_histogram(conn, run_id, **asked)):
        note = f"Only {len(norms):,} steps of the range are still kept one by one: it is replayed over those."
    else:
        return found
    return msgspec.structs.replace(found, notes=[*found.notes, note])


def _held_against(conn: "Connection", run_id: str, clip: str, asked: dict[str, Any]) -> WhatIf:
    step, norms = newest_norms(conn, run_id, limit=MAX_EXACT + 1, **asked)
    newest = what_if(norms[-MAX_EXACT:], clip, step=step[-MAX_EXACT:])
    whole = norm_histogram(conn, run_id, **asked)
    if len(norms) <= MAX_EXACT and not _num_not_kept(norms, whole):
        return newest
    num_exact = min(len(norms), MAX_EXACT)
    note = f"Spikes are those of the newest {num_exact:,} steps; all else is of the whole range, by its histogram."
    if not num_exact:
        note = "The steps of this range are no longer kept one by one: this is by their histogram, and knows no spikes."
    return msgspec.structs.replace(
        what_if_from_histogram(whole, clip),
        num_spikes=newest.num_spikes,
        num_spikes_clipped=newest.num_spikes_clipped,
        spikes_clipped=newest.spikes_clipped,
        spikes_passed=newest.spikes_passed,
        notes=[newest.notes[0], note],
    )


def _num_not_kept(norms: Floats, whole: Histogram) -> int:
    """How many finite norms of the range retention has left to the histogram alone."""
    return max(0, int(whole.counts.sum()) - int(np.count_nonzero(np.isfinite(norms))))


def _kept(
    request: Request, database: Database, run_id: str, asked: tuple[Any, ...], draw: Callable[[], dict[str, Any]]
) -> Json:
    """The answer, made anew only where the run has changed since."""
    cache: FigureCache = request.app.state.diagnosis_cache
    with database.reading() as conn:
        stamp = run_stamp(conn, run_id)
    answer = cache.get((run_id, *asked), position=0, version=stamp, draw=draw)
    del answer["position"]
    return Json(answer)
