"""Notification targets over REST: how each fares, and a test. Where they are is in the server's configuration only."""

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request

from gradsight_server.alert_schemas import TargetList, TargetTests, TestRequest
from gradsight_server.alerts.courier import Courier
from gradsight_server.alerts.messages import trial_note
from gradsight_server.alerts.notify import Target
from gradsight_server.api.answers import Json
from gradsight_server.api.body import read_record
from gradsight_server.api.openapi import body_of
from gradsight_server.api.services import DatabaseHere
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import outbox

router = APIRouter(prefix="/notification-targets", tags=["alerts"])

TEST_TIMEOUT_S = 15.0


@router.get("", responses={200: {"model": TargetList}})
def list_targets(request: Request, database: DatabaseHere) -> Json:
    """Who is told of alerts, and whether they can be reached."""
    courier: Courier = request.app.state.courier
    ids = [target.target_id for target in courier.targets]
    with database.reading() as conn:
        known = outbox.progress(conn, ids)
        waiting = {
            target.target_id: outbox.num_waiting(conn, known[target.target_id].delivered_up_to, target.wants)
            for target in courier.targets
        }
    items = [_item(courier, target, known[target.target_id], waiting[target.target_id]) for target in courier.targets]
    return Json({"items": items, "public_url": courier.public_url})


@router.post("/test", responses={200: {"model": TargetTests}}, openapi_extra=body_of(TestRequest, required=False))
async def test_targets(request: Request) -> Json:
    """Sends a test to one target or to all, and says what became of it."""
    given, _ = await read_record(request, TestRequest, empty=TestRequest())
    courier: Courier = request.app.state.courier
    chosen = [target for target in courier.targets if given.name in (None, target.name)]
    if given.name is not None and not chosen:
        known = ", ".join(target.name for target in courier.targets) or "none"
        raise InvalidRequestError(f"name must be that of a notification target, of {known}; got {given.name!r}.")
    return Json({"items": await asyncio.gather(*(_test(target, courier.public_url) for target in chosen))})


async def _test(target: Target, public_url: str | None) -> dict[str, Any]:
    begin_s = time.perf_counter()
    sending = asyncio.to_thread(target.send, trial_note(target.name, public_url=public_url), "info")
    try:
        error = await asyncio.wait_for(sending, TEST_TIMEOUT_S)
    except TimeoutError:
        error = f"it did not answer within {TEST_TIMEOUT_S:g} s"
    duration_s = time.perf_counter() - begin_s
    return {"name": target.name, "ok": error is None, "error": error, "duration_s": duration_s}


def _item(courier: Courier, target: Target, place: outbox.Progress, num_waiting: int) -> dict[str, Any]:
    state = "ok" if place.failing_since_s is None else "failing"
    return {
        "name": target.name,
        "service": target.service,
        "project": target.project,
        "severity": target.severity,
        "state": "hanging" if courier.hangs(target.target_id) else state,
        "num_waiting": num_waiting,
        "num_sent": place.num_sent,
        "num_given_up": place.num_given_up,
        "failing_since_s": place.failing_since_s,
        "num_failures": place.num_failures,
        "next_try_at_s": place.next_try_at_s,
        "last_sent_at_s": place.last_sent_at_s,
        "last_error": place.last_error,
    }
