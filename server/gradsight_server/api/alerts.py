"""Alerts over REST: lists of them, acknowledging, the rules, what a rule would have done, and who is told."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from gradsight_server.alert_schemas import (
    Acknowledgement,
    AlertPage,
    AlertRules,
    AlertRulesPut,
    AlertShape,
    PreviewRequest,
    RulePreview,
)
from gradsight_server.alerts import store
from gradsight_server.api.answers import Json
from gradsight_server.api.body import read_record
from gradsight_server.api.openapi import body_of
from gradsight_server.api.services import DatabaseHere, RunId
from gradsight_server.api.turns import OneAtATime
from gradsight_server.store import rule_changes
from gradsight_server.store.database import Database
from gradsight_server.store.runs import normal_run_id

router = APIRouter(tags=["alerts"])

DAY_S = 86_400.0
_previews = OneAtATime("previews")

Word = Annotated[str | None, Query(max_length=256)]
Limit = Annotated[int, Query(ge=1, le=store.MAX_LIMIT)]
Cursor = Annotated[str | None, Query(max_length=1024)]
State = Annotated[str | None, Query(max_length=64, description="open, acknowledged, resolved; several with commas.")]
Severity = Annotated[str | None, Query(max_length=64, description="info, warning, critical; several with commas.")]
RunHere = Annotated[str | None, Query(alias="run", max_length=64, description="A run's id.")]


@router.get("/alerts", responses={200: {"model": AlertPage}})
def list_alerts(
    database: DatabaseHere,
    state: State = None,
    severity: Severity = None,
    kind: Word = None,
    project: Word = None,
    run: RunHere = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Json:
    """Alerts of all runs, the newest first."""
    run_id = None if run is None else normal_run_id(run)
    with database.reading() as conn:
        return Json(
            store.list_alerts(
                conn,
                run_id=run_id,
                project=project,
                state=state,
                severity=severity,
                kind=kind,
                limit=limit,
                cursor=cursor,
            )
        )


@router.get("/runs/{run_id}/alerts", responses={200: {"model": AlertPage}})
def list_run_alerts(
    database: DatabaseHere,
    run_id: RunId,
    state: State = None,
    severity: Severity = None,
    kind: Word = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Json:
    """A run's alerts, the newest first."""
    with database.reading() as conn:
        return Json(
            store.list_alerts(
                conn, run_id=run_id, state=state, severity=severity, kind=kind, limit=limit, cursor=cursor
            )
        )


@router.post(
    "/runs/{run_id}/alerts/{alert_id}/acknowledge",
    responses={200: {"model": AlertShape}},
    openapi_extra=body_of(Acknowledgement, required=False),
)
async def acknowledge(
    request: Request,
    database: DatabaseHere,
    run_id: RunId,
    alert_id: Annotated[int, Path(ge=1, le=store.MAX_ALERT_ID)],
) -> Json:
    """Somebody has seen to it: it stays in the list, and is not told of again. Twice is as once."""
    given, _ = await read_record(request, Acknowledgement, empty=Acknowledgement())
    by, now_s = given.by or who(request), time.time()
    await asyncio.wrap_future(
        database.write(lambda conn: store.acknowledge(conn, run_id, alert_id, by=by, now_s=now_s))
    )
    return Json(await asyncio.to_thread(_alert, database, run_id, alert_id))


@router.get("/alert-rules", responses={200: {"model": AlertRules}})
def get_rules(database: DatabaseHere, project: Word = None, run: RunHere = None) -> Json:
    """The rules in force for a run, for a project, or everywhere, and what that scope itself changes."""
    run_id = None if run is None else normal_run_id(run)
    with database.reading() as conn:
        return Json(rule_changes.rules_of(conn, project=project, run_id=run_id))


@router.put("/alert-rules", responses={200: {"model": AlertRules}}, openapi_extra=body_of(AlertRulesPut))
async def put_rules(request: Request, database: DatabaseHere, project: Word = None, run: RunHere = None) -> Json:
    """Puts these changes in the place of all that the scope changes.

    A kind that is not named, and a field that is absent or null, is as the wider scope has it: a run's as its
    project's, a project's as everywhere, and that by default. An empty list goes back to all of that.
    """
    given, _ = await read_record(request, AlertRulesPut)
    run_id, now_s = None if run is None else normal_run_id(run), time.time()
    changes = [(rule.kind, rule.change) for rule in given.rules]
    await asyncio.wrap_future(
        database.write(lambda conn: rule_changes.put_rules(conn, changes, project=project, run_id=run_id, now_s=now_s))
    )
    return Json(await asyncio.to_thread(_rules, database, project, run_id))


@router.post("/alert-rules/preview", responses={200: {"model": RulePreview}}, openapi_extra=body_of(PreviewRequest))
async def preview_rule(request: Request, database: DatabaseHere, project: Word = None, run: RunHere = None) -> Json:
    """How often a rule would have fired, were it so at this scope: tried over the runs of the last days.

    What was looked at is said with it. Silence is told by pauses between steps, losses by what launches have said.
    """
    given, _ = await read_record(request, PreviewRequest)
    run_id, now_s = None if run is None else normal_run_id(run), time.time()

    def look() -> dict[str, Any]:
        with database.reading() as conn:
            return rule_changes.preview(
                conn,
                given.rule.kind,
                given.rule.change,
                project=project,
                run_id=run_id,
                since_s=now_s - given.days * DAY_S,
                now_s=now_s,
            )

    return Json(await _previews.run(look))


def who(request: Request) -> str | None:
    """Who asks, as far as anybody knows: there are no accounts, so it is the address."""
    return None if request.client is None else request.client.host


def _alert(database: Database, run_id: str, alert_id: int) -> dict[str, Any]:
    with database.reading() as conn:
        return store.alert(conn, run_id, alert_id)


def _rules(database: Database, project: str | None, run_id: str | None) -> dict[str, Any]:
    with database.reading() as conn:
        return rule_changes.rules_of(conn, project=project, run_id=run_id)
