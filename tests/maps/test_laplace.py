import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.compiled.random import levy
from dkfeat.errors import InputError
from dkfeat.kernels.rbf import exponential_semigroup, reciprocal_semigroup
from dkfeat.maps import LaplaceFeatures
from dkfeat.projections import CirculantProjection
from tests.maps.test_projected import non_negative_rows as some_rows
from tests.reference import laplace as reference
from tests.reference.projections import matrix as matrix_of

KERNELS = ["exponential", "reciprocal"]
PROJECTIONS = ["dense", "circulant", "alternating_circulant"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("n_features", "n_components", "length"), [(8, 20, 8), (17, 18, 18), (30, 7, 30), (130, 3, 256)]
)
def test_laplace__is_its_formula(kernel, n_features, n_components, length):
    X = some_rows(12, n_features)
    params = {"n_components": n_components, "kernel": kernel, "beta": 0.7, "rate": 0.2, "random_state": 2**40 + 1}
    scale = 0.7**2 if kernel == "exponential" else 1 / 0.2
    length = {"exponential": length, "reciprocal": 135 if n_features == 130 else length}
    matrices = {
        "dense": reference.dense_matrix(kernel, 2**40 + 1, n_components, n_features),
        "circulant": reference.circulant_matrix(kernel, 2**40 + 1, n_components, n_features, 1, length[kernel]),
        "alternating_circulant": reference.circulant_matrix(
            kernel, 2**40 + 1, n_components, n_features, 3, length[kernel]
        ),
    }
    for projection, matrix in matrices.items():
        Z = LaplaceFeatures(projection=projection, n_mixtures=3, **params).fit(X).transform(X)
        assert Z.dtype == np.float32
        assert Z.shape == (12, n_components)
        assert np.allclose(Z, reference.features(X, matrix, scale), atol=1e-6)
        assert np.allclose(Z[::7], 1 / np.sqrt(n_components))  # all-zero rows


def hard_rows(kind, n_features):
    """Rows in which a transform's rounding would show: tiny, sparse, of one value, over nine decades."""
    rng = np.random.default_rng(0)
    X = rng.random((20, n_features))
    if kind == "tiny":
        return X / n_features**2
    if kind == "sparse":
        return X * (rng.random(X.shape) < 0.01) * 0.01
    if kind == "one":
        X = np.zeros((20, n_features))
        X[:, 5] = 10.0 ** np.linspace(-6, 3, 20)
        return X
    return (rng.random(X.shape) < 0.1) * 10 ** rng.uniform(-9, -2, X.shape)


@pytest.mark.parametrize("kind", ["tiny", "sparse", "one", "spread"])
@pytest.mark.parametrize("projection", ["circulant", "alternating_circulant"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__large_weights_do_not_swamp_small_ones(kernel, projection, kind):
    # among 1,024 x 3 Lévy weights, two to three decades lie between the largest and all but 1 % of them
    X = hard_rows(kind, 1024).astype(np.float32)
    fitted = LaplaceFeatures(1024, kernel=kernel, projection=projection, random_state=1).fit(X)
    expected = reference.features(X, matrix_of(fitted._settings.operator), 1.0)
    errors = np.abs(fitted.transform(X) - expected).max(axis=1) * np.sqrt(1024)
    if kernel == "exponential":
        assert errors.max() < 2e-7
    else:
        assert (errors < 1e-6 * (1 + np.linalg.norm(X, axis=1))).all()


def enormous_weights(coordinates, n_components, stream, seed):
    """Weights of which some are near the largest that are ever drawn."""
    weights = levy(coordinates, n_components, stream, seed).copy()
    weights[:, ::5] *= np.float32(1e20)
    return weights


@pytest.mark.parametrize("n_mixtures", [1, 2])
def test_laplace__weights_beyond_any_transform_are_added_one_by_one(n_mixtures):
    X = np.zeros((3, 20), np.float32)
    X[1, 3], X[2, [0, 19]] = 1e-3, [1e-25, 2.0]
    W = CirculantProjection(
        n_features=20,
        n_components=47,
        seed=1,
        n_mixtures=n_mixtures,
        flips=False,
        draw=enormous_weights,
        double=True,
        heavy=2.0**30,
    )
    assert (matrix_of(W) > 1e18).any()
    for rows in (X, sp.csr_matrix(X)):
        assert np.allclose(W.project(rows), X.astype(np.float64) @ matrix_of(W).T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__values_of_any_size_give_no_nan(kernel, projection):
    X = np.zeros((6, 40))
    X[1, 3], X[2, 3], X[3, 3] = 1e-320, 1e-40, 1e-6
    X[4, [3, 7]], X[5] = [1e300, 1e-300], 1e38
    fitted = LaplaceFeatures(100, kernel=kernel, projection=projection, random_state=3).fit(X)
    for rows in (X, sp.csr_matrix(X)):
        Z = fitted.transform(rows) * 10
        assert np.allclose(Z[:3], 1, atol=1e-6)
        assert ((Z >= 0) & (Z <= 1)).all()
        assert (Z[4:] == 0).all()


@pytest.mark.parametrize(("kernel", "name"), [("exponential", "beta"), ("reciprocal", "rate")])
@pytest.mark.parametrize("value", [5e-324, 1e-200, 1e200, 1.7e308])
def test_laplace__parameters_of_any_size_give_the_kernel(kernel, name, value):
    X = np.array([[0.0, 1.0], [0.0, 0.0]])
    Z = LaplaceFeatures(64, kernel=kernel, random_state=0, **{name: value}).fit_transform(X)
    exact = {"exponential": exponential_semigroup, "reciprocal": reciprocal_semigroup}[kernel](X, **{name: value})
    assert np.allclose(Z @ Z.T, exact, atol=1e-5)


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_laplace__names_a_negative_value(projection, kind):
    X = some_rows()
    X[13, 4], X[20, 1] = -0.5, -3
    features = LaplaceFeatures(8, projection=projection, random_state=0)
    for call in (features.fit, features.fit_width(21).transform):
        with pytest.raises(InputError, match=r"^Negative values in data: X holds -0\.5 at row 13, column 4 ") as caught:
            call(kind(X))
        assert (caught.value.row, caught.value.column) == (13, 4)
