"""Products of float64 rows with a table, in one order whatever rows lie beside them, rounded to float32.

A matrix product of BLAS adds in an order that depends on the number of rows; here each result is a sum over the
inner index in ascending order, so a row's features are the same in every block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import kernel

__all__ = ["TILE", "multiply_rows"]

TILE = 64
"""Columns of the table that are summed together; their sums for four rows stay in the first-level cache."""
_ROWS = 4


@kernel
def multiply_rows(x: Any, n_samples: Any, n_inner: Any, table: Any, n_columns: Any, out: Any) -> None:
    """Write the product of rows and a table.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_inner,), float64
    n_samples, n_inner, n_columns : int
    table : ndarray of shape (n_tiles * n_inner * 64,), float64
        Columns in tiles of 64, the last one filled up with zeros.
    out : ndarray of shape (n_samples * n_columns,), float32
    """
    sums = np.empty(_ROWS * TILE, np.float64)
    for tile in range(-(-n_columns // TILE)):
        begin, width = tile * n_inner * TILE, min(TILE, n_columns - tile * TILE)
        for first in range(0, n_samples, _ROWS):
            rows = min(_ROWS, n_samples - first)
            sums[:] = 0.0
            for k in range(n_inner):
                weights = table[begin + k * TILE : begin + (k + 1) * TILE]
                for row in range(rows):
                    value = x[(first + row) * n_inner + k]
                    for column in range(TILE):
                        sums[row * TILE + column] += value * weights[column]
            for row in range(rows):
                to = (first + row) * n_columns + tile * TILE
                for column in range(width):
                    out[to + column] = np.float32(sums[row * TILE + column])
