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
    "diagnose",
]
