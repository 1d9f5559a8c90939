import numba
import numpy as np
import pytest

from dkfeat.compiled.sampling import feature_major
from dkfeat.compiled.sampling.feature_major import AHEAD, signed_logs, transpose_rows


def random_entries(n_rows, n_features, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 8, n_rows)
    columns = [
        rng.choice(min(n_features, 10**6), count, replace=False) * (n_features // 10**6 or 1) for count in counts
    ]
    columns = np.concatenate(columns).astype(np.int64)
    negative = rng.random(len(columns)) < 0.3
    return np.concatenate([[0], np.cumsum(counts)]), columns, negative, rng.normal(size=len(columns)).astype(np.float32)


@pytest.mark.parametrize("rows_in_l1", [7, 384])
@pytest.mark.parametrize("n_features", [9, 4000, 2**40])
def test_turn__holds_every_entry_in_order(n_features, rows_in_l1, monkeypatch):
    monkeypatch.setattr(feature_major, "_ROWS_IN_L1", rows_in_l1)
    monkeypatch.setattr(feature_major, "_USES", 1)
    indptr, columns, negative, logs = random_entries(60, n_features)
    turned = transpose_rows(indptr, columns, negative, logs)
    keys = 2 * columns + negative
    assert np.array_equal(turned.coordinates, np.unique(keys))
    rows = np.repeat(np.arange(60), np.diff(indptr))
    found = []
    for s, starts in enumerate(turned.starts):
        for q, key in enumerate(turned.coordinates):
            entries = np.arange(starts[q], starts[q + 1])
            places = turned.offsets[2 * entries] // 16
            assert (np.diff(places) > 0).all()
            found += [(s, place, key, log) for place, log in zip(places, turned.logs[2 * entries + 1], strict=True)]
    blocks = {row: s for s, row, _, _ in found}
    assert sorted(entry[1:] for entry in found) == sorted(zip(rows, keys, logs, strict=True))
    assert [blocks[row] for row in sorted(blocks)] == sorted(blocks.values())
    assert len(turned.offsets) == 2 * (len(columns) + AHEAD)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large input")
def test_turn__dense_rows_are_cut_into_blocks():
    n_rows = 2000
    indptr, columns = np.arange(0, 10 * n_rows + 1, 10), np.tile(np.arange(10), n_rows)
    turned = transpose_rows(indptr, columns, np.zeros(10 * n_rows, bool), np.zeros(10 * n_rows, np.float32))
    assert turned.starts.shape == (6, 11)
    wide = transpose_rows(
        indptr, np.arange(10 * n_rows), np.zeros(10 * n_rows, bool), np.zeros(10 * n_rows, np.float32)
    )
    assert wide.starts.shape == (1, 10 * n_rows + 1)


@pytest.mark.parametrize("smallest", [4, 1 << 16])
def test_turn__hashed_coordinates_have_the_ranks_of_small_ones(smallest, monkeypatch):
    monkeypatch.setattr(feature_major, "_USUAL_TABLE", smallest)
    indptr, columns, negative, logs = random_entries(80, 300)
    far = np.sort(np.random.default_rng(1).integers(0, 2**40 // 300, 300)) + np.arange(300) * (2**40 // 300)
    near, wide = transpose_rows(indptr, columns, negative, logs), transpose_rows(indptr, far[columns], negative, logs)
    assert np.array_equal(wide.coordinates, 2 * far[near.coordinates // 2] + near.coordinates % 2)
    assert np.array_equal(wide.starts, near.starts)
    assert np.array_equal(wide.offsets, near.offsets)


def test_signed_logs__float32_and_float64_agree():
    values = np.array([1.5, -2.25, 1e-40, 0.0, 3e38], np.float32)
    for power in (1.0, 0.5):
        logs, negative = signed_logs(values, power)
        again, signs = signed_logs(values.astype(np.float64), power)
        assert np.array_equal(logs, again)
        assert negative.tolist() == signs.tolist() == [False, True, False, False, False]
        with np.errstate(divide="ignore"):
            expected = power * np.log(np.abs(values.astype(np.float64)))
        assert np.allclose(logs, expected, rtol=1e-7)


@pytest.mark.parametrize("n_features", [300, 2**40])
def test_turn__strips_change_nothing(n_features, monkeypatch):
    indptr, columns, negative, logs = random_entries(60, n_features)
    rows = np.repeat(np.arange(60), np.diff(indptr))
    ascending = columns[np.lexsort((columns, rows))]
    for given in (ascending, columns):
        whole = transpose_rows(indptr, given, negative, logs)
        with monkeypatch.context() as patched:
            patched.setattr(feature_major, "_STRIP", 7)
            patched.setattr(feature_major, "_ENTRIES_IN_STRIP", 0)
            for one, other in zip(transpose_rows(indptr, given, negative, logs), whole, strict=True):
                assert one.tobytes() == other.tobytes()
