"""What a bucket knows of its layers is what its steps say: the largest norm exactly, the others nearly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from gradsight_server.store import layer_rollup
from gradsight_server.store.layer_rollup import LayerBuckets, Peaks

NONE = -1.0
NORMS = arrays(
    np.float32,
    st.tuples(st.integers(1, 40), st.integers(1, 5)),
    elements=st.one_of(
        st.floats(0, 1000, width=32), st.sampled_from([NONE, np.nan, np.inf, 0.0]), st.floats(0, width=32)
    ),
)


def of(norms: NDArray[np.float32], level: int, *, stride: int = 1) -> LayerBuckets:
    """Buckets of that level, each from those below it, through their bytes."""
    found = layer_rollup.of_rows(stride * np.arange(len(norms)), norms)
    for at in range(1, level):
        found = through_bytes(found, at).merged()
    return found


def through_bytes(made: LayerBuckets, level: int) -> LayerBuckets:
    return layer_rollup.of_blobs(level, made.peaks.bucket.tolist(), made.blobs(level))


@given(NORMS, st.sampled_from([(1, 1), (2, 1), (2, 30), (3, 700)]))
def test_a_bucket_says_what_its_steps_say(norms: NDArray[np.float32], shape: tuple[int, int]) -> None:
    level, stride = shape
    found = through_bytes(of(norms, level, stride=stride), level)
    peaks = found.peaks
    steps = stride * np.arange(len(norms))
    for i, bucket in enumerate(peaks.bucket.tolist()):
        inside = norms[steps // 16**level == bucket]
        assert peaks.num_rows[i] == len(inside)
        assert peaks.num_nonfinite[i].tolist() == (~np.isfinite(inside)).sum(axis=0).tolist()
        assert peaks.num_without_grad[i].tolist() == (inside == NONE).sum(axis=0).tolist()
        for layer, column in enumerate(inside.T):
            values = column[np.isfinite(column) & (column >= 0)].astype(np.float64)
            assert found.count[i, layer] == len(values)
            kinds = (peaks.max[i, layer], found.min[i, layer], found.mean[i, layer])
            if not len(values):
                assert np.isnan(kinds).all()
                continue
            assert kinds[0] == values.max()
            assert kinds[1] == pytest.approx(values.min(), rel=0.0014 * level, abs=1e-44)
            assert kinds[2] == pytest.approx(values.mean(), rel=0.0014 * level, abs=1e-44)


@pytest.mark.parametrize("level", range(1, 14))
def test_counts_have_room_for_a_full_bucket_at_every_level(level: int) -> None:
    full, none = np.array([[16**level]]), np.zeros((1, 1), np.int64)
    nan = np.full((1, 1), np.nan)
    peaks = Peaks(none[0], none[0], full[0], full[0], nan.astype(np.float32), num_nonfinite=full, num_without_grad=none)
    assert through_bytes(LayerBuckets(peaks, nan, nan), level).peaks.num_nonfinite.tolist() == full.tolist()


def test_a_layer_takes_eight_bytes_where_nothing_is_missing() -> None:
    norms = np.ones((16, 1000), np.float32)
    (blob,) = layer_rollup.of_rows(np.arange(16), norms).blobs(1)
    assert len(blob) == 25 + 8 * 1000
    norms[3, 4] = np.nan
    (blob,) = layer_rollup.of_rows(np.arange(16), norms).blobs(1)
    assert len(blob) == 25 + 9 * 1000
