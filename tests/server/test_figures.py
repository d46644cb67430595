"""Figures: what each trace holds, how a tick extends it, and that no spike, NaN, skip or clip is lost on the way."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]
import pytest
from numpy.typing import ArrayLike, NDArray

from gradsight_server import figures
from gradsight_server.diagnosis import Histogram
from gradsight_server.store.layers import LayerMatrix
from gradsight_server.store.metrics import MetricCurve
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


def drawn(name: str, columns: dict[str, ColumnSeries], step: ArrayLike, **options: Any) -> figures.Figure:
    """The series figure of that name; a column that isn't given was not recorded."""
    nothing = column(np.full(np.size(step), NAN))
    filled = {each: columns.get(each, nothing) for each in figures.COLUMNS[name]}
    return figures.series_figure(name, made(filled, step, **options), position=0)


def histogram(
    norms: ArrayLike, *, max_norm: float | None = None, recommended: tuple[float, float] | None = None
) -> figures.Figure:
    """Of these norms, in octaves."""
    values = np.asarray(norms, dtype=np.float64)
    positive = values[values > 0]
    exponents = np.floor(np.log2(positive)) if positive.size else np.zeros(1)
    edges = np.exp2(np.arange(exponents.min(), exponents.max() + 2))
    counts, _ = np.histogram(positive, edges)
    return figures.histogram_figure(
        Histogram(np.append(0.0, edges), np.append(np.count_nonzero(values == 0), counts)),
        max_norm=max_norm,
        recommended=recommended,
        stream="main",
        attempt=None,
        position=3,
        first_step=0,
        last_step=9,
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
    columns = {name: column([1.0, 2.0]) for names in figures.COLUMNS.values() for name in names}
    shown = [figures.series_figure(name, made(columns, [3, 9]), position=0) for name in figures.COLUMNS]
    shown.append(figures.layers_figure(matrix([1.0], [6]), position=0, first_step=3, last_step=9))
    shown.append(figures.layer_figure(matrix([1.0], [6]), 0, position=0, first_step=3, last_step=9))
    assert [figure["layout"]["xaxis"] for figure in shown] == [{"range": [3, 9]}] * len(shown)
    assert len(shown) == len(figures.NAMES) - 2  # the metrics have a test of their own, the histogram has other axes
    one = figures.series_figure("loss", made(columns, [3, 9]), position=0, first_step=5, last_step=5)
    assert one["layout"]["xaxis"]["range"] == [4.5, 5.5]


def test_the_loss_has_the_learning_rate_on_an_axis_of_its_own() -> None:
    figure = drawn("loss", {"loss": column([2.0]), "lr": column([1e-3])}, [0])
    assert points(figure, "lr") == [(0.0, 1e-3)]
    assert trace(figure, "lr")["yaxis"] == "y2"
    assert figure["layout"]["yaxis2"]["side"] == "right"


def test_the_clip_coefficient_stands_between_0_and_1() -> None:
    figure = figures.series_figure("clip_coef", made({"clip_coef": column([0.5])}, [0]), position=0)
    assert figure["layout"]["yaxis"]["range"] == [0, 1.05]


def test_the_loss_scale_is_a_staircase_on_powers_of_two() -> None:
    scale = {"loss_scale": column([2.0**24, 2.0**23, 2.0**4])}
    figure = drawn("loss_scale", scale, [0, 1, 2], num_skipped=[1, 1, 0])
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


def every_figure(value: float | None) -> dict[str, figures.Figure]:
    """One of each, of a single step with this value, or of none."""
    values = [] if value is None else [value]
    end = None if value is None else 0
    columns = {name: column(values) for names in figures.COLUMNS.values() for name in names}
    steps = range(len(values))
    ends: dict[str, Any] = {"position": 0, "first_step": end, "last_step": end}
    shown = {name: figures.series_figure(name, made(columns, steps), position=0) for name in figures.COLUMNS}
    norms = np.minimum(np.array([values]), 3e38)
    shown["layers"] = figures.layers_figure(matrix(norms if values else np.empty((0, 0)), steps), **ends)
    shown["layer"] = figures.layer_figure(matrix(norms, steps, names=[["a"]]), 0, **ends)
    shown["histogram"] = figures.histogram_figure(
        Histogram(np.array([0.0, 1.0]), np.array([len(values)])),
        max_norm=value if value and value > 0 else None,
        recommended=(0.5, 2.0) if value else None,
        stream="main",
        attempt=None,
        position=0,
        first_step=end,
        last_step=end,
    )
    curve = np.array(values, dtype=np.float64)
    metric = MetricCurve("val_loss", 1, integers(steps), curve, curve, curve, integers([0 for _ in values]))
    shown["metrics"] = figures.metrics_figure([metric], stream="main", attempt=None, **ends)
    assert shown.keys() == set(figures.NAMES)
    return shown


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_run_without_steps_has_empty_figures(name: str) -> None:
    figure = every_figure(None)[name]
    assert (figure["first_step"], figure["last_step"]) == (None, None)
    for shown in figure["data"]:
        assert numbers(shown["x"]) == []


@pytest.mark.parametrize("value", [NAN, 0.0, 1e308, 1e-320])
@pytest.mark.parametrize("name", figures.NAMES)
def test_odd_values_still_make_a_figure(name: str, value: float) -> None:
    json.dumps(every_figure(value)[name], allow_nan=False)


def test_a_sampled_ratio_is_drawn_through_its_samples() -> None:
    figure = drawn("update_ratio", {"update_ratio": column([1e-3, NAN, NAN, 2e-3])}, range(4))
    line = trace(figure, "series")
    assert numbers(line["x"]) == [0.0, 3.0]
    assert line["live"] == {"y": "update_ratio", "sparse": True}


def test_a_scale_of_zero_is_marked_at_the_bottom() -> None:
    figure = drawn("loss_scale", {"loss_scale": column([2.0, 1.0, 0.0])}, range(3))
    assert numbers(trace(figure, "zero")["x"]) == [2.0]


def test_spikes_are_marked_where_they_stand_out() -> None:
    norm = np.full(200, 1.0) + 0.01 * np.sin(np.arange(200))
    norm[120] = 50.0
    figure = drawn("norm", {"grad_norm_before_clip": column(norm)}, range(200))
    assert points(figure, "spike") == [(120.0, 50.0)]
    assert trace(figure, "spike")["live"] is None, "one step says nothing of the norms around it"
    low, high = np.full(50, 0.9), np.full(50, 1.2)
    high[7] = 300.0
    figure = drawn(
        "norm", {"grad_norm_before_clip": column(np.ones(50), low=low, high=high)}, range(0, 800, 16), bucket_steps=16
    )
    assert points(figure, "spike") == [(112.0, 300.0)], "a spike inside of a bucket is one too"


def test_the_clip_fraction_is_that_of_the_steps_before() -> None:
    num_clipped = np.zeros(300, np.int64)
    num_clipped[200:] = 1
    columns = {"grad_norm_before_clip": column(np.ones(300)), "max_norm": column(np.ones(300))}
    figure = drawn("clip_fraction", columns, range(300), num_clipped=num_clipped)
    share = dict(points(figure, "series"))
    assert (share[199], share[200], share[249], share[299]) == (0.0, 0.01, 0.5, 1.0)
    assert trace(figure, "series")["live"] == {"y": "clipped", "window": figures.CLIP_FRACTION_STEPS}
    borders = {shown["key"]: numbers(shown["y"]) for shown in figure["data"] if shown["role"] == "border"}
    assert borders == {"clip_fraction.firm": [0.3, 0.3], "clip_fraction.too_tight": [0.5, 0.5]}


def test_the_clip_fraction_is_over_finite_norms_and_unknown_without_a_threshold() -> None:
    norm = column([2.0, NAN, NAN, 2.0], odd=[0, 16, 0, 8])
    known = {"grad_norm_before_clip": norm, "max_norm": column([1.0] * 4)}
    figure = drawn("clip_fraction", known, range(0, 1024, 256), bucket_steps=256, num_clipped=[64, 0, 0, 124])
    share = [y for _, y in points(figure, "series")]
    assert (share[0], share[3]) == (64 / 256, 124 / 248)
    assert np.isnan(share[1:3]).all()
    without = drawn("clip_fraction", {"grad_norm_before_clip": column([2.0, 3.0])}, [0, 1])
    assert np.isnan([y for _, y in points(without, "series")]).all(), "0 % would be a lie"


def test_head_room_is_the_scale_that_would_overflow() -> None:
    scale = {"loss_scale": column([1024.0] * 4), "headroom_log2": column([NAN, 3.0, NAN, -1.0])}
    assert points(drawn("loss_scale", scale, range(4)), "headroom") == [(1.0, 8192.0), (3.0, 512.0)]


def test_the_histogram_is_split_at_the_threshold() -> None:
    figure = histogram([1.5] * 6 + [3.0] * 3 + [6.0], max_norm=2.0, recommended=(2.5, 4.0))
    assert figure["num_norms"] == 10
    assert (trace(figure, "below")["share"], trace(figure, "above")["share"]) == pytest.approx((0.6, 0.4))
    assert points(figure, "below") == [(0.0, 1.0), (0.6, 1.0), (0.6, 2.0), (0.0, 2.0)]
    assert points(figure, "above") == [(0.0, 2.0), (0.3, 2.0), (0.3, 4.0), (0.1, 4.0), (0.1, 8.0), (0.0, 8.0)]
    assert {y for _, y in points(figure, "threshold")} == {2.0}
    assert {y for _, y in points(figure, "recommended")} == {2.5, 4.0}
    assert figure["layout"]["yaxis"] == norm_figure()["layout"]["yaxis"], "it stands beside the norm"
    assert figure["layout"]["xaxis"]["range"] == pytest.approx([0, 0.63])


def test_a_bin_that_holds_the_threshold_is_cut() -> None:
    figure = histogram([1.5] * 4, max_norm=2.0**0.5)
    assert type(trace(figure, "above")["share"]) is float, "what the encoder takes"
    assert trace(figure, "above")["share"] == pytest.approx(0.5)
    assert points(figure, "below")[-1] == (0.0, 2.0**0.5)
    assert points(figure, "above")[0] == (0.0, 2.0**0.5)


@pytest.mark.parametrize(("max_norm", "above"), [(0.01, 1.0), (100.0, 0.0)])
def test_a_threshold_beyond_all_norms_leaves_one_side_empty(max_norm: float, above: float) -> None:
    figure = histogram([1.5, 3.0], max_norm=max_norm)
    assert trace(figure, "above")["share"] == above
    assert (points(figure, "below") == []) is (above == 1.0)
    assert (points(figure, "above") == []) is (above == 0.0)


def test_zeros_count_though_they_have_no_place_on_the_axis() -> None:
    figure = histogram([0.0, 0.0, 1.5, 3.0], max_norm=2.0)
    assert (trace(figure, "below")["share"], trace(figure, "above")["share"]) == (0.75, 0.25)


def test_a_histogram_without_a_threshold_is_in_one_piece() -> None:
    figure = histogram(np.exp2(np.arange(100) % 90), max_norm=None)
    assert [shown["role"] for shown in figure["data"]] == ["norms"]
    assert len(points(figure, "norms")) <= 2 * 61


def test_the_dominant_layer_is_a_line_through_the_map() -> None:
    norms = [[9.0, 1.0, 1.0], [1.0, 1.0, 9.0], [1.0, 1.0, 1.0], [1.0, 1.0, NAN]]
    figure = figures.layers_figure(matrix(norms, [0, 1, 2]), position=0, first_step=0, last_step=2)
    assert trace(figure, "dominant")["y"] == ["layer0", None, "layer1"]
    even = figures.layers_figure(matrix(np.ones((4, 3)), [0, 1, 2]), position=0, first_step=0, last_step=2)
    assert trace(even, "dominant")["y"] == []


def test_one_layer_has_a_chart_of_its_own() -> None:
    shown = matrix([[1.0, NAN], [2.0, 3.0]], [4, 5], odd=[[0, 1], [0, 0]], names=[["a", "b"], ["c"]])
    figure = figures.layer_figure(shown, 0, position=0, first_step=4, last_step=5)
    assert figure["layer"] == "a = b"
    assert points(figure, "series")[0] == (4.0, 1.0)
    assert points(figure, "nonfinite") == [(5.0, 1.0)]
    assert trace(figure, "series")["live"] == {"layers": True, "layer": 0}
    assert [figures.find_layer(shown.layers, name) for name in ("a = b", "b", "c", "d")] == [0, 0, 1, None]


@pytest.mark.parametrize("theme", [figures.LIGHT, figures.DARK])
@pytest.mark.parametrize("value", [None, 1.5])
@pytest.mark.parametrize("name", figures.NAMES)
def test_a_resolved_figure_is_plain_plotly(name: str, value: float | None, theme: figures.Theme) -> None:
    figure = every_figure(value)[name]
    plain = figures.resolved(figure, theme)
    go.Figure(plain)  # raises at whatever Plotly does not know
    for shown, resolved in zip(figure["data"], plain["data"], strict=True):
        assert resolved["name"]
        assert resolved["name"] != shown["key"], "every key has a text"
        assert not {"role", "key", "live", "share"} & resolved.keys()
    assert plain["layout"]["paper_bgcolor"] == theme.surface
    assert plain["layout"]["yaxis"]["title"]["text"]
    assert shown["role"], "the figure itself stays as it was"


def test_texts_of_another_language_take_the_place_of_ours() -> None:
    plain = figures.resolved(norm_figure(), texts={"norm.mean": "Norm"})
    assert "Norm" in [shown["name"] for shown in plain["data"]]
    assert "norm.threshold" in [shown["name"] for shown in plain["data"]], "a text that is missing shows its key"


def test_there_are_roles_and_keys_but_neither_colours_nor_texts_nor_webgl() -> None:
    figure = norm_figure()
    for shown in figure["data"]:
        assert shown["role"]
        assert shown["key"].startswith("norm.")
        assert not shown["type"].endswith("gl")
        assert not {"name", "text", "marker", "fillcolor", "hovertemplate"} & shown.keys()
        assert "color" not in shown.get("line", {})
