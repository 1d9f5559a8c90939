"""Compositions of dot-product kernels with the kernels of other maps.

Components of one map are independent unless the inner projection is structured; each estimate below is of one
component. Bounds at |z| < 5 fail a correct program with chance 6e-7 each; all seeds are fixed.
"""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkfeat import kernels
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps import (
    DartFeatures,
    FourierFeatures,
    GCWSFeatures,
    LaplaceFeatures,
    MaclaurinFeatures,
    NystroemFeatures,
    from_spec,
)
from tests.reference.law import estimates

INNER = {
    "rbf_cosine": (FourierFeatures(gamma=1.5, normalize=False), lambda X, Y: kernels.rbf_cosine(X, Y, gamma=1.5)),
    "rbf": (FourierFeatures(gamma=0.1, kernel="rbf", normalize=False), lambda X, Y: kernels.rbf(X, Y, gamma=0.1)),
    "laplace": (LaplaceFeatures(beta=0.1), lambda X, Y: kernels.exponential_semigroup(X, Y, beta=0.1)),
    "gcws": (GCWSFeatures(p=0.7), lambda X, Y: kernels.gmm(X, Y, p=0.7)),
    "dart": (DartFeatures(p=0.7), lambda X, Y: kernels.gmm(X, Y, p=0.7)),
}
OUTER = {
    "cubic": ({}, lambda K: (1 + K) ** 3),
    "squares": ({"degree": 2, "coef0": 0.0, "measure": "proper"}, lambda K: K**2),
    "exponential": ({"kernel": "exponential", "gamma": 1.3}, lambda K: np.exp(1.3 * K)),
    "vovk": ({"kernel": "vovk_infinite", "scale": 0.7}, lambda K: 1 / (1 - 0.49 * K)),
}


def some_rows():
    """Pairs of non-negative rows, more and less alike, in the order x0, y0, x1, y1, ... ."""
    rng = np.random.default_rng(2)
    X = np.abs(rng.standard_normal((8, 7)))
    for pair, part in enumerate((0.0, 0.5, 0.9, 1.0)):
        X[2 * pair + 1] = part * X[2 * pair] + (1 - part) * X[2 * pair + 1]
    return X * (rng.random(7) < 0.8)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_composition__estimates_the_composed_kernel(inner, outer):
    X, n_components = some_rows(), 2**14
    params, f = OUTER[outer]
    features = MaclaurinFeatures(n_components, inner=INNER[inner][0], random_state=3, **params).fit(X)
    Z = features.transform(X).astype(np.float64)
    products = Z[::2] * Z[1::2] * n_components
    error = products.std(axis=1) / np.sqrt(n_components)
    exact = f(INNER[inner][1](X[::2], X[1::2]).diagonal())
    assert (np.abs(products.mean(axis=1) - exact) < 5 * error + 1e-5).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "inner",
    [
        FourierFeatures(gamma=1.5, normalize=False, projection=p)
        for p in ("circulant", "alternating_circulant", "fastfood")
    ]
    + [LaplaceFeatures(beta=0.1, projection=p) for p in ("circulant", "alternating_circulant")],
    ids=str,
)
def test_composition__structured_projections_are_unbiased(inner):
    # features of one inner map depend on each other: means over seeds, which do not
    X = some_rows()
    exact = INNER["laplace" if inner.name == "laplace" else "rbf_cosine"][1](X[::2], X[1::2]).diagonal()
    found = estimates(MaclaurinFeatures(32, inner=inner), X, 300)
    error = np.std(found, axis=0) / np.sqrt(300)
    assert (np.abs(np.mean(found, axis=0) - (1 + exact) ** 3) < 5 * error).all()


@pytest.mark.parametrize("inner", INNER)
def test_composition__dense_sparse_blocks_and_specs_agree(inner):
    X = some_rows()
    features = MaclaurinFeatures(40, inner=INNER[inner][0], random_state=3).fit(X)
    Z = features.transform(X)
    assert np.array_equal(features.transform(sp.csr_matrix(X)), Z)
    assert np.array_equal(np.vstack([features.transform(X[:3]), features.transform(X[3:])]), Z)
    again = from_spec(json.loads(json.dumps(features.to_spec())))
    assert again.fingerprint() == features.fingerprint()
    assert np.array_equal(again.transform(X), Z)
    assert np.array_equal(clone(again).set_params(random_state=3).fit(X).transform(X), Z)


def test_composition__parameters_of_the_inner_map_decide_its_seed_and_size_do_not():
    def fingerprint(**params):
        inner = FourierFeatures(normalize=False, **params)
        return MaclaurinFeatures(8, inner=inner, random_state=0).fit_width(3).fingerprint()

    assert fingerprint() == fingerprint(random_state=5, n_components=9)
    assert len({fingerprint(), fingerprint(gamma=2.0), fingerprint(kernel="rbf")}) == 3


def test_composition__factors_of_a_component_do_not_share_draws():
    # if the two factors of a square were one, the estimate for K(x, y) = 0.2 would be about E (z z')^2, not 0.04
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    features = MaclaurinFeatures(
        2**15, degree=2, coef0=0.0, inner=FourierFeatures(gamma=1.6, normalize=False), random_state=1
    ).fit(X)
    Z = features.transform(X).astype(np.float64)
    assert abs(Z[0] @ Z[1] - np.exp(-1.6) ** 2) < 0.05


@pytest.mark.parametrize("inner", [FourierFeatures(normalize=False), LaplaceFeatures()])
def test_composition__plans_for_the_tables_of_the_inner_map(inner):
    alone = clone(inner).set_params(n_components=100).fit_width(2**40)._working_bytes
    features = MaclaurinFeatures(100, inner=inner, random_state=0).fit_width(2**40)
    assert features._working_bytes > alone == 64 * 2**20


def test_composition__an_empty_row_has_no_sample():
    X = np.zeros((2, 3))
    X[1] = 1
    Z = MaclaurinFeatures(400, inner=GCWSFeatures(), random_state=0).fit_width(3).transform(X)
    assert np.count_nonzero(Z[0]) < np.count_nonzero(Z[1]) == 400  # degree 0 alone is left
    assert abs(Z[0] @ Z[0] - 1) < 0.8


def test_composition__rows_that_the_inner_map_refuses_are_named():
    X = some_rows()
    X[3, 2] = -1
    laplace = MaclaurinFeatures(8, inner=LaplaceFeatures(), random_state=0)
    for call in (laplace.fit, laplace.fit_width(7).transform):
        with pytest.raises(InputError, match="Negative values in data"):
            call(X)
    X = np.ones((3000, 2))
    X[2500, 1] = np.nan
    gcws = MaclaurinFeatures(1024, inner=GCWSFeatures(), random_state=0).fit_width(2)
    with pytest.raises(InputError, match=r"X holds NaN at .* it is row 2,500 of X") as caught:
        gcws.transform(X)
    assert caught.value.row == 2500


@pytest.mark.parametrize(
    ("inner", "params", "text"),
    [
        (FourierFeatures(), {}, r"normalize=True\) has biased features"),
        (FourierFeatures(normalize=False, projection="orthogonal"), {}, r"projection='orthogonal'\) has biased"),
        (FourierFeatures(normalize=False, gamma=-1.0), {}, "gamma=-1.0"),
        (NystroemFeatures(), {}, "inner=NystroemFeatures.* must be unbiased features"),
        (MaclaurinFeatures(), {}, "give one of FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures"),
        ("gcws", {}, "inner='gcws'"),
        ({"map": "nystroem", "params": {}}, {}, "a name among 'fourier'"),
        ({"map": "gcws"}, {}, "a mapping must be"),
        ({"map": "gcws", "params": {"q": 1}}, {}, r"unknown settings \['q'\] of GCWSFeatures"),
        (GCWSFeatures(), {"h01": True}, "h01=True with inner, but the linear term"),
        (GCWSFeatures(), {"normalize": "l2"}, "normalize='l2' with inner"),
        (GCWSFeatures(), {"radius": 1.0}, "radius=1.0 with inner"),
        (GCWSFeatures(), {"kernel": "vovk_infinite"}, "converges for inner products below 1"),
    ],
    ids=str,
)
def test_composition__refuses_what_would_be_biased(inner, params, text):
    with pytest.raises(ConfigError, match=text):
        MaclaurinFeatures(8, inner=inner, random_state=0, **params).fit_width(3)


@parametrize_with_checks([MaclaurinFeatures(8, inner=inner) for inner, _ in INNER.values()])
def test_composition__keeps_scikit_learns_rules(estimator, check):
    check(estimator)
