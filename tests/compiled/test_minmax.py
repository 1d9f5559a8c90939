"""Compiled loops of the min-max kernels, called as their callers do."""

import numpy as np

from dkfeat.compiled.minmax import minmax_similarities


def similarities(x_exponents, *, is_symmetric=False):
    # two rows over two coordinates: (1, 2) and (2, 0), times 2^exponent
    indptr = np.array([0, 2, 3])
    coordinates = np.array([0, 1, 0])
    values = np.array([1.0, 2.0, 2.0])
    totals = np.array([3.0, 2.0])
    colptr, rows, columns = np.array([0, 2, 3]), np.array([0, 1, 0]), np.array([1.0, 2.0, 2.0])
    y_exponents = x_exponents if is_symmetric else np.zeros(2, np.int64)
    out = np.zeros((2, 2))
    minmax_similarities(
        indptr, coordinates, values, x_exponents, totals,
        colptr, rows, columns, y_exponents, totals,
        2.0 ** -np.arange(8.0), is_symmetric, out,
    )  # fmt: skip
    return out


def test_minmax_similarities__sums_over_shared_coordinates():
    assert similarities(np.array([0, 0])).tolist() == [[1.0, 0.25], [0.25, 1.0]]


def test_minmax_similarities__one_half_mirrored_is_the_whole():
    whole, half = similarities(np.array([0, 0])), similarities(np.array([0, 0]), is_symmetric=True)
    assert np.array_equal(whole, half)


def test_minmax_similarities__exponents_scale_rows():
    # (4, 8) against (1, 2) and (2, 0): 3 / 12 and 2 / 12; (2, 0) as before
    np.testing.assert_allclose(similarities(np.array([2, 0])), [[3 / 12, 2 / 12], [0.25, 1.0]], rtol=1e-15)


def test_minmax_similarities__coordinates_that_y_lacks_count_in_the_total_only():
    out = np.zeros((1, 1))
    one = np.array([1.0])
    minmax_similarities(
        np.array([0, 2]), np.array([-1, 0]), np.array([3.0, 1.0]), np.array([0]), np.array([4.0]),
        np.array([0, 1]), np.array([0]), one, np.array([0]), one,
        np.ones(1), False, out,
    )  # fmt: skip
    assert out.tolist() == [[0.25]]
