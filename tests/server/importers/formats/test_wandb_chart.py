"""Follows the CSV of W&B's web app (2026): chart menu, Export to CSV."""

from pathlib import Path

from gradsight_server.importers.format import Options
from gradsight_server.importers.formats.wandb_chart import FORMAT
from gradsight_server.importers.items import Point, Setting, Unread

TEXT = """"Step","lively-7 - train/grad_norm","lively-7 - train/grad_norm__MIN","lively-7 - train/grad_norm__MAX","calm-9 - train/grad_norm","calm-9 - train/grad_norm__MIN","calm-9 - train/grad_norm__MAX"
"0","1.5","1.5","1.5","","",""
"10","NaN","NaN","NaN","2.5","2.5","2.5"
"20","oops","1","1","3.5","3.5","3.5"
"""  # noqa: E501  # a header is one line


def test_each_run_of_the_chart_is_a_run(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(TEXT)
    assert FORMAT.recognise(file, TEXT.encode())
    runs: dict[str, list[tuple[float | None, str]]] = {}
    unread = []
    for item in FORMAT.read(file, Options()):
        if isinstance(item, Setting):
            name = str(item.value)
        elif isinstance(item, Point):
            runs.setdefault(name, []).append((item.step, str(item.values["grad_norm_before_clip"])))
        elif isinstance(item, Unread):
            unread.append(item.line)
    assert runs == {"lively-7": [(0, "1.5"), (10, "nan")], "calm-9": [(10, "2.5"), (20, "3.5")]}
    assert unread == [4]


def test_a_plain_table_is_none() -> None:
    assert not FORMAT.recognise(Path("x.csv"), b'"Step","grad_norm"\n"0","1"\n')
