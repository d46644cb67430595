"""The diagnosis: arrays of one stream's steps in, verdicts and findings out. Pure: no database, no clock, no torch."""

from gradsight_server.diagnosis.answer import SEVERITIES, Diagnosis, Finding, Severity
from gradsight_server.diagnosis.diagnose import diagnose
from gradsight_server.diagnosis.inputs import (
    Column,
    Context,
    Histogram,
    LayerNorms,
    MetricSeries,
    RangeFacts,
    StreamSteps,
)
from gradsight_server.diagnosis.whatif import WhatIf, what_if, what_if_from_histogram

__all__ = [
    "SEVERITIES",
    "Column",
    "Context",
    "Diagnosis",
    "Finding",
    "Histogram",
    "LayerNorms",
    "MetricSeries",
    "RangeFacts",
    "Severity",
    "StreamSteps",
    "WhatIf",
    "diagnose",
    "what_if",
    "what_if_from_histogram",
]
