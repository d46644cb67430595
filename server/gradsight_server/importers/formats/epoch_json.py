"""log.txt of BEiT, MAE, DINO, DETR: a JSON line an epoch, `{"train_lr": …, "train_loss": …, "epoch": 3, …}`.

Each number is the mean of an epoch; `test_` ones are evaluations and only kept as further metrics. A NaN in the mean
norm means that at least one step was not finite.
"""

import json
import re
from collections.abc import Iterator

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Unread
from gradsight_server.importers.names import column_of
from gradsight_server.importers.numbers import number


def read(lines: Lines, options: Options) -> Iterator[Item]:
    said: set[str] = set()
    for at, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            yield Unread(at, f"no JSON: {error}"[:120])
            continue
        if not isinstance(row, dict):
            continue
        values: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for name, cell in row.items():
            value = number(cell)
            column = column_of(name) if name.startswith("train_") else None
            if value is None or name in ("epoch", "n_parameters"):
                continue
            if column is None:
                metrics[name] = value
            elif column not in values:
                values[column] = value
                if column not in said:
                    said.add(column)
                    yield Meaning(column, name, is_per_epoch=True)
        if values:
            yield Point(at, None, values, metrics, epoch=number(row.get("epoch")))
        else:
            yield Unread(at, "an epoch without a number of its training")


FORMAT = LineFormat(
    name="epoch_json",
    title="log.txt of BEiT, MAE, DINO or DETR",
    source="log_stats in MAE main_pretrain.py, BEiT run_beit_pretraining.py, DINO main_dino.py, DETR main.py (to 2024)",
    pattern=re.compile(r'^\{"train_\w+": '),
    read=read,
)
