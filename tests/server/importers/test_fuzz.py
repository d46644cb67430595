"""Logs that were mangled in every way: each is read or refused in one line; nothing raises, hangs, or sends nonsense.

`GRADSIGHT_FUZZ=20000` tries as many; `GRADSIGHT_FUZZ_SEED` begins elsewhere.
"""

import gzip
import json
import os
import random
import re
import signal
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradsight import wire
from gradsight_server.diagnosis import diagnose
from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.format import LineFormat
from gradsight_server.importers.importing import Wish, import_log
from gradsight_server.importers.logs import read_logs
from gradsight_server.importers.reading import Source
from gradsight_server.importers.registry import known_formats
from tests.server.importers import formats as format_tests

NUM_INPUTS = int(os.environ.get("GRADSIGHT_FUZZ", "300"))
FIRST_SEED = int(os.environ.get("GRADSIGHT_FUZZ_SEED", "0"))
LIMIT_S = 60
"""Far more than any log of this size takes, also on a busy machine."""

OWN_SEEDS = (
    "step,loss,grad_norm\n" + "".join(f"{i},{2 - i / 50},{1 + i % 7}\n" for i in range(40)),
    "".join(json.dumps({"step": i, "loss": 2 - i / 50, "optim": {"grad_norm": 1 + i % 5}}) + "\n" for i in range(40)),
    json.dumps([{"step": i, "grad_norm": 1.0, "loss_scale": 65536.0, "rank": i % 2} for i in range(20)], indent=1),
    json.dumps({"log_history": [{"step": i, "grad_norm": "nan", "loss": 1.0} for i in range(20)]}),
    "".join(f"[rank{i % 2}] step {i}/90 loss={2 - i / 50} grad norm: {1 + i % 5}, lr 1e-4\n" for i in range(40)),
    "step loss grad_norm\n" + "".join(f"{i}  {2 - i / 50}  {1 + i % 7}\n" for i in range(40)),
    "it;grad_norm\n" + "".join(f"{i};1,{i}\n" for i in range(20)),
)
ODD = (
    "nan", "-inf", "Infinity", "1e999", "-1e-999", "9" * 300, "0x1F", "1,234,567", "1_000", "٣", "", "-", "None",
    "null", "tensor(", "tensor(nan, device='cuda:0')", "np.float64(inf)", "1.#QNAN", "%", "--5", "1e", "true", "[]",
    "{}", '"', "'", "\\", "\x00", "\ufeff", "\ud7ff", "\x1b[31m", "\r", "\t", "step", "grad_norm", "loss", "epoch", ":",
    "=", "|", "2.06K", "-1", "0", "1e308", "18446744073709551616", "9007199254740993", "iteration", "nan%", "(", ")",
    "/", " ",
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][+-]?\d+)?")


@cache
def seeds() -> tuple[str, ...]:
    """Texts of every format: what the formats' own tests read."""
    found = list(OWN_SEEDS)
    for module in iter_modules(format_tests.__path__):
        if module.name.startswith("test_"):
            values = vars(import_module(f"{format_tests.__name__}.{module.name}")).values()
            found += [text for text in _texts(values) if len(text) > 40 and any(map(str.isdigit, text))]
    return tuple(dict.fromkeys(found))


def _texts(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from _texts(value)
        elif isinstance(value, dict) and "__name__" not in value:
            yield from _texts(value.values())


Mutation = Callable[[random.Random, str], str]


def _lines(change: Callable[[random.Random, list[str]], object]) -> Mutation:
    def mutate(rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        change(rng, lines)
        return "\n".join(lines)

    return mutate


def _slice(rng: random.Random, text: str, most: int = 200) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(1, most))


def _cut_out(rng: random.Random, text: str) -> str:
    start, end = _slice(rng, text)
    return text[:start] + text[end:]


def _double(rng: random.Random, text: str) -> str:
    start, end = _slice(rng, text)
    return text[:end] + text[start:end] + text[end:]


def _stretch(rng: random.Random, text: str) -> str:
    """What makes a pattern with two unbounded repeats take forever."""
    start, end = _slice(rng, text, 12)
    return text[:end] + text[start:end] * rng.choice((50, 2_000, 20_000)) + text[end:]


def _put_odd(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(ODD) + text[at:]


def _odd_numbers(rng: random.Random, text: str) -> str:
    share = rng.choice((0.02, 0.3, 1.0))
    return _NUMBER.sub(lambda match: rng.choice(ODD) if rng.random() < share else match[0], text)


def _other_numbers(rng: random.Random, text: str) -> str:
    def other(match: re.Match[str]) -> str:
        return match[0] if rng.random() < 0.8 else f"{rng.choice((1, -1, 1e9, 1e-9)) * rng.random() * 100:.6g}"

    return _NUMBER.sub(other, text)


def _noise(rng: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(max(1, len(letters) // 100)):
        if letters:
            letters[rng.randrange(len(letters))] = rng.choice(string.printable)
    return "".join(letters)


def _splice(rng: random.Random, text: str) -> str:
    other = rng.choice(seeds())
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other)) :]


def _shuffle(rng: random.Random, lines: list[str]) -> None:
    rng.shuffle(lines)


def _repeat(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    lines[at:at] = [lines[at]] * rng.choice((1, 5, 500))


def _indent(rng: random.Random, lines: list[str]) -> None:
    prefix = rng.choice(("  ", "[rank3] ", "2024-01-01 00:00:00,123 INFO ", "\x1b[1m", "0: ", "{", "| "))
    lines[:] = [prefix + line for line in lines]


MUTATIONS: tuple[Mutation, ...] = (
    _cut_out,
    _double,
    _stretch,
    _put_odd,
    _put_odd,
    _odd_numbers,
    _odd_numbers,
    _other_numbers,
    _noise,
    _splice,
    lambda rng, text: text[: rng.randrange(len(text) + 1)],
    lambda rng, text: text.replace("\n", rng.choice(("\r", "\r\n", " ", "\n\n"))),
    lambda rng, text: text * rng.choice((2, 5)),
    _lines(_shuffle),
    _lines(_repeat),
    _lines(_indent),
)
PACKINGS: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    lambda raw: gzip.compress(raw)[:-20],
    lambda raw: b"\xff\xfe" + raw,
    lambda raw: raw.decode("utf-8", "replace").encode("utf-16"),
    lambda raw: raw + raw.decode("utf-8", "replace").encode("utf-16-le"),
    lambda raw: b"PK\x03\x04" + raw,
    lambda raw: b"\x1f\x8b" + raw,
)


def mutated(seed: int) -> bytes:
    """The same input for the same number."""
    rng = random.Random(seed)
    text = rng.choice(seeds())
    for _ in range(rng.randrange(1, 5)):
        text = rng.choice(MUTATIONS)(rng, text)[:400_000]
    raw = text.encode("utf-8", "replace")
    return rng.choice(PACKINGS)(raw) if rng.random() < 0.1 else raw


class Strict:
    """A destination that takes what a server takes."""

    def put_run(self, run_id: str, record: wire.RunRecord) -> None:
        assert re.fullmatch("[0-9a-f]{32}", run_id)
        wire.decode(wire.encode(record), wire.RunRecord)
        json.dumps(record.config, allow_nan=False)

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None:
        assert 0 < len(stream) <= 256
        wire.decode(wire.encode(batch), wire.Batch)
        stream.encode()

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None:
        raise AssertionError("no log has notes of ours")


@contextmanager
def limited() -> Iterator[None]:
    """Ends a hang with a traceback of where it hangs."""

    def give_up(number: int, frame: Any) -> None:
        raise AssertionError(f"it took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(path: Path, forced: str | None = None) -> bool:
    """Reads, diagnoses and sends a log; whether there was something in it."""
    with limited():
        try:
            logs = read_logs(path, format_name=forced)
        except NothingToReadError as error:
            logs, refusal = [], str(error)
        else:
            refusal = "none"
        assert refusal.strip()
        assert "\n" not in refusal
        for log in logs:
            assert log.parts
            assert all(note.strip() and "\n" not in note for note in log.notes)
            for part in log.parts[:3]:
                json.dumps(diagnose(part.steps, part.context).to_json(), allow_nan=False)
            log_format = known_formats()[log.format_name]
            import_log(Source(path, log_format, "a log"), Strict(), Wish())
    return bool(logs)


@pytest.mark.parametrize("first", range(0, NUM_INPUTS, 100))
def test_mangled_logs_are_read_or_refused(first: int, tmp_path: Path) -> None:
    forcible = [
        None,
        *(one.name for one in known_formats().values() if isinstance(one, LineFormat)),
        "jsonl",
        "csv_table",
    ]
    num_read = 0
    for seed in range(FIRST_SEED + first, FIRST_SEED + min(first + 100, NUM_INPUTS)):
        path = tmp_path / "log"
        path.write_bytes(mutated(seed))
        try:
            num_read += check(path)
            check(path, random.Random(seed).choice(forcible))
        except BaseException as error:
            error.add_note(f"GRADSIGHT_FUZZ_SEED={seed} GRADSIGHT_FUZZ=1 tries this one alone.")
            raise
    assert num_read > 10, "many are still logs: this test looks at something"


def test_the_seeds_are_logs_of_most_formats(tmp_path: Path) -> None:
    told = set()
    for seed in seeds():
        path = tmp_path / "log"
        path.write_text(seed, "utf-8", errors="replace")
        try:
            told |= {log.format_name for log in read_logs(path)}
        except NothingToReadError:
            continue
    of_lines = {one.name for one in known_formats().values() if isinstance(one, LineFormat)}
    assert len(of_lines - told) <= len(of_lines) / 3, f"no seeds of {of_lines - told}"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
COLUMNS = (
    "step", "loss", "grad_norm", "train/grad_norm", "loss_scale", "rank", "epoch", "stream", "skipped", "clip_coef",
    "max_norm", "lr", "wall_time", "overflow", "first_nonfinite_layer",
)  # fmt: skip
NAMES = st.sampled_from(COLUMNS) | st.text(max_size=8)
CELLS = st.sampled_from(ODD) | st.text(max_size=6)
ROWS = st.lists(st.dictionaries(NAMES, JSON | st.sampled_from(ODD), max_size=6), min_size=1, max_size=12)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(rows=ROWS, shape=st.sampled_from(["lines", "array", "object"]))
def test_any_json_is_read_or_refused(rows: list[dict[str, Any]], shape: str, tmp_path: Path) -> None:
    document: Any = {"rows": rows} if shape == "object" else rows
    text = "\n".join(map(json.dumps, rows)) if shape == "lines" else json.dumps(document)
    path = tmp_path / "log"
    path.write_text(text, "utf-8")
    check(path, "jsonl")
    check(path)


@QUICK
@given(
    names=st.lists(NAMES, min_size=1, max_size=6),
    cells=st.lists(st.lists(CELLS, max_size=6), max_size=10),
    delimiter=st.sampled_from(",;\t|"),
)
def test_any_table_is_read_or_refused(
    names: Sequence[str], cells: Sequence[Sequence[str]], delimiter: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(delimiter.join(row) for row in (names, *cells)), "utf-8", errors="replace")
    check(path, "csv_table")
    check(path)


@QUICK
@given(raw=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(raw)
    check(path)
