"""A run's verdict in brief, from the diagnoses of its streams. Pure."""

from collections.abc import Mapping
from typing import Any

from gradsight_server.diagnosis import SEVERITIES, Diagnosis, Severity

NONFINITE_CODES = ("run_dead", "loss_nonfinite", "nonfinite_steps", "nonfinite_applied")


def rank(severity: Severity) -> int:
    """From 0 for ok to 3 for critical, as the database keeps it."""
    return SEVERITIES.index(severity)


def in_brief(diagnoses: Mapping[str, Diagnosis]) -> dict[str, Any]:
    """Of each section the stream that is worst off, the first of equals; and the one finding that weighs most."""
    clipping = max(diagnoses, key=lambda stream: rank(diagnoses[stream].clipping.severity))
    scaling = max(diagnoses, key=lambda stream: rank(diagnoses[stream].loss_scaling.severity))
    return {
        "clipping": {
            "verdict": diagnoses[clipping].clipping.verdict,
            "severity": diagnoses[clipping].clipping.severity,
            "stream": clipping,
        },
        "loss_scaling": {
            "verdict": diagnoses[scaling].loss_scaling.verdict,
            "severity": diagnoses[scaling].loss_scaling.severity,
            "stream": scaling,
        },
        "nonfinite": {
            "num_steps": sum(diagnosis.nonfinite.num_steps for diagnosis in diagnoses.values()),
            "severity": max((nonfinite_severity(diagnosis) for diagnosis in diagnoses.values()), key=rank),
        },
        "worst": _worst(diagnoses),
    }


def nonfinite_severity(diagnosis: Diagnosis) -> Severity:
    """Of the worst finding about NaN and Inf; overflows that the loss scale explains are none."""
    found = [finding.severity for finding in diagnosis.findings if finding.code in NONFINITE_CODES]
    return max(found, key=rank, default="ok")


def severity_of(diagnoses: Mapping[str, Diagnosis]) -> int:
    """The rank of the worst that was found in any stream."""
    return max(rank(diagnosis.severity) for diagnosis in diagnoses.values())


def _worst(diagnoses: Mapping[str, Diagnosis]) -> dict[str, str] | None:
    """A diagnosis has its worst finding first."""
    heads = [(stream, diagnosis.findings[0]) for stream, diagnosis in diagnoses.items() if diagnosis.findings]
    if not heads:
        return None
    stream, finding = max(heads, key=lambda head: rank(head[1].severity))
    return {"code": finding.code, "severity": finding.severity, "stream": stream}
