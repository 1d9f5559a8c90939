"""Compiled loops of the min-max kernels, called as their callers do."""

import numpy as np
import pytest

from dkfeat.compiled.products.minmax import SplitRows, minmax_of_pairs, mirror_lower


@pytest.mark.parametrize("n_coordinates", [8, 2**40])  # a slot for each coordinate, or hashed slots
def test_minmax_of_pairs__coordinates_of_one_slot(n_coordinates):
    step = 1 if n_coordinates == 8 else 2**32  # equal low halves: all belong in one slot
    indptr, coordinates = np.array([0, 3, 5]), np.array([0, 2, 5, 2, 7]) * step
    values, totals = np.array([1.0, 1.5, 0.5, 1.0, 1.0]), np.array([3.0, 2.0])
    rows = SplitRows(indptr, coordinates, values, np.zeros(2, np.int64), totals)
    out = np.empty(4)
    minmax_of_pairs(rows, rows, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), n_coordinates, np.ones(1), out)
    assert out.tolist() == [1.0, 0.25, 0.25, 1.0]


@pytest.mark.parametrize("n", [0, 1, 5, 8, 9])
@pytest.mark.parametrize("tile", [1, 3, 4, 100])
def test_mirror_lower__makes_a_symmetric_matrix(n, tile):
    square = np.arange(float(n * n)).reshape(n, n)
    lower = np.tril(square)
    mirror_lower(square, tile)
    assert np.array_equal(square, lower + np.tril(lower, -1).T)
