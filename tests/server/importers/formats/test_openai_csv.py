"""The progress.csv of guided-diffusion (logger.py: CSVOutputFormat; train_util.py and fp16_util.py, 2021)."""

from pathlib import Path

from gradsight_server.importers.format import Options
from gradsight_server.importers.formats.openai_csv import FORMAT
from gradsight_server.importers.items import Meaning, Point
from gradsight_server.importers.registry import recognise

ROWS = """grad_norm,lg_loss_scale,loss,loss_q0,param_norm,samples,step
8.25,20.0,1.5,2.5,303.0,256,0
nan,19.0,1.25,2.25,303.5,2816,10
"""


def test_the_logarithm_becomes_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(ROWS)
    assert recognise(path) is FORMAT
    items = list(FORMAT.read(path, Options()))
    points = [item for item in items if isinstance(item, Point)]
    assert [point.step for point in points] == [0, 10]
    assert points[0].values == {"grad_norm_before_clip": 8.25, "loss_scale": 2.0**20, "loss": 1.5}
    assert "lg_loss_scale" not in points[0].metrics
    means = {item.column: item.averaged_over_steps for item in items if isinstance(item, Meaning)}
    assert means == {"loss": 10, "grad_norm_before_clip": 10}


def test_another_table_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("step,loss,grad_norm\n0,1.5,2.5\n1,1.25,2.25\n")
    found = recognise(path)
    assert found is not None
    assert found.name == "csv_table"
