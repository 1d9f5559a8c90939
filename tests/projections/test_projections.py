"""Projections against the dense matrices that they stand for, built here from their definitions."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from dkfeat.compiled.random import TILE, levy
from dkfeat.projections import (
    CirculantProjection,
    DenseProjection,
    FastfoodProjection,
    OrthogonalProjection,
    _fastfood_tables,
    _orthogonal_signs,
)
from tests.conftest import peak_bytes
from tests.reference.projections import matrix as matrix_of

KINDS = {
    "dense": (DenseProjection, {}),
    "circulant": (CirculantProjection, {}),
    "circulant, no flips": (CirculantProjection, {"flips": False}),
    "circulant, double": (CirculantProjection, {"double": True}),
    "two mixtures": (CirculantProjection, {"n_mixtures": 2}),
    "five mixtures, no flips": (CirculantProjection, {"n_mixtures": 5, "flips": False}),
    "fastfood": (FastfoodProjection, {}),
    "orthogonal": (OrthogonalProjection, {}),
}
PROJECTIONS = [pytest.param(kind, id=kind) for kind in KINDS]


def make(kind, n_features, n_components, seed=3):
    cls, options = KINDS[kind]
    return cls(n_features=n_features, n_components=n_components, seed=seed, **options)


def some_rows(n_samples, n_features, density=0.6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < density)
    X[::7] = 0
    return X.astype(np.float32)


@pytest.mark.parametrize(("n_features", "n_components"), [(8, 8), (16, 5), (17, 100), (33, 64), (64, 130), (1, 3)])
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__is_its_matrix(kind, n_features, n_components):
    projection, X = make(kind, n_features, n_components), some_rows(9, n_features)
    matrix = matrix_of(projection)
    assert matrix.shape == (n_components, n_features)
    projected = projection.project(X)
    assert projected.dtype == np.float32
    # float32 sums of up to 64 products: a bound of 2^-24 times the number of roundings, relative to |W| |x|
    bound = 2.0**-24 * (n_features + 8) * np.linalg.norm(matrix, axis=1).max() * np.linalg.norm(X, axis=1)[:, None]
    assert (np.abs(projected - X @ matrix.T) <= bound + 1e-30).all()


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__rows_do_not_depend_on_their_blocks(kind):
    projection, X = make(kind, 50, 70), some_rows(40, 50)
    whole = projection.project(X)
    for cuts in ((0, 1, 40), (0, 13, 26, 39, 40), range(41)):
        for rows in (X, sp.csr_matrix(X)):
            parts = [projection.project(rows[a:b]) for a, b in itertools.pairwise(cuts)]
            assert np.array_equal(np.vstack(parts), whole)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__read_only_rows_and_no_rows(kind):
    projection, X = make(kind, 20, 30), some_rows(4, 20)
    wanted = projection.project(X)
    X.flags.writeable = False
    assert np.array_equal(projection.project(X), wanted)
    for none in (X[:0], sp.csr_matrix(X[:0])):
        assert projection.project(none).shape == (0, 30)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__the_seed_decides(kind):
    X = some_rows(5, 20)
    one, other = make(kind, 20, 30), make(kind, 20, 30, seed=4)
    assert np.array_equal(one.project(X), make(kind, 20, 30).project(X))
    assert not np.allclose(one.project(X), other.project(X))


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__more_components_go_on_from_fewer(kind):
    X = some_rows(5, 20)
    assert np.array_equal(make(kind, 20, 90).project(X)[:, :30], make(kind, 20, 30).project(X))


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projection__entries_have_mean_0_and_variance_1(kind):
    # 400 seeds x 48 x 24 entries. Entries of a matrix share draws, so that the spread over seeds gives the standard
    # error: |z| > 5, 6e-7 a check
    means, squares = [], []
    for seed in range(400):
        matrix = matrix_of(make(kind, 24, 48, seed=seed))
        means.append(matrix.mean())
        squares.append((matrix**2).mean())
    for values, expected in ((means, 0.0), (squares, 1.0)):
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 5 * error + 1e-12


def test_dense__columns_that_never_meet_give_the_same_entries():
    # a table of all columns, the columns present, ranks by marks and ranks by sorting
    row = np.zeros((1, 300), np.float32)
    row[0, [3, 77, 299]] = [1, -2, 0.5]
    wanted = DenseProjection(n_features=300, n_components=70, seed=9).project(row)
    for n_features in (2**17, 2**40):
        wide = sp.csr_matrix((row[row != 0], ([0, 0, 0], [3, 77, 299])), shape=(1, n_features))
        assert np.array_equal(DenseProjection(n_features=n_features, n_components=70, seed=9).project(wide), wanted)


def test_dense__rows_that_are_wide_and_dense_take_tiles_in_groups():
    n_features = 70_000
    X = some_rows(2, n_features, density=0.01)
    projection = DenseProjection(n_features=n_features, n_components=3 * TILE + 1, seed=1)
    projected = projection.project(X)
    assert np.array_equal(projection.project(sp.csr_matrix(X)), projected)
    narrow = DenseProjection(n_features=n_features, n_components=40, seed=1)
    assert np.allclose(projected[:, :40], X @ matrix_of(narrow).T, atol=1e-3)


def test_circulant__blocks_are_circulant_and_independent():
    projection = make("circulant, no flips", 30, 75)
    n = projection.length
    matrix = matrix_of(projection)
    assert (n, projection.n_blocks) == (30, 3)
    blocks = [scipy.linalg.circulant(matrix[first : first + n, 0]) for first in (0, 30)]
    assert np.array_equal(np.concatenate(blocks), matrix[:60])
    assert not np.isin(matrix[:30, 0], matrix[30:60, 0]).any()


def test_circulant__flips_change_signs_of_columns():
    flipped, plain = matrix_of(make("circulant", 30, 30)), matrix_of(make("circulant, no flips", 30, 30))
    signs = flipped / plain
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert (signs == signs[0]).all()


def test_circulant__pads_to_a_length_that_the_fft_likes():
    projection = make("circulant, no flips", 17, 18)
    matrix = matrix_of(projection)
    assert projection.length == 18
    assert np.array_equal(matrix[1:, 1:], matrix[:-1, :-1])


def test_mixtures__each_column_takes_one_circulant():
    m, n = 5, 64
    projection = CirculantProjection(n_features=n, n_components=n, seed=2, n_mixtures=m, flips=False)
    weights = projection._weights()[0]
    matrix, chosen = matrix_of(projection), []
    for j in range(n):
        fits = [l for l in range(m) if np.array_equal(np.roll(weights[l], j), matrix[:, j])]  # noqa: E741  # as in eq. 7
        assert len(fits) == 1
        chosen += fits
    assert len(set(chosen)) == m


def test_fastfood__rows_have_the_lengths_of_gaussian_rows():
    # squared lengths are chi squared with n = 64 degrees: mean n, variance 2 n; 100 seeds x 64 rows; |z| > 5, 6e-7 each
    squares = np.concatenate([(matrix_of(make("fastfood", 64, 64, seed=s)) ** 2).sum(axis=1) for s in range(100)])
    count, n = len(squares), 64
    assert abs(squares.mean() - n) < 5 * np.sqrt(2 * n / count)
    fourth = 12 * n**2 + 48 * n
    assert abs(((squares - n) ** 2).mean() - 2 * n) < 5 * np.sqrt((fourth - 4 * n**2) / count)


def test_fastfood__permutations_are_permutations():
    order = _fastfood_tables(make("fastfood", 64, 200)).order
    assert order.shape == (4, 64)
    assert (np.sort(order, axis=1) == np.arange(64)).all()
    assert not np.array_equal(order[0], order[1])


def assert_independent(table):
    # entries of mean 0 and variance 1 in 1,024 columns: |z| > 5, 6e-7 a pair of rows
    products = table.astype(np.float64) @ table.T / table.shape[1]
    assert np.abs(products - np.diag(np.diag(products))).max() < 5 / np.sqrt(table.shape[1])


def test_fastfood__blocks_share_no_diagonal():
    tables = _fastfood_tables(make("fastfood", 1024, 3 * 1024))
    assert_independent(tables.signs)
    assert_independent(tables.gaussians)
    lengths = tables.lengths / tables.lengths.mean(axis=1, keepdims=True) - 1
    assert_independent(lengths / lengths.std(axis=1, keepdims=True))


def test_orthogonal__all_diagonals_of_all_blocks_are_independent_signs():
    signs = _orthogonal_signs(make("orthogonal", 1024, 3 * 1024))
    assert signs.shape == (3, 3, 1024)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert_independent(signs.reshape(9, 1024))
    assert np.abs(signs.mean(axis=2)).max() < 5 / np.sqrt(1024)


@pytest.mark.parametrize("n", [16, 64])
def test_orthogonal__rows_are_orthogonal_and_of_length_sqrt_n(n):
    matrix = matrix_of(make("orthogonal", n, 2 * n))
    for block in (matrix[:n], matrix[n:]):
        assert np.allclose(block @ block.T, n * np.eye(n))
    assert not np.allclose(matrix[:n] @ matrix[n:].T, 0)


def columns_that_differ(n_samples, nnz):
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(2**40, n_samples * nnz, replace=False).reshape(n_samples, nnz), axis=1)
    values = rng.standard_normal(n_samples * nnz).astype(np.float32)
    return sp.csr_matrix((values, columns.ravel(), np.arange(n_samples + 1) * nnz), shape=(n_samples, 2**40))


@pytest.mark.slow
@pytest.mark.parametrize(("n_samples", "nnz"), [(900, 1000), (1, 900_000), (3, 300_000)])
def test_dense__memory_does_not_grow_with_the_columns_of_a_block(n_samples, nnz):
    X = columns_that_differ(n_samples, nnz)
    projection = DenseProjection(n_features=2**40, n_components=70, seed=0)
    projection.project(X[:0])  # compiles
    # ranks of columns, a few numbers a nonzero; a tile of all columns would be 230 MB
    assert peak_bytes(lambda: projection.project(X)) < projection.table_bytes + 100 * X.nnz
    assert projection.table_bytes == 64 * 2**20


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_dense__columns_in_parts_give_equal_bits(kind, monkeypatch):
    X = some_rows(30, 900, density=0.3)
    projection = DenseProjection(n_features=900, n_components=100, seed=1)
    wanted = projection.project(kind(X))
    monkeypatch.setattr("dkfeat.projections._WHOLE_BYTES", 0)
    for most in (7, 100, 899, 900):
        monkeypatch.setattr("dkfeat.projections._MOST_COLUMNS", most)
        assert np.array_equal(projection.project(kind(X)), wanted)


@pytest.mark.parametrize("kind", ["dense", "fastfood", "orthogonal"])
def test_table_bytes__are_what_drawing_them_takes(kind):
    make(kind, 1024, 1).project(some_rows(1, 1024))  # compiles
    projection, X = make(kind, 1024, 2**16), some_rows(1, 1024)
    assert projection.table_bytes / 8 < peak_bytes(lambda: projection.project(X)) < projection.table_bytes + 2**20


@pytest.mark.parametrize("n_mixtures", [1, 2, 4, 14])
@pytest.mark.parametrize("law", [{}, {"draw": levy, "heavy": 2.0**30, "double": True, "flips": False}])
def test_table_bytes__of_circulants_count_each_mixture(law, n_mixtures):
    X = some_rows(1, 2**14)
    sizes = {"n_features": 2**14, "n_components": 2**16, "n_mixtures": n_mixtures}
    CirculantProjection(**sizes, **law, seed=0).project(X)  # compiles
    projection = CirculantProjection(**sizes, **law, seed=1)
    assert projection.table_bytes / 3 < peak_bytes(lambda: projection.project(X)) < projection.table_bytes + 2**20
