"""Products whose bits do not depend on the rows beside."""

from fractions import Fraction

import numpy as np
import pytest

from dkfeat.compiled.products.matrix import multiply_rows
from dkfeat.compiled.random.tables import TILE


def product(x, weights):
    n_inner, n_columns = weights.shape
    tiles = np.zeros((-(-n_columns // TILE), n_inner, TILE))
    for tile in range(len(tiles)):
        part = weights[:, tile * TILE : (tile + 1) * TILE]
        tiles[tile, :, : part.shape[1]] = part
    out = np.full((len(x), n_columns), np.nan, np.float32)
    multiply_rows(np.ascontiguousarray(x).reshape(-1), len(x), n_inner, tiles.reshape(-1), n_columns, out.reshape(-1))
    return out


@pytest.mark.parametrize(
    ("n_samples", "n_inner", "n_columns"), [(0, 3, 2), (1, 1, 1), (7, 5, 64), (9, 3, 65), (4, 0, 3)]
)
def test_multiply_rows__is_the_exact_sum_rounded(n_samples, n_inner, n_columns):
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((n_samples, n_inner)), rng.standard_normal((n_inner, n_columns))
    exact = [
        [float(sum((Fraction(a) * Fraction(b) for a, b in zip(row, column, strict=True)), Fraction(0)))
         for column in weights.T] for row in x
    ]  # fmt: skip
    wanted = np.array(exact).reshape(n_samples, n_columns)
    assert np.abs(product(x, weights) - wanted).max(initial=0) < 1e-6


def test_multiply_rows__rows_do_not_depend_on_their_neighbours():
    rng = np.random.default_rng(1)
    x, weights = rng.standard_normal((11, 40)), rng.standard_normal((40, 70))
    whole = product(x, weights)
    for cut in range(12):
        assert np.array_equal(np.vstack([product(x[:cut], weights), product(x[cut:], weights)]), whole)
