import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.errors import InputError
from dkfeat.maps import FourierFeatures
from dkfeat.maps.fourier import _phases
from tests.maps.test_projected import some_rows
from tests.reference.projections import matrix as matrix_of

PROJECTIONS = ["dense", "circulant", "alternating_circulant", "fastfood", "orthogonal"]


def expected_features(features, X):
    """The formulas in float64, with W written out."""
    matrix = matrix_of(features._settings.operator)
    k = len(matrix)
    if features.kernel == "rbf_cosine":
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.divide(X, norms, out=np.zeros_like(X), where=norms > 0)
        angles = np.sqrt(features.gamma) * X @ matrix.T
    else:
        angles = np.sqrt(2 * features.gamma) * X @ matrix.T
    cosines = np.cos(angles + 2 * np.pi * _phases(features.seed_, k).astype(np.float64))
    if features.normalize:
        return cosines / np.linalg.norm(cosines, axis=1, keepdims=True)
    return np.sqrt(2 / k) * cosines


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kernel", ["rbf_cosine", "rbf"])
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("n_components", [1, 50, 128])
def test_fourier__is_its_formula(projection, kernel, normalize, n_components):
    X = some_rows()
    features = FourierFeatures(
        n_components, gamma=0.7, kernel=kernel, normalize=normalize, projection=projection, random_state=2
    ).fit(X)
    Z = features.transform(X)
    assert Z.dtype == np.float32
    assert Z.shape == (30, n_components)
    assert np.allclose(Z, expected_features(features, X), atol=2e-5)
    if normalize:
        assert np.allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_fourier__directions_have_no_scale(kind, scale):
    X = some_rows()
    features = FourierFeatures(40, random_state=1).fit(X)
    wanted = features.transform(X)
    assert np.allclose(features.transform(kind(X * scale)), wanted, atol=1e-5)
    mixed = X * np.where(np.arange(30) % 3, 1, scale)[:, None]
    assert np.allclose(features.transform(kind(mixed)), wanted, atol=1e-5)
    assert np.array_equal(features.transform(sp.csr_matrix(mixed)), features.transform(mixed))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("value", [np.nan, np.inf, 2e25, -1e300])
def test_fourier__rbf_names_a_value_that_it_cannot_take(kind, value):
    X = some_rows()
    X[13, 4] = value
    with pytest.raises(InputError, match="row 13, column 4 ") as caught:
        FourierFeatures(kernel="rbf", random_state=0).fit_width(21).transform(kind(X))
    assert (caught.value.row, caught.value.column) == (13, 4)
