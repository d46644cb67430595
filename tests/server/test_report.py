"""`gradsight report`: of a run and of a log; the page in a browser without a network, Markdown, JSON, complaints."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from gradsight_server import commands
from gradsight_server.reports.advice import blocks_of
from tests.browser import FLAGS, find_browser
from tests.server.api.kit import RUN, Running, running
from tests.server.api.trainings import FP16, fp16_goes_wrong, too_tight

Captured = pytest.CaptureFixture[str]
NASTY = "a </script><img src=x onerror=document.title='broken'> *b*"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("runs")) as found:
        found.put(name=NASTY, project="lm", config={"lr": 1e-3, NASTY: NASTY}, streams={"main": FP16})
        wrong = fp16_goes_wrong()
        layers = [NASTY, "head.weight"]
        norms = [[1.0, 2.0]] * len(wrong["step"])
        event = {"kind": "checkpoint", "step": 20, "message": NASTY}
        found.send(wrong | {"layers": layers, "layer_step": wrong["step"], "layer_norms": norms, "events": [event]})
        found.send(too_tight(), stream="critic")
        yield found


def run(*arguments: str) -> int:
    return commands.run(["report", *arguments])


def test_the_page_opens_without_a_network_and_shows_everything(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert run(RUN, "-o", str(file), "--server", server.url) == 0
    assert file.stat().st_size < 8e6
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        try:
            page = browser.new_context(offline=True, viewport={"width": 390, "height": 844}).new_page()
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on(
                "request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None
            )
            page.goto(file.as_uri())
            assert page.title() == f"{NASTY} · Gradsight report"
            assert page.locator("h1").inner_text() == NASTY
            charts = page.locator(".chart .main-svg")
            charts.first.wait_for()
            titles = page.locator("figcaption").all_inner_texts()
            text = page.locator("main").inner_text()
            is_wide = page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
        finally:
            browser.close()
    assert said == []
    assert titles.count("Gradient norm before clipping") == 2
    assert {"Loss scale", "Norm of each layer before clipping", "How the norms are distributed"} <= set(titles)
    for words in ("The loss itself is NaN", "too tight", "Raise max_norm", "Stream critic", "checkpoint", "set_detect"):
        assert words in text
    assert not is_wide


def test_markdown_is_short_and_holds_no_markup_of_others(server: Running, capsys: Captured) -> None:
    assert run(RUN, "--format", "md", "--server", server.url) == 0
    said = capsys.readouterr().out
    assert len(said) < 12_000
    assert r"\<img src=x" in said
    assert "<img" not in said.replace(r"\<img", "")
    assert "```python\nwith torch.autograd.set_detect_anomaly(True):" in said
    assert "### Stream critic" in said


def test_json_is_the_run_its_diagnoses_and_events(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert run(RUN, "-o", str(file), "--server", server.url) == 0
    told = json.loads(file.read_text())
    assert told["run"]["id"] == RUN
    assert told["diagnosis"]["critic"]["clipping"]["verdict"] == "too_tight"
    assert any(event["kind"] == "checkpoint" for event in told["events"])


def test_a_log_needs_no_server(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "train.jsonl"
    rows = zip(*(too_tight()[name] for name in ("step", "loss", "grad_norm_before_clip")), strict=True)
    names = ("step", "loss", "grad_norm")
    log.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    assert run(str(log), "--max-norm", "0.02", "-o", str(tmp_path / "r.html")) == 0
    assert "r.html" in capsys.readouterr().out
    assert run(str(log), "--max-norm", "0.02", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnosis"]["main"]["clipping"]["verdict"] == "too_tight"
    assert told["run"]["name"] == "train.jsonl"


def test_a_logs_columns_may_be_named(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "mine.csv"
    log.write_text("it,gn\n" + "".join(f"{i},{1 + i % 7}.5\n" for i in range(60)))
    assert run(str(log), "--map", "step=it,norm=gn", "--max-norm", "4", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnosis"]["main"]["range"]["num_finite"] == 60


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere.log", "-o", "r.html"), 1, "there is no file 'nowhere.log'"),
        ((RUN, "--format", "pdf"), 2, "--format must be html, md or json, got 'pdf'"),
        ((RUN, "--max-norm", "1"), 2, "--max-norm is for logs"),
        ((RUN, "--map", "norm=x"), 2, "--map is for logs"),
        ((RUN, "--log-format", "llmc"), 2, "--log-format is for logs"),
        (("nowhere.log", "--max-norm", "-1", "-o", "r.html"), 2, "--max-norm must be a positive number, got -1.0"),
        (("e" * 32, "--format", "md"), 1, "no run"),
        ((RUN, "-o", "r.pdf"), 2, "-o must end in .html, .htm, .md or .json, or say --format; got 'r.pdf'"),
        (("nowhere.log", "--map", "nope=x", "-o", "r.html"), 2, "--map: 'nope' is no column"),
        ((RUN, "--format", "md", "-o", "/no/such/folder/r.md"), 2, "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    server: Running, arguments: tuple[str, ...], code: int, words: str, capsys: Captured
) -> None:
    assert run(*arguments, "--server", server.url) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_advice_is_words_and_code() -> None:
    found = blocks_of("Try this:\n\n    with x:\n        y()\n\nIt is slow.")
    assert [(block.text, block.is_code) for block in found] == [
        ("Try this:", False),
        ("with x:\n    y()", True),
        ("It is slow.", False),
    ]
