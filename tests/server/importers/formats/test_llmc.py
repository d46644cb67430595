"""llm.c, as of 2024: train_gpt2.cu's main, llmc/logger.h's logger_log_train, and train_gpt2.py."""

import math

from gradsight_server.importers.formats.llmc import FORMAT
from tests.server.importers.formats.reading import read


def test_the_files_lines_are_points_and_evaluations_are_not() -> None:
    got = read(
        FORMAT,
        """
s:0 tel:10.9000
s:0 trl:10.8500 lr:0.000002 norm:12.50
s:1 trl:10.7000 lr:0.000004 norm:nan
s:1 eval:0.2512
s:2 trl:10.6000
""",
    )
    assert got.steps == [0, 1, 2]
    assert got.points[0].values == {"loss": 10.85, "lr": 2e-6, "grad_norm_before_clip": 12.5}
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert "two digits" in got.meanings["grad_norm_before_clip"].remark


def test_the_consoles_lines_are_points() -> None:
    got = read(
        FORMAT,
        """
val loss 10.950000
step    1/900 | loss 10.900000 (+nanz)| norm 14.5000 (+nanz)| lr 1.00e-06 | 900.50 ms | 45.0% bf16 MFU | 58000 tok/s
step    2/900 | loss 10.800000 (-1.20z)| norm 12.2500 (+2.10z)| lr 2.00e-06 | 300.00 ms | -100.0% bf16 MFU | 58 tok/s
step    3/900 | train loss 10.700000 | norm 9.5000 | lr 3.00e-06 | (310.00 ms | 58000 tok/s)
skipping update due to grad z-score of 7.5
""",
    )
    assert got.steps == [1, 2, 3]
    assert got.column("grad_norm_before_clip") == [14.5, 12.25, 9.5]
    assert got.column("lr") == [1e-6, 2e-6, 3e-6]
    assert got.column("step_time_s") == [0.9005, 0.3, 0.31]
    assert got.happened[0].kind == "update_skipped"


def test_a_line_without_a_number_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "s:7 trl:oops").unread] == [1]
