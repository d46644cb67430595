"""Verdicts kept current: each run that changes is judged again, off the ingest path, and what is news is told once."""

from gradsight_server.judging.keeper import VerdictKeeper

__all__ = ["VerdictKeeper"]
