"""The API's description: FastAPI's own, with the msgspec records of the wire put in."""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gradsight import wire
from gradsight_server.alert_schemas import Acknowledgement, AlertRulesPut, ControlPut, PreviewRequest, TestRequest
from gradsight_server.diagnosis import Diagnosis
from gradsight_server.diagnosis.whatif import WhatIf
from gradsight_server.schemas import RunPatch

RECORDS = (
    wire.RunRecord,
    wire.Batch,
    wire.Answer,
    RunPatch,
    Diagnosis,
    WhatIf,
    Acknowledgement,
    AlertRulesPut,
    PreviewRequest,
    TestRequest,
    ControlPut,
)
SCHEMA_REF = "#/components/schemas/{name}"
DESCRIPTION = """\
Runs, their steps and figures. Where the server was started with a token, send `Authorization: Bearer …`.

A non-finite number is sent as `"NaN"`, `"Infinity"` or `"-Infinity"` and leaves as `null` beside a count. A body may
be JSON or MessagePack of the same schema, and may be gzipped. Errors are `{"error": …, "detail": …}`.
"""


def body_of(record: type[msgspec.Struct], *, required: bool = True, examples: Any = None) -> dict[str, Any]:
    """What documents a body that msgspec reads."""
    schema = {"$ref": SCHEMA_REF.format(name=record.__name__)}
    json = {"schema": schema} | ({"examples": examples} if examples else {})
    content = {wire.CONTENT_TYPE_JSON: json, wire.CONTENT_TYPE_MSGPACK: {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}


def answer_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """What documents an answer that msgspec writes."""
    content = body_of(record)["requestBody"]["content"]
    return {"description": (record.__doc__ or "").splitlines()[0], "content": content}


def json_of(record: type[msgspec.Struct], description: str) -> dict[str, Any]:
    """What documents an answer that is JSON only."""
    content = body_of(record)["requestBody"]["content"]
    return {"description": description, "content": {wire.CONTENT_TYPE_JSON: content[wire.CONTENT_TYPE_JSON]}}


def describe(app: FastAPI, *, has_token: bool) -> dict[str, Any]:
    """The whole API as an OpenAPI document."""
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    _, records = msgspec.json.schema_components(RECORDS, ref_template=SCHEMA_REF)
    components = document.setdefault("components", {})
    components["schemas"] = _merged(components.get("schemas", {}), records)
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _merged(ours: Mapping[str, Any], records: Mapping[str, Any]) -> dict[str, Any]:
    clash = ours.keys() & records.keys()
    assert not clash, f"two schemas are called {clash}"
    return dict(sorted({**ours, **records}.items()))
