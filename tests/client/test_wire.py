"""The wire contract, without a server."""

import json
import math

import pytest

from gradsight import wire
from gradsight.errors import WireError


def batch_from_json(value: object) -> wire.Batch:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return wire.decode(body, wire.Batch, wire.CONTENT_TYPE_JSON)


def test_a_step_and_one_column_are_enough() -> None:
    batch = batch_from_json({"step": [0, 1], "grad_norm_before_clip": [1.5, "NaN"]})
    assert list(batch.columns) == ["grad_norm_before_clip"]
    assert batch.columns["grad_norm_before_clip"] == [1.5, "NaN"]


def test_an_empty_batch_is_a_heartbeat() -> None:
    batch = batch_from_json({})
    assert batch.step == []
    assert batch.columns == {}


@pytest.mark.parametrize(
    ("value", "field", "told"),
    [
        pytest.param({"step": [0, -1]}, "step[1]", "-1", id="negative step"),
        pytest.param({"step": [2**53]}, "step[0]", str(2**53), id="step past 2^53-1"),
        pytest.param({"step": [1.5]}, "step[0]", "1.5", id="half a step"),
        pytest.param({"step": ["NaN"]}, "step[0]", "NaN", id="NaN as a step"),
        pytest.param({"step": [True]}, "step[0]", "True", id="a truth as a step"),
        pytest.param({"step": None}, "step", "None", id="no steps at all"),
        pytest.param({"step": [0, 1], "loss": [1]}, "loss", "loss has 1 values, step has 2", id="wrong length"),
        pytest.param({"step": [0], "loss": ["high"]}, "loss[0]", "high", id="a word as a number"),
        pytest.param({"step": [0], "loss": [True]}, "loss[0]", "True", id="a truth as a number"),
        pytest.param({"step": [0], "gradnorm": [1.0]}, "gradnorm", "known are", id="unknown column"),
        pytest.param({"step": [0], "skipped": [1]}, "skipped[0]", "1", id="a number as a truth"),
        pytest.param({"step": [0], "skip_reason": ["tired"]}, "skip_reason[0]", "tired", id="unknown reason"),
        pytest.param(
            {"step": [0], "layers": ["a"], "layer_step": [0], "layer_norms": [[1, 2]]},
            "layer_norms",
            "2 values",
            id="too many norms",
        ),
        pytest.param({"layer_step": [0]}, "layer_norms", "missing", id="layer steps without norms"),
        pytest.param({"layer_step": [0], "layer_norms": [[1]]}, "layers", "which layers", id="norms of nobody"),
        pytest.param({"schema": 2}, "schema", "newer", id="a schema to come"),
        pytest.param(
            {"metrics": [{"step": 0, "name": "", "value": 1}]}, "metrics[0].name", "''", id="a metric without a name"
        ),
        pytest.param(
            {"metrics": [{"step": 0, "name": "a\0b", "value": 1}]}, "metrics[0].name", "matching", id="NUL in a name"
        ),
        pytest.param([1], "body", "array", id="no object"),
        pytest.param(b'{"step": [0', "body", "not whole", id="cut short"),
        pytest.param(b"", "body", "not whole", id="nothing"),
        pytest.param(b'{"step": [0], "loss": [1e999]}', "loss[0]", "number", id="past a double"),
        pytest.param(b"[" * 100_000, "body", "", id="deeply nested"),
        pytest.param(b'{"step": ' + b"[" * 100_000, "step[0]", "", id="deeply nested steps"),
        pytest.param(b'{"step": [0], "loss": [NaN]}', "body", "not whole", id="a bare NaN"),
    ],
)
def test_a_wrong_batch_is_refused_by_field_and_value(value: object, field: str, told: str) -> None:
    with pytest.raises(WireError) as refused:
        batch_from_json(value)
    assert refused.value.field == field
    assert told in str(refused.value)


def test_the_same_rules_hold_for_messagepack() -> None:
    good = wire.Batch(step=[0], loss=[math.nan], layers=["a"], layer_step=[0], layer_norms=wire.pack_norms([[None]]))
    again = wire.decode(wire.encode(good), wire.Batch)
    assert math.isnan(again.columns["loss"][0])
    assert again.layer_norms == b"\x00\x00\x80\xbf"
    bad = wire.encode(good).replace(b"loss", b"lass")
    with pytest.raises(WireError, match="unknown field 'lass'"):
        wire.decode(bad, wire.Batch)


def test_half_a_row_of_layer_norms_is_refused() -> None:
    with pytest.raises(ValueError, match="layer_norms has 6 bytes"):
        wire.Batch(layers=["a"], layer_step=[0, 1], layer_norms=b"\0" * 6)


def test_words_and_numbers_are_each_others_inverse() -> None:
    for value in (1.5, math.inf, -math.inf):
        assert wire.number(wire.word(value)) == value
    nan = wire.number(wire.word(math.nan))
    assert nan is not None
    assert math.isnan(nan)
    assert wire.number(None) is None


def test_tied_names_are_one_layer_and_change_the_id() -> None:
    assert wire.layer_names(["a", ["b", "c"]]) == [["a"], ["b", "c"]]
    assert wire.layers_id(["a", ["b", "c"]]) == wire.layers_id([["a"], ["b", "c"]]) != wire.layers_id(["a", "b", "c"])


def test_a_run_record_takes_parts_and_refuses_the_unknown() -> None:
    record = wire.decode(
        b'{"streams": {"main": {"optimizer": {"class": "AdamW"}}}}', wire.RunRecord, "application/json"
    )
    assert record.streams is not wire.UNSET
    assert record.project is wire.UNSET
    with pytest.raises(WireError, match="unknown field 'nmae'"):
        wire.decode(b'{"nmae": "x"}', wire.RunRecord, wire.CONTENT_TYPE_JSON)
    with pytest.raises(WireError, match="name"):
        wire.decode(json.dumps({"name": "x" * 257}).encode(), wire.RunRecord, wire.CONTENT_TYPE_JSON)


@pytest.mark.parametrize(
    "name",
    ["main", "main/layers.*", "a//b", "/a", "a/", "...", "..a", "a/.b", "a.", " ", "é" * 256, "\u2028", "%2e%2e", "?"],
)
def test_a_stream_may_be_called_anything_that_arrives(name: str) -> None:
    assert wire.is_stream_name(name)
    record = wire.RunRecord(streams={name: wire.StreamRecord()})
    assert wire.decode(wire.encode(record), wire.RunRecord) == record


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/..", "../a", "a/./b", "/.", "./", "a\n", "\n", "a\tb", "\x7f", "\x85", "a\n/..", "x" * 257],
)
def test_a_stream_is_not_called_what_would_not_arrive(name: str) -> None:
    assert not wire.is_stream_name(name)
    with pytest.raises(WireError) as refused:
        wire.decode(wire.encode(wire.RunRecord(streams={name: wire.StreamRecord()})), wire.RunRecord)
    assert refused.value.field == "streams"
