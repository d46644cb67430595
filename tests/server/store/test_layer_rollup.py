"""What a bucket knows of its layers is what its steps say: the largest norm exactly, the others nearly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from gradsight_server.store import layer_rollup
from gradsight_server.store.layer_rollup import LayerBuckets

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
        found = layer_rollup.of_buckets(through_bytes(found, at))
    return found


def through_bytes(made: LayerBuckets, level: int) -> LayerBuckets:
    return LayerBuckets.of_blobs(level, made.bucket.tolist(), made.blobs(level), made.max.shape[1])


@given(NORMS, st.sampled_from([(1, 1), (2, 1), (2, 30), (3, 700)]))
def test_a_bucket_says_what_its_steps_say(norms: NDArray[np.float32], shape: tuple[int, int]) -> None:
    level, stride = shape
    found = through_bytes(of(norms, level, stride=stride), level)
    steps = stride * np.arange(len(norms))
    for i, bucket in enumerate(found.bucket.tolist()):
        inside = norms[steps // 16**level == bucket]
        assert found.num_rows[i] == len(inside)
        assert found.num_nonfinite[i].tolist() == (~np.isfinite(inside)).sum(axis=0).tolist()
        assert found.num_without_grad[i].tolist() == (inside == NONE).sum(axis=0).tolist()
        for layer, column in enumerate(inside.T):
            values = column[np.isfinite(column) & (column >= 0)].astype(np.float64)
            assert found.count[i, layer] == len(values)
            kinds = (found.max[i, layer], found.min[i, layer], found.mean[i, layer])
            if not len(values):
                assert np.isnan(kinds).all()
                continue
            assert kinds[0] == values.max()
            near = {"rel": 0.0014 * level, "abs": 1e-44}
            assert kinds[1] == pytest.approx(values.min(), **near)
            assert kinds[2] == pytest.approx(values.mean(), **near)


@pytest.mark.parametrize("level", range(1, 14))
def test_counts_have_room_for_a_full_bucket_at_every_level(level: int) -> None:
    full = np.array([[16**level]])
    made = LayerBuckets(
        bucket=np.array([0]),
        first_step=np.array([0]),
        last_step=np.array([16**level - 1]),
        num_rows=full[0],
        max=np.full((1, 1), np.nan, np.float32),
        min=np.full((1, 1), np.nan),
        mean=np.full((1, 1), np.nan),
        num_nonfinite=full,
        num_without_grad=np.zeros((1, 1), np.int64),
    )
    assert through_bytes(made, level).num_nonfinite.tolist() == full.tolist()


def test_a_layer_takes_eight_bytes_where_nothing_is_missing() -> None:
    norms = np.ones((16, 1000), np.float32)
    (blob,) = layer_rollup.of_rows(np.arange(16), norms).blobs(1)
    assert len(blob) == 25 + 8 * 1000
    norms[3, 4] = np.nan
    (blob,) = layer_rollup.of_rows(np.arange(16), norms).blobs(1)
    assert len(blob) == 25 + 9 * 1000
