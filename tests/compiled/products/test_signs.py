import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.compiled.jit import aligned
from dkfeat.compiled.products.signs import (
    GROUP,
    SCRATCH_SIZE,
    Components,
    Features,
    multiply_dense_signs,
    multiply_sparse_signs,
)
from dkfeat.compiled.random import packed_signs, transposed_signs

N_COLUMNS, N_COMPONENTS, OFFSET = 70, 21, 3
DEGREES = np.array([3] * 5 + [2] * 6 + [1] * 8 + [0, 0])
STARTS = np.array([2048 + 32, 2048 + 80, 2048 + 96])  # the first block begins inside the second superblock
TABLE = packed_signs(np.arange(N_COLUMNS), 1, 1, 33, 5)


def padded(values):
    return np.append(values, np.zeros(32 - N_COMPONENTS)).astype(np.float32)


SCALES = padded(np.linspace(0.3, 2, N_COMPONENTS))
CONSTANTS = padded(np.where(DEGREES > 0, 1, 0.25))
COMPONENTS = Components(STARTS, padded(DEGREES), SCALES, CONSTANTS, 0, 2, 2048, 2048)


def some_rows(density):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((19, N_COLUMNS)) * (rng.random((19, N_COLUMNS)) < density)
    return X.astype(np.float32), rng.random(19).astype(np.float32)


def dense(X, multipliers, *cuts):
    """Features of dense rows, taken in parts of their columns."""
    out, overflowed = np.zeros((len(X), OFFSET + N_COMPONENTS), np.float32), np.zeros(len(X), np.uint8)
    totals = aligned((32 if cuts else 16) * 2048, np.float32)  # of all 19 rows, or of 16 at a time
    for first, last in itertools.pairwise([0, *cuts, N_COLUMNS]):
        multiply_dense_signs(
            X.reshape(-1), multipliers, N_COLUMNS, first, last, transposed_signs(TABLE[first:last]).reshape(-1),
            COMPONENTS, Features(out.reshape(-1), OFFSET, out.shape[1], overflowed), aligned(SCRATCH_SIZE, np.float32),
            totals,
        )  # fmt: skip
    return out, overflowed


def sparse(X, multipliers):
    held = sp.csr_matrix(X)
    indptr, columns = held.indptr.astype(np.int64), held.indices.astype(np.int64)
    is_group_start = np.array(
        [at in indptr or columns[at] // GROUP != columns[at - 1] // GROUP for at in range(held.nnz)], bool
    )
    out, overflowed = np.zeros((len(X), OFFSET + N_COMPONENTS), np.float32), np.zeros(len(X), np.uint8)
    multiply_sparse_signs(
        indptr, columns, is_group_start, held.data, multipliers, TABLE.reshape(-1).view(np.uint16), COMPONENTS,
        Features(out.reshape(-1), OFFSET, out.shape[1], overflowed), np.empty(2048, np.float32), False, True,
    )  # fmt: skip
    return out, overflowed


@pytest.mark.parametrize("density", [0.02, 0.4, 1.0])
def test_sign_products__are_products_of_signed_sums(density):
    X, multipliers = some_rows(density)
    signs = 1.0 - 2.0 * np.unpackbits(TABLE.view(np.uint8), axis=1, bitorder="little")
    sums = (X * multipliers[:, None]).astype(float) @ signs
    wanted = np.zeros((len(X), N_COMPONENTS))
    for component, degree in enumerate(DEGREES):
        factors = [STARTS[component // 16] - 2048 + 16 * j + component % 16 for j in range(degree)]
        wanted[:, component] = CONSTANTS[component] * (sums[:, factors] * SCALES[component]).prod(axis=1)
    found, overflowed = dense(X, multipliers)
    assert np.abs(found[:, OFFSET:] - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert not found[:, :OFFSET].any()
    assert not overflowed.any()
    for same, marks in (sparse(X, multipliers), dense(X, multipliers, 64)):
        assert np.array_equal(same, found)
        assert not marks.any()


@pytest.mark.parametrize("multiply", [dense, sparse])
def test_sign_products__mark_rows_that_overflow(multiply):
    X, multipliers = some_rows(0.4)
    X[[4, 17]] *= np.float32(1e20)
    with np.errstate(over="ignore", invalid="ignore"):  # where the loops run as plain Python
        assert np.flatnonzero(multiply(X, multipliers)[1]).tolist() == [4, 17]
