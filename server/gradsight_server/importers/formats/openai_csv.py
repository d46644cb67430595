"""progress.csv of improved- and guided-diffusion and their kin: a table with `lg_loss_scale`, a logarithm to base 2.

All numbers are means over the steps since the row before; gradients are unscaled before their norm is taken.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.formats import csv_table
from gradsight_server.importers.items import Item, Point, Points
from gradsight_server.importers.means import Means
from gradsight_server.importers.opening import decoded

LOGARITHM = "lg_loss_scale"
MAX_LOGARITHM = 1023.0


def recognise(path: Path, head: bytes) -> bool:
    """Names that only these have, in the first line of a table."""
    names = {name.strip().strip('"') for name in decoded(head[: 2**14]).partition("\n")[0].split(",")}
    is_theirs = {"step", "samples"} <= names and not names.isdisjoint({LOGARITHM, "loss_q0", "param_norm"})
    return is_theirs and csv_table.recognise(path, head)


def read(path: Path, options: Options) -> Iterator[Item]:
    means = Means({"loss": "loss", "grad_norm_before_clip": "grad_norm"})
    for item in csv_table.read(path, options):
        if isinstance(item, Points) and not means.is_said:
            for point in item.each():
                yield from _with_scale(point, means)
        elif isinstance(item, Point | Points):
            yield from _with_scale(item, means)
        else:
            yield item


def _with_scale(point: Point | Points, means: Means) -> Iterator[Item]:
    if isinstance(point, Points):
        if (logarithms := point.metrics.pop(LOGARITHM, None)) is not None:
            point.values["loss_scale"] = np.array([_power(logarithm) for logarithm in logarithms.tolist()])
    else:
        if (logarithm := point.metrics.pop(LOGARITHM, None)) is not None:
            point.values["loss_scale"] = _power(logarithm)
        if not means.is_said:
            yield from means.seen(point.step)
    yield point


def _power(logarithm: float) -> float:
    return float(2.0 ** min(logarithm, MAX_LOGARITHM))


FORMAT = FileFormat(
    name="openai_csv",
    title="OpenAI diffusion progress.csv",
    source="improved-diffusion and guided-diffusion, logger.py: CSVOutputFormat.writekvs, and fp16_util.py (2021)",
    recognise=recognise,
    read=read,
)
