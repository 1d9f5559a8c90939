"""Gram matrices as Dask arrays, against the kernel functions on rows in memory."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import dkfeat
from dkfeat import kernels
from dkfeat.errors import ConfigError, InputError


def rows(n_samples=23, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random(n_samples, 9, density=0.4, random_state=rng, format="csr")
    X.data /= 9
    return X


def blocks(X, kind=np.asarray, chunks=5, *, known=True, columns=None):
    array = da.from_array(X.toarray(), chunks=(chunks, columns or X.shape[1]))
    if columns is None:
        array = array.map_blocks(kind, dtype=X.dtype, meta=kind(np.empty((0, 0))))
    if not known:
        array._chunks = ((np.nan,) * array.numblocks[0], array.chunks[1])
    return array


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("kernel", kernels.__all__)
def test_gram__is_that_of_rows_in_memory(kernel, kind):
    X, Y = rows(), rows(11, seed=1)
    function = getattr(kernels, kernel)
    found = dkfeat.gram(blocks(X, kind), blocks(Y, kind, 4), kernel)
    assert (found.shape, found.dtype, found.chunks) == ((23, 11), np.float64, ((5, 5, 5, 5, 3), (4, 4, 3)))
    assert isinstance(found._meta, np.ndarray)
    assert np.allclose(found.compute(), function(X, Y), rtol=1e-9, atol=1e-12)
    alone = dkfeat.gram(blocks(X, kind), kernel=kernel).compute()
    assert np.allclose(alone, function(X), rtol=1e-9, atol=1e-12)
    assert np.array_equal(np.diag(alone), np.diag(function(kind(X.toarray()))))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_gram__with_unknown_row_chunks(kind):
    X = rows()
    found = dkfeat.gram(blocks(X, kind, known=False), kernel="rbf", gamma=0.3)
    assert np.isnan(found.shape).all()
    assert np.allclose(found.compute(), kernels.rbf(X, gamma=0.3))


def test_gram__joins_column_chunks():
    X = rows()
    assert np.array_equal(dkfeat.gram(blocks(X, columns=4)).compute(), kernels.gmm(X))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_gram__takes_one_side_in_memory(kind):
    X, Y = rows(), rows(11, seed=1)
    held = kind(Y.toarray())
    assert np.array_equal(dkfeat.gram(blocks(X), held, p=0.5).compute(), kernels.gmm(X, Y, p=0.5))
    assert np.array_equal(dkfeat.gram(held, blocks(X), p=0.5).compute(), kernels.gmm(Y, X, p=0.5))


def test_gram__computes_nothing_when_built_and_each_block_once():
    seen = []

    def look(block):
        seen.append(len(block))
        return block

    X = blocks(rows()).map_blocks(look, dtype=float, meta=np.empty((0, 0)))
    found = dkfeat.gram(X)
    assert seen == []
    found.compute(scheduler="synchronous")
    assert sorted(seen) == [3, 5, 5, 5, 5]


def test_gram__equal_calls_have_equal_names():
    X = blocks(rows())
    assert dkfeat.gram(X, p=2).name == dkfeat.gram(X, kernel="gmm", p=2.0).name != dkfeat.gram(X).name


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda X: dkfeat.gram(X, kernel="gm"), ConfigError, "kernel='gm', but it must be one of"),
    (lambda X: dkfeat.gram(X, gamma=1), ConfigError, "'gmm' has no parameter 'gamma'"),
    (lambda X: dkfeat.gram(X, p=-1), ConfigError, "p=-1"),
    (lambda X: dkfeat.gram(X.compute()), InputError, "call dkfeat.kernels.gmm"),
    (lambda X: dkfeat.gram(X, X[:, :3]), InputError, "X has 9 features and Y has 3"),
    (lambda X: dkfeat.gram(X[0]), InputError, "two-dimensional"),
    (lambda X: dkfeat.gram(X, np.ones(9)), InputError, "two dimensions"),
])  # fmt: skip
def test_gram__refuses_when_built(call, error, text):
    with pytest.raises(error, match=text):
        call(blocks(rows()))


def test_gram__names_the_blocks_of_a_bad_row():
    X = rows().toarray()
    X[12, 4] = -1
    found = dkfeat.gram(da.from_array(X, chunks=(5, 9)), kernel="reciprocal_semigroup")
    with pytest.raises(InputError, match="row 2, column 4") as caught, dask.config.set(scheduler="synchronous"):
        found.compute()
    assert any("in row blocks" in note and "2" in note for note in caught.value.__notes__)
