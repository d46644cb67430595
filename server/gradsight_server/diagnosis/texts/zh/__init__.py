"""Simplified Chinese, plain and short, for somebody whose run is going wrong at night."""

from gradsight_server.diagnosis.texts.zh import clipping, nonfinite, training

TEXTS = {**clipping.TEXTS, **nonfinite.TEXTS, **training.TEXTS}
"""code[.variant] → (title, advice)."""
