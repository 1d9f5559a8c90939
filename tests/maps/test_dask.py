"""Feature maps of Dask arrays: block by block, without a look at the data."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.errors import InputError
from dkfeat.maps import GCWSFeatures


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((23, 7)) * (rng.random((23, 7)) < 0.6)


@pytest.fixture(scope="module")
def fitted():
    return GCWSFeatures(n_components=16, i_bits=4, random_state=3).fit_width(7)


def same(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


KINDS = [np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_matrix]


def blocks_of(rows, kind, chunks):
    return da.from_array(rows, chunks=chunks).map_blocks(kind, dtype=rows.dtype, meta=kind(np.empty((0, 0))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [(5, 7), (23, 7), ((1, 0, 22), 7)])
def test_transform_blocks__equals_the_bare_array(rows, fitted, kind, chunks):
    features = fitted.transform(blocks_of(rows, kind, chunks))
    assert features.dtype == np.float32
    assert features.shape == (23, 16 * 16)
    assert isinstance(features._meta, sp.csr_matrix)
    assert same(features.compute(scheduler="synchronous"), fitted.transform(rows))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_transform_blocks__joins_column_chunks(rows, fitted, kind):
    X = blocks_of(rows, kind, (5, 3))
    features = fitted.transform(X)
    assert features.chunks == (X.chunks[0], (256,))
    assert same(features.compute(scheduler="synchronous"), fitted.transform(rows))


def test_transform_blocks__keeps_unknown_row_chunks(rows, fitted):
    X = da.from_array(rows, chunks=(5, 3))
    X = X[X[:, 0] > 0]
    features = fitted.transform(X)
    assert np.isnan(features.chunks[0]).all()
    assert same(features.compute(scheduler="synchronous"), fitted.transform(rows[rows[:, 0] > 0]))


@pytest.mark.fault("P-14")
def test_transform_blocks__computes_nothing_while_building(rows):
    seen = []

    def count(block):
        seen.append(len(block))
        return block

    X = da.from_array(rows, chunks=(5, 7)).map_blocks(count, dtype=rows.dtype, meta=np.empty((0, 0)))
    features = GCWSFeatures(n_components=4, random_state=0).fit(X).transform(X)
    assert seen == []
    features.compute(scheduler="synchronous")
    assert sum(seen) == len(rows)


def test_transform_blocks__sends_the_map_once(rows):
    fitted = GCWSFeatures(n_components=4, center=np.arange(7.0), random_state=0).fit_width(7)
    graph = fitted.transform(da.from_array(rows, chunks=(1, 7))).__dask_graph__()
    holders = [key for key, task in dict(graph).items() if "GCWSFeatures" in repr(task)]
    assert len(holders) == 1


def test_transform_blocks__names_follow_the_map_and_the_input(rows, fitted):
    X = da.from_array(rows, chunks=(5, 7))
    again = GCWSFeatures(n_components=16, i_bits=4, random_state=3).fit_width(7)
    other = GCWSFeatures(n_components=16, i_bits=4, random_state=4).fit_width(7)
    assert fitted.transform(X).name == again.transform(X).name
    assert fitted.transform(X).name != other.transform(X).name
    assert fitted.transform(X).name != fitted.transform(X + 1).name


@pytest.mark.parametrize("shape", [(4,), (2, 7, 2), (4, 6)])
def test_transform_blocks__refuses_other_shapes(fitted, shape):
    with pytest.raises(InputError, match=r"two-dimensional|X has 6 features, but GCWSFeatures is expecting 7"):
        fitted.transform(da.ones(shape))


def test_transform_blocks__error_of_a_block_names_row_and_column(rows, fitted):
    spoilt = rows.copy()
    spoilt[6, 2] = np.nan
    features = fitted.transform(da.from_array(spoilt, chunks=(5, 7)))
    with pytest.raises(InputError, match="NaN at row 1, column 2") as caught:
        features.compute(scheduler="synchronous")
    assert (caught.value.row, caught.value.column) == (1, 2)
    assert caught.value.__notes__ == ["in row block 1 of the Dask array"]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_transform_blocks__equal_on_every_scheduler(rows, fitted, scheduler):
    features = fitted.transform(da.from_array(rows, chunks=(6, 7)))
    with dask.config.set({"multiprocessing.context": "forkserver"}):
        assert same(features.compute(scheduler=scheduler, num_workers=2), fitted.transform(rows))
