"""JSON lines: what the run says of itself, then its batches as a client would send them, and a line that ends it.

Each line says what it is: `gradsight_run` is a PUT of the run, `batch` a POST to a stream, `end` tells that nothing is
missing. Layer norms are base64 of float32, little-endian, one row per `layer_step`, −1 = no gradient.
"""

from typing import Any

import msgspec
from msgspec import Struct

from gradsight import wire

FORMAT = 1


class Removed(Struct, kw_only=True, forbid_unknown_fields=True):
    """Steps of rank 0 that retention has removed: they are not in the file."""

    stream: str
    attempt: int
    before_step: int


class RunLine(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gradsight_run"):
    """The run's record. More of them follow where a run has more streams than one PUT may carry."""

    format: int
    run_id: str
    stream: str | None = None
    """The one stream that was asked for; None: all of them are here."""
    record: wire.RunRecord
    notes: str = ""
    is_archived: bool = False
    exported_at_s: float | None = None
    removed: list[Removed] = []

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            raise ValueError(f"format {self.format} is newer than this Gradsight knows ({FORMAT}): update it")


class BatchLine(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="batch"):
    """A batch of a stream."""

    stream: str
    batch: wire.Batch


class EndLine(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="end"):
    """The last line of a whole export."""

    num_steps: int
    """Rows of steps, all ranks and attempts."""


Line = RunLine | BatchLine | EndLine

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Line)


def encode(line: Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode(text: bytes) -> Line:
    """
    Raises:
        msgspec.DecodeError: it is no line of an export.
    """
    line: Line = _decoder.decode(text)
    return line
