"""Figures: what each trace holds, how a tick extends it, and that no spike, NaN, skip or clip is lost on the way."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from gradsight_server import figures
from gradsight_server.store.layers import LayerMatrix
from gradsight_server.store.series import ColumnSeries, Series

NAN = float("nan")


def integers(values: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def column(
    mean: ArrayLike, *, low: ArrayLike | None = None, high: ArrayLike | None = None, odd: ArrayLike = ()
) -> ColumnSeries:
    means = np.asarray(mean, dtype=np.float64)
    return ColumnSeries(
        min=means if low is None else np.asarray(low, dtype=np.float64),
        max=means if high is None else np.asarray(high, dtype=np.float64),
        mean=means,
        num_nonfinite=integers(odd) if np.size(odd) else np.zeros(means.shape, np.int64),
    )


def made(columns: dict[str, ColumnSeries], step: ArrayLike, *, bucket_steps: int = 1, **counts: ArrayLike) -> Series:
    first = integers(step)
    none = np.zeros(first.shape, np.int64)
    return Series(
        stream="main",
        attempt=None,
        bucket_steps=bucket_steps,
        step=first,
        last_step=first + bucket_steps - 1,
        columns=columns,
        num_steps=np.full(first.shape, bucket_steps),
        num_skipped=integers(counts.get("num_skipped", none)),
        num_clipped=integers(counts.get("num_clipped", none)),
    )


def matrix(
    largest: ArrayLike, step: ArrayLike, *, odd: ArrayLike | None = None, names: list[list[str]] | None = None
) -> LayerMatrix:
    values = np.atleast_2d(np.asarray(largest, dtype=np.float32))
    return LayerMatrix(
        stream="main",
        attempt=2,
        bucket_steps=1,
        step=integers(step),
        last_step=integers(step),
        layers=names or [[f"layer{i}"] for i in range(len(values))],
        max=values,
        num_nonfinite=np.zeros(values.shape, np.int64) if odd is None else integers(odd).reshape(values.shape),
        num_without_grad=np.zeros(values.shape, np.int64),
    )


def numbers(array: dict[str, str]) -> list[float]:
    raw = np.frombuffer(base64.b64decode(array["bdata"]), f"<{array['dtype']}")
    return [float(value) for value in raw]


def trace(figure: figures.Figure, role: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (trace for trace in figure["data"] if trace["role"] == role)
    return found


def points(figure: figures.Figure, role: str) -> list[tuple[float, float]]:
    shown = trace(figure, role)
    return list(zip(numbers(shown["x"]), numbers(shown["y"]), strict=True))


def norm_figure() -> figures.Figure:
    """Four steps: clipped, not finite, skipped, fine."""
    norm = column([5.0, NAN, 0.5, 0.25], odd=[0, 1, 0, 0])
    columns = {"grad_norm_before_clip": norm, "max_norm": column([1.0, NAN, 1.0, 1.0])}
    return figures.series_figure(
        "norm", made(columns, [10, 11, 12, 13], num_clipped=[1, 0, 0, 0], num_skipped=[0, 0, 1, 0]), position=7
    )


def test_the_norm_stands_with_its_threshold_and_its_marks() -> None:
    figure = norm_figure()
    assert (figure["position"], figure["bucket_steps"], figure["first_step"], figure["last_step"]) == (7, 1, 10, 13)
    assert numbers(trace(figure, "series")["y"])[::2] == [5.0, 0.5]
    assert np.isnan(numbers(trace(figure, "threshold")["y"])[1]), "no threshold is a gap"
    assert trace(figure, "threshold")["line"]["shape"] == "hv"
    assert points(figure, "clipped") == [(10.0, 5.0)]
    assert points(figure, "nonfinite") == [(11.0, 1.0)]
    assert points(figure, "skipped") == [(12.0, 0.94)]
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert figure["layout"]["yaxis2"]["range"] == [0, 1]
    assert {trace(figure, role)["yaxis"] for role in ("nonfinite", "skipped")} == {"y2"}


def test_each_trace_says_how_a_tick_extends_it() -> None:
    figure = norm_figure()
    assert trace(figure, "series")["live"] == {"y": "grad_norm_before_clip"}
    assert trace(figure, "threshold")["live"] == {"y": "max_norm"}
    assert trace(figure, "clipped")["live"] == {"y": "grad_norm_before_clip", "where": "clipped"}
    assert trace(figure, "nonfinite")["live"] == {"y": None, "top": True, "where": "nonfinite"}
    assert trace(figure, "skipped")["live"] == {"y": None, "top": True, "where": "skipped"}


def test_buckets_have_a_band_and_a_spike_reaches_it() -> None:
    columns = {
        "grad_norm_before_clip": column([1.0, 2.0], low=[0.5, 0.5], high=[1.5, 900.0], odd=[3, 0]),
        "max_norm": column([1.0, 1.0]),
    }
    figure = figures.series_figure(
        "norm", made(columns, [0, 16], bucket_steps=16, num_clipped=[2, 1]), position=0, first_step=0, last_step=31
    )
    assert points(figure, "band_low") == [(0.0, 0.5), (16.0, 0.5)]
    assert points(figure, "band_high") == [(0.0, 1.5), (16.0, 900.0)]
    assert trace(figure, "band_high")["fill"] == "tonexty"
    roles = [trace["role"] for trace in figure["data"]]
    assert roles.index("band_high") == roles.index("band_low") + 1, "Plotly fills down to the trace before"
    assert points(figure, "clipped") == [(0.0, 1.5), (16.0, 900.0)]
    assert points(figure, "nonfinite") == [(0.0, 1.0)]


def test_exact_steps_have_no_band() -> None:
    assert not any(trace["role"].startswith("band") for trace in norm_figure()["data"])


def test_every_chart_of_a_run_shares_the_x_axis() -> None:
    columns = {
        name: column([1.0, 2.0])
        for name in ("clip_coef", "loss", "lr", "loss_scale", "grad_norm_before_clip", "max_norm")
    }
    shown = [figures.series_figure(name, made(columns, [3, 9]), position=0) for name in figures.COLUMNS]
    shown.append(figures.layers_figure(matrix([1.0], [6]), position=0, first_step=3, last_step=9))
    assert [figure["layout"]["xaxis"] for figure in shown] == [{"range": [3, 9]}] * len(figures.NAMES)
    one = figures.series_figure("loss", made(columns, [3, 9]), position=0, first_step=5, last_step=5)
    assert one["layout"]["xaxis"]["range"] == [4.5, 5.5]


def test_the_loss_has_the_learning_rate_on_an_axis_of_its_own() -> None:
    figure = figures.series_figure("loss", made({"loss": column([2.0]), "lr": column([1e-3])}, [0]), position=0)
    assert points(figure, "lr") == [(0.0, 1e-3)]
    assert trace(figure, "lr")["yaxis"] == "y2"
    assert figure["layout"]["yaxis2"]["side"] == "right"


def test_the_clip_coefficient_stands_between_0_and_1() -> None:
    figure = figures.series_figure("clip_coef", made({"clip_coef": column([0.5])}, [0]), position=0)
    assert figure["layout"]["yaxis"]["range"] == [0, 1.05]


def test_the_loss_scale_is_a_staircase_on_powers_of_two() -> None:
    scale = {"loss_scale": column([2.0**24, 2.0**23, 2.0**4])}
    figure = figures.series_figure("loss_scale", made(scale, [0, 1, 2], num_skipped=[1, 1, 0]), position=0)
    assert trace(figure, "series")["line"]["shape"] == "hv"
    assert [x for x, _ in points(figure, "skipped")] == [0.0, 1.0]
    tick = figure["layout"]["yaxis"]["dtick"]
    assert tick == pytest.approx(3 * np.log10(2))


def test_layers_are_a_map_of_log10_with_gaps_and_marks() -> None:
    figure = figures.layers_figure(
        matrix(
            [[1.0, 100.0], [NAN, 0.0], [10.0, NAN]],
            [4, 5],
            odd=[[0, 0], [0, 0], [0, 2]],
            names=[["a"], ["b", "c"], ["d"]],
        ),
        position=3,
        first_step=4,
        last_step=5,
    )
    heat = trace(figure, "heat")
    assert heat["y"] == ["a", "b = c", "d"]
    assert heat["z"]["shape"] == "3, 2"
    z = np.reshape(numbers(heat["z"]), (3, 2))
    assert z[0].tolist() == [0.0, 2.0]
    assert np.isnan(z[1, 0]), "no gradient is a gap"
    assert np.isfinite(z[1, 1]), "a norm of zero is not"
    assert heat["zmin"] < heat["zmax"]
    assert heat["live"] == {"layers": True}
    marks = trace(figure, "nonfinite")
    assert (numbers(marks["x"]), marks["y"]) == ([5.0], ["d"])


def test_a_run_gone_nan_is_marked_where_it_began() -> None:
    num_layers, num_buckets = 100, 100
    odd = np.ones((num_layers, num_buckets), np.int64)
    odd[:, :10] = 0
    odd[7, 5] = 1
    figure = figures.layers_figure(
        matrix(np.ones(odd.shape), np.arange(num_buckets), odd=odd), position=0, first_step=0, last_step=99
    )
    marks = trace(figure, "nonfinite")
    found = set(zip(numbers(marks["x"]), marks["y"], strict=True))
    assert len(found) < figures.MAX_MARKED_CELLS
    assert (5.0, "layer7") in found
    assert {name for _, name in found} == {f"layer{i}" for i in range(num_layers)}
    assert {x for x, _ in found} == {5.0, *map(float, range(10, num_buckets))}


def test_a_layer_without_finite_norms_is_marked_where_each_stretch_begins() -> None:
    norms = [[1.0, NAN, NAN, 1.0, NAN], [1.0, 1.0, 1.0, 1.0, 1.0]]
    odd = [[0, 1, 1, 0, 1], [0, 0, 1, 1, 0]]  # the second layer has finite norms in the same buckets: each is marked
    figure = figures.layers_figure(matrix(norms, range(5), odd=odd), position=0, first_step=0, last_step=4)
    marks = trace(figure, "nonfinite")
    found = sorted(zip(marks["y"], numbers(marks["x"]), strict=True))
    assert numbers(marks["x"]) == sorted(numbers(marks["x"]))
    assert found == [("layer0", 1.0), ("layer0", 4.0), ("layer1", 2.0), ("layer1", 3.0)]


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_run_without_steps_has_empty_figures(name: str) -> None:
    if name == "layers":
        figure = figures.layers_figure(matrix(np.empty((0, 0)), []), position=0, first_step=None, last_step=None)
    else:
        empty = made({column_name: column([]) for column_name in figures.COLUMNS[name]}, [])
        figure = figures.series_figure(name, empty, position=0)
    assert (figure["first_step"], figure["last_step"]) == (None, None)
    for shown in figure["data"]:
        assert numbers(shown["x"]) == []


@pytest.mark.parametrize("value", [NAN, 0.0, 1e308, 1e-320])
@pytest.mark.parametrize("name", figures.NAMES)
def test_odd_values_still_make_a_figure(name: str, value: float) -> None:
    if name == "layers":
        figure = figures.layers_figure(matrix([min(value, 3e38)], [0]), position=0, first_step=0, last_step=0)
    else:
        columns = {column_name: column([value]) for column_name in figures.COLUMNS[name]}
        figure = figures.series_figure(name, made(columns, [0]), position=0)
    json.dumps(figure, allow_nan=False)


def test_there_are_roles_and_keys_but_neither_colours_nor_texts_nor_webgl() -> None:
    figure = norm_figure()
    for shown in figure["data"]:
        assert shown["role"]
        assert shown["key"].startswith("norm.")
        assert not shown["type"].endswith("gl")
        assert not {"name", "text", "marker", "fillcolor", "hovertemplate"} & shown.keys()
        assert "color" not in shown.get("line", {})
