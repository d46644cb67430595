"""TensorBoard event files, and a folder of them: scalars only. Text summaries hold configuration as prose: left alone.

Of one launch there may be several files in a folder, one after the other; each new one may be a resume.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.items import Item, Meaning, Point, Restart, Unread
from gradsight_server.importers.names import chosen, layer_of, words_of

MAGIC = b"brain.Event:"
"""Each event file begins with a record that holds this and the version of the file."""
MAX_FILES = 10_000
HEAD = Struct("<QI")
"""A record is its length, the length's checksum, the event, the event's checksum."""
CRC = Struct("<I")
SCALAR_PLUGIN = "scalars"
NUMBERS = (1, 2, 3, 9, 14, 19)
"""DT_FLOAT, DOUBLE, INT32, INT64, BFLOAT16 and HALF in TensorFlow's types.proto."""
_AGAINST_ANOTHER_AXIS = re.compile(r" vs\.? ")
"""Megatron-LM writes each scalar twice, the second time by samples: `grad-norm vs samples`."""


class _Scalar(NamedTuple):
    tag: str
    step: int
    wall_time_s: float
    value: float


def _recognise(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return any(True for _ in _event_files(path))
    return MAGIC in head[:64]


def _event_files(folder: Path) -> Iterator[Path]:
    """Those that lie in this very folder: what is deeper is another run."""
    for i, entry in enumerate(sorted(folder.iterdir(), key=lambda entry: entry.name)):
        if i >= MAX_FILES:
            return
        if entry.is_file():
            with suppress(OSError), entry.open("rb") as file:
                if MAGIC in file.read(64):
                    yield entry


def _read(path: Path, options: Options) -> Iterator[Item]:
    files = list(_event_files(path)) if path.is_dir() else [path]
    tags = _tags(files, options)
    yield from _meanings(tags)
    line = 0
    for i, file in enumerate(sorted(files, key=_first_time)):
        if i:
            yield Restart(line, f"another event file, {file.name}")
        point: Point | None = None
        for scalar in _scalars(file):
            line += 1
            if isinstance(scalar, Unread):
                yield Unread(line, scalar.why)
                continue
            if point is None or point.step != scalar.step or _tells(point, scalar.tag, tags):
                if point is not None:
                    yield point
                point = Point(line, scalar.step, wall_time_s=scalar.wall_time_s)
            _put(point, scalar, tags)
        if point is not None:
            yield point


def _tags(files: list[Path], options: Options) -> dict[str, str]:
    """{tag: our column}. Tags are few and known only once a file was read, so files are read twice."""
    names: dict[str, None] = {}
    for file in files:
        for scalar in _scalars(file):
            if not isinstance(scalar, Unread) and not _AGAINST_ANOTHER_AXIS.search(scalar.tag):
                names[scalar.tag] = None
    own = {theirs: ours for ours, theirs in options.columns}
    found = {tag: column for column, tag in chosen(names).items() if column not in ("step", "epoch", "wall_time_s")}
    taken = set(own.values())
    return {tag: column for tag, column in found.items() if column not in taken} | {
        tag: column for tag, column in own.items() if tag in names
    }


def _meanings(tags: dict[str, str]) -> Iterator[Item]:
    for tag, column in tags.items():
        if column == "grad_norm_before_clip" and "epoch" in words_of(tag):
            yield Meaning(column, tag, is_per_epoch=True)


def _tells(point: Point, tag: str, tags: dict[str, str]) -> bool:
    return tag in point.metrics or tags.get(tag) in point.values


def _put(point: Point, scalar: _Scalar, tags: dict[str, str]) -> None:
    column = tags.get(scalar.tag)
    if column is not None:
        point.values[column] = scalar.value
    elif (layer := layer_of(scalar.tag)) is not None:
        point.layer_norms[layer] = scalar.value
    elif not _AGAINST_ANOTHER_AXIS.search(scalar.tag):
        point.metrics[scalar.tag] = scalar.value


def _first_time(file: Path) -> float:
    return next((scalar.wall_time_s for scalar in _scalars(file) if isinstance(scalar, _Scalar)), math.inf)


def _scalars(file: Path) -> Iterator[_Scalar | Unread]:
    """In the order they were written. A last record that is cut ends the file silently: a training may write it yet."""
    try:
        event_pb2 = import_module("tensorboard.compat.proto.event_pb2")  # late: an extra
        data = import_module("tensorboard.util.tensor_util")
        crc = import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow").masked_crc32c
    except ModuleNotFoundError:
        raise NothingToReadError(
            f"{str(file)!r} is a TensorBoard event file; to read it: pip install 'gradsight[tensorboard]'."
        ) from None
    with file.open("rb") as records:
        while len(head := records.read(HEAD.size)) == HEAD.size:
            length, length_crc = HEAD.unpack(head)
            if crc(head[:8]) != length_crc:
                yield Unread(0, f"{file.name} is damaged from byte {records.tell() - HEAD.size} on")
                return
            body = records.read(length + CRC.size)
            if len(body) < length + CRC.size:
                return
            try:
                event = event_pb2.Event.FromString(body[:length])
                found = [
                    (value.tag, number) for value in event.summary.value if (number := _number(value, data)) is not None
                ]
            except Exception:  # whatever a damaged record makes the parser raise
                found, is_whole = [], False
            else:
                # In Python a checksum takes a microsecond for ten bytes, and images have none that matter here.
                is_whole = not found or crc(body[:length]) == CRC.unpack(body[length:])[0]
            if not is_whole:
                yield Unread(0, f"{file.name} has a damaged record that ends at byte {records.tell()}")
            else:
                yield from (_Scalar(tag, event.step, event.wall_time, number) for tag, number in found)


def _number(value: Any, data: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.metadata.plugin_data.plugin_name not in (SCALAR_PLUGIN, "") or not value.HasField("tensor"):
        return None
    if value.tensor.dtype not in NUMBERS or value.tensor.tensor_shape.dim:
        return None
    return float(data.make_ndarray(value.tensor))


FORMAT = FileFormat(
    name="tensorboard",
    title="TensorBoard event files",
    source="tensorboard 2.21, summary/writer/event_file_writer.py; torch.utils.tensorboard 2.13, add_scalar",
    recognise=_recognise,
    read=_read,
)
