"""Random Maclaurin features against their specification, and what they refuse."""

import itertools
import json
import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reproduction.theory.maclaurin import degree_probabilities
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import exponential_dot_product, maclaurin, vovk_infinite
from dkfeat.maps import MaclaurinFeatures, from_spec
from dkfeat.maps.maclaurin import sign_products
from tests.conftest import peak_bytes
from tests.reference import maclaurin as reference

CUBIC = [1.0, 3.0, 3.0, 1.0]
SPARSE = [0, 0, 0, 0.5, 0, 0, 2.0]
VARIANTS = [
    {"h01": True},
    {"measure": "proper", "p": 1.7},
    {"kernel": "exponential", "radius": 2.0, "normalize": "l1"},
    {"kernel": "vovk_infinite", "normalize": "l2", "scale": 0.9},
    {"kernel": "maclaurin", "coefficients": [0.0, 0.5, 0.0, 0.25], "h01": True},
]


def some_rows(seed=0, n_samples=50, n_features=150):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) / np.sqrt(n_features)
    return (X * (rng.random(X.shape) < rng.random((n_samples, 1)))).astype(np.float32)


@parametrize_with_checks([MaclaurinFeatures(8, **params) for params in VARIANTS if params.get("kernel") != "maclaurin"])
def test_maclaurin__keeps_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("params", "coefficients", "measure", "n_components", "n_features"),
    [
        ({}, CUBIC, "kernel", 40, 3),
        ({"measure": "proper"}, CUBIC, "proper", 40, 5),
        ({"kernel": "maclaurin", "coefficients": SPARSE}, SPARSE, "kernel", 33, 2),
        ({"degree": 150, "coef0": 0.0}, [0.0] * 150 + [1.0], "kernel", 17, 2),  # more factors than one tile
    ],
)
def test_maclaurin__follows_its_specification(params, coefficients, measure, n_components, n_features):
    X = np.random.default_rng(3).standard_normal((4, n_features)).astype(np.float32)
    if coefficients[-1] == 1.0 and len(coefficients) > 100:
        X = np.sign(X) * np.float32(0.5)  # sums of -1, 0 and 1: powers stay in range
    features = MaclaurinFeatures(n_components, random_state=7, **params).fit_width(n_features)
    weights = degree_probabilities(coefficients, 2.0, measure)
    wanted = reference.features(X.astype(float), coefficients, weights, n_components, 7)
    found = features.transform(X)
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()
    assert found.dtype == np.float32


@pytest.mark.parametrize("params", [{}, *VARIANTS], ids=str)
def test_maclaurin__dense_and_sparse_rows_give_equal_bits(params):
    X, features = some_rows(), MaclaurinFeatures(300, random_state=1, **params).fit_width(150)
    Z = features.transform(X)
    assert np.array_equal(features.transform(sp.csr_matrix(X)), Z)
    for row in range(0, 50, 7):  # few values, many values
        assert np.array_equal(features.transform(X[row : row + 1]), Z[row : row + 1])
        assert np.array_equal(features.transform(sp.csr_matrix(X[row : row + 1])), Z[row : row + 1])
    assert np.array_equal(from_spec(features.to_spec()).transform(X), Z)


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 50), max_size=5), kind=st.sampled_from([np.asarray, sp.csr_matrix]))
def test_maclaurin__partitions_of_many_tiles_give_equal_bits(cuts, kind):
    # about 9,000 factors: several tables of signs
    X, features = some_rows(), MaclaurinFeatures(700, degree=20, random_state=1).fit_width(150)
    bounds = [0, *sorted(cuts), 50]
    parts = [features.transform(kind(X[a:b])) for a, b in itertools.pairwise(bounds)]
    assert np.array_equal(np.vstack(parts), features.transform(X))


@pytest.mark.parametrize("nnz", [0, 3, 140])
def test_maclaurin__wide_rows_give_the_bits_of_narrow_ones(nnz):
    # the columns that occur are listed where the whole table would be large
    held = sp.random(6, 150, density=nnz / 150, format="csr", dtype=np.float32, random_state=0)
    wide = sp.csr_matrix((held.data, held.indices, held.indptr), shape=(6, 2**40))
    narrow, far = (MaclaurinFeatures(100, random_state=3).fit_width(n) for n in (150, 2**40))
    assert np.array_equal(far.transform(wide), narrow.transform(held))


def test_maclaurin__rows_of_many_columns_are_taken_in_parts():
    # 400,000 columns that occur once each: their signs would take 200 MB together
    nnz = 400_000
    X = sp.csr_matrix(
        (np.ones(nnz, np.float32) * 0.01, np.arange(nnz) * 1000, np.arange(0, nnz + 1, 1000)), shape=(400, nnz * 1000)
    )
    features = MaclaurinFeatures(2000, random_state=3).fit_width(X.shape[1])
    assert 64 * 2**20 < features._working_bytes < 65 * 2**20
    assert peak_bytes(lambda: features.transform(X)) < features._working_bytes + 400 * 8000 + 100 * nnz
    assert np.array_equal(features.transform(X[399:]), features.transform(X)[399:])


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_maclaurin__one_row_of_many_columns_is_taken_in_parts(kind):
    # signs of all columns would take 150 MB at once, turned ones as much again
    X = np.zeros((1, 300_000), np.float32)
    X[:, np.random.default_rng(0).random(300_000) < 0.9] = 0.002
    held = kind(X)
    features = MaclaurinFeatures(2000, random_state=3).fit_width(X.shape[1])
    MaclaurinFeatures(20, random_state=3).fit_transform(held[:, :200])  # compiles
    Z = features.transform(held[:1])
    assert (
        peak_bytes(lambda: features.transform(held))
        < features._working_bytes + held.shape[0] * Z.nbytes + 100 * X.shape[1]
    )


@pytest.mark.parametrize(
    "params", [{"n_components": 40_000}, {"n_components": 20, "degree": 400, "coef0": 0.0}], ids=str
)
def test_maclaurin__memory_is_as_projected_where_tables_are_kept(params):
    X = np.full((20, 1000), 1e-3, np.float32)
    MaclaurinFeatures(20, random_state=3).fit_transform(X[:, :200])  # compiles
    features = MaclaurinFeatures(random_state=3, **params)

    def transform():
        features.fit_width(1000)
        return features.transform(X), features.transform(sp.csr_matrix(X * (np.arange(1000) % 20 == 0)))

    peak, most = peak_bytes(transform), 2 * 20 * 4 * features.n_features_out + 2**18
    assert peak < features._working_bytes + most


@pytest.mark.parametrize("n_samples", [1, 35])
def test_maclaurin__parts_of_rows_and_columns_give_the_bits_of_whole_ones(n_samples, monkeypatch):
    X = some_rows(n_samples=n_samples, n_features=300)
    features = MaclaurinFeatures(700, degree=20, random_state=1).fit_width(300)
    Z = features.transform(X)
    for name in ("_WHOLE_BYTES", "_FULL"):  # nothing kept, nothing filled in
        monkeypatch.setattr(sign_products, name, 0)
    for room in (2**20, 2**17, 2**16):  # 683, 85 and 42 sparse columns of one row, 170, 64 and 64 dense ones
        monkeypatch.setattr(sign_products, "_TABLE_BYTES", room)
        assert np.array_equal(features.transform(X), Z)
        assert np.array_equal(features.transform(sp.csr_matrix(X)), Z)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_maclaurin__h01_makes_the_first_two_terms_exact(kind):
    X = some_rows() * 0.5
    features = MaclaurinFeatures(64, h01=True, random_state=0).fit_width(150)
    Z = features.transform(kind(X))
    assert Z.shape == (50, 1 + 150 + 64) == (50, features.n_features_out)
    assert features.encoded_row_bytes == 4 * 215
    exact = Z[:, :151].astype(float)
    assert np.abs(exact @ exact.T - (1 + 3 * X.astype(float) @ X.T)).max() < 1e-6
    assert features.degrees_.min() >= 2
    scaled = MaclaurinFeatures(64, h01=True, normalize="l2", scale=0.5, random_state=0).fit(X[:1])
    rows = X[1:9] / np.linalg.norm(X[1:9], axis=1, keepdims=True) * 0.5
    exact = scaled.transform(kind(X[1:9]))[:, :151].astype(float)
    assert np.abs(exact @ exact.T - (1 + 3 * rows.astype(float) @ rows.T)).max() < 1e-6


def test_maclaurin__h01_leaves_out_terms_that_are_not_there():
    width = [
        MaclaurinFeatures(8, kernel="maclaurin", coefficients=a, h01=True, random_state=0).fit_width(5).n_features_out
        for a in ([0, 0, 1], [2, 0, 1], [0, 2, 1], [1, 1, 1])
    ]
    assert width == [8, 9, 13, 14]


@pytest.mark.parametrize(("degree", "coef0"), [(1000, 1.0), (1029, 0.5), (1030, 0.5), (3000, 0.0), (5000, 0.05)])
def test_maclaurin__degrees_whose_binomials_overflow_are_drawn_by_the_law(degree, coef0):
    # binomial(degree, 1 / (1 + coef0)): mean and variance of 4,096 draws, |z| > 5: 6e-7 each
    drawn = MaclaurinFeatures(4096, degree=degree, coef0=coef0, random_state=0).fit_width(3).degrees_
    p = 1 / (1 + coef0)
    variance = degree * p * (1 - p)
    assert abs(drawn.mean() - degree * p) <= 5 * np.sqrt(variance / 4096)
    assert abs(drawn.var() - variance) <= 5 * variance * np.sqrt(2 / 4096) * 1.1


def test_maclaurin__a_radius_whose_square_is_0_leaves_the_constant():
    features = MaclaurinFeatures(16, degree=1100, radius=1e-170, random_state=0).fit_width(3)
    np.testing.assert_allclose(features.transform(np.full((2, 3), 1e-171)), 0.25)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("length", [0.3, 0.9])
@pytest.mark.parametrize(
    ("params", "kernel"),
    [
        ({"kernel": "exponential", "gamma": 2.5}, lambda X: exponential_dot_product(X, gamma=2.5)),
        ({"kernel": "vovk_infinite", "alpha": 0.3}, lambda X: vovk_infinite(X, alpha=0.3)),
        ({"kernel": "vovk_infinite", "alpha": 4.0}, lambda X: vovk_infinite(X, alpha=4.0)),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_maclaurin__truncation_is_within_its_bound(params, kernel, length, tolerance):
    features = MaclaurinFeatures(4, radius=length, tolerance=tolerance, random_state=0, **params).fit_width(1)
    X = np.array([[length]])
    exact = kernel(X)[0, 0]
    assert features.truncation_error_ <= tolerance * exact
    coefficients = _coefficients(params, features.max_degree_ + 1)
    left_out = exact - maclaurin(X, coefficients=coefficients)[0, 0]
    assert left_out <= features.truncation_error_ + 1e-14 * exact
    assert left_out >= 0.3 * features.truncation_error_ - 1e-14 * exact  # no degree more than it takes


def _coefficients(params, n):
    if params["kernel"] == "exponential":
        return [params["gamma"] ** k / math.factorial(k) for k in range(n)]
    a = params["alpha"]
    return [math.exp(math.lgamma(a + k) - math.lgamma(a) - math.lgamma(k + 1)) for k in range(n)]


def test_maclaurin__a_function_of_the_degree_becomes_a_list():
    features = MaclaurinFeatures(
        500, kernel="maclaurin", coefficients=lambda n: 1 / math.factorial(n), radius=1.5, random_state=0
    ).fit_width(3)
    params = features.to_spec()["params"]
    X = np.array([[1.5, 0, 0]])
    whole, kept = np.exp(1.5**2), maclaurin(X, coefficients=params["coefficients"])[0, 0]
    assert 0 <= whole - kept <= features.truncation_error_ <= 1e-6 * whole
    again = from_spec(json.loads(json.dumps(features.to_spec())))
    assert again.fingerprint() == features.fingerprint()
    assert np.array_equal(again.transform(X), features.transform(X))
    for fitted in (features, again):
        with pytest.raises(InputError, match=r"row 1 .* l2 norm 1\.6"):
            fitted.transform(np.array([[0, 0, 1.5], [1.6, 0, 0]]))
    assert from_spec(again.to_spec()).fingerprint() == again.fingerprint()


def test_maclaurin__a_function_may_leave_out_degrees_and_need_not_end():
    features = MaclaurinFeatures(
        64,
        kernel="maclaurin",
        coefficients=lambda n: 0.0 if n % 2 == 0 else 1.0,
        normalize="l2",
        scale=0.9,
        random_state=0,
    ).fit_width(2)
    kept = features.to_spec()["params"]["coefficients"]
    t = 0.81
    assert abs(np.polyval(kept[::-1], t) - t / (1 - t * t)) < 1e-6 * t / (1 - t * t)
    assert (features.degrees_ % 2 == 1).all()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"kernel": "rbf"}, "kernel='rbf', but it must be one of 'polynomial'"),
        ({"degree": 0}, "degree=0"),
        ({"degree": 2.5}, "degree=2.5"),
        ({"degree": 10_001}, "degree=10001"),
        ({"coef0": -1.0}, "coef0=-1.0, but it must be from 0"),
        ({"gamma": 0}, "gamma=0"),
        ({"alpha": -1}, "alpha=-1"),
        ({"measure": "paper"}, "measure='paper'"),
        ({"p": 1.0}, "p=1.0, but it must be a finite number above 1"),
        ({"p": np.nan}, "p=nan"),
        ({"normalize": "max"}, "normalize='max'"),
        ({"scale": 0.0}, "scale=0.0"),
        ({"radius": -2.0}, "radius=-2.0"),
        ({"radius": 0.5, "normalize": "l2"}, "radius=0.5, but rows .* as long as scale=1"),
        ({"tolerance": 1e-20}, "tolerance=1e-20"),
        ({"tolerance": 1.0}, "tolerance=1.0"),
        ({"h01": 1}, "h01=1"),
        ({"h01": True, "degree": 1}, "h01=True leaves nothing to draw"),
        ({"random_state": -1}, "random_state=-1"),
        ({"coefficients": [1.0]}, "kernel='polynomial' has its own"),
        ({"kernel": "maclaurin"}, "needs coefficients"),
        ({"kernel": "maclaurin", "coefficients": []}, "a list of 1 to"),
        ({"kernel": "maclaurin", "coefficients": "11"}, "a list of 1 to"),
        ({"kernel": "maclaurin", "coefficients": 3.0}, "a list of 1 to"),
        ({"kernel": "maclaurin", "coefficients": [1.0, -0.5]}, r"coefficients\[1\]=-0.5, but .* at least 0"),
        ({"kernel": "maclaurin", "coefficients": [1.0, np.inf]}, r"coefficients\[1\]=inf"),
        ({"kernel": "maclaurin", "coefficients": [0.0, 0.0]}, "the kernel is 0"),
        ({"kernel": "maclaurin", "coefficients": lambda n: 1.0 + 0 * n}, "does not converge .* for rows of length 1;"),
        ({"kernel": "maclaurin", "coefficients": lambda n: -1.0 if n == 4 else 0.5**n}, r"coefficients\[4\]=-1.0"),
        ({"kernel": "maclaurin", "coefficients": lambda n: 1.0 / math.factorial(n)}, r"coefficients\(171\) raises"),
        ({"kernel": "vovk_infinite"}, "converges for inner products below 1, but rows of length 1 have larger"),
        ({"kernel": "vovk_infinite", "normalize": "l2"}, "choose a radius below 1"),
        ({"kernel": "vovk_infinite", "radius": 0.9999999}, "needs more than 10,000 degrees"),
        ({"kernel": "exponential", "gamma": 1000.0}, "choose gamma below 700"),
        ({"degree": 5000, "radius": 10.0}, "overflows a float"),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),  # a function's address differs between processes
)
def test_maclaurin__refuses_a_parameter_out_of_range(params, text):
    # lambda n: 1.0 / n! at radius 12 needs n > 170, where the float division overflows
    radius = {"radius": 12.0} if "raises" in text else {}
    with pytest.raises(ConfigError, match=text):
        MaclaurinFeatures(8, **{"random_state": 0} | params | radius).fit_width(3)


def test_maclaurin__parameters_are_checked_before_a_scan():
    with pytest.raises(ConfigError, match="choose a radius below 1"):
        MaclaurinFeatures(8, kernel="vovk_infinite")._check_params()
    generator = np.random.default_rng(0)
    MaclaurinFeatures(8, random_state=generator)._check_params()
    assert generator.random() == np.random.default_rng(0).random()


def test_maclaurin__a_spec_is_a_copy():
    features = MaclaurinFeatures(8, kernel="maclaurin", coefficients=[1.0, 2.0], random_state=0).fit_width(3)
    features.to_spec()["params"]["coefficients"].append(5.0)
    assert features.to_spec()["params"]["coefficients"] == [1.0, 2.0]


def test_maclaurin__h01_refuses_to_write_out_a_wide_source():
    with pytest.raises(ConfigError, match="h01=True appends all of the 1,099,511,627,776 columns"):
        MaclaurinFeatures(8, h01=True).fit_width(2**40)
    only_squares = MaclaurinFeatures(8, degree=2, coef0=0.0, h01=True).fit_width(2**40)
    assert only_squares.n_features_out == 8


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    ("params", "limit"),
    [
        ({"kernel": "exponential"}, 1.0),
        ({"kernel": "vovk_infinite", "radius": 0.8}, 0.8),
        ({"kernel": "vovk_infinite", "radius": 0.8, "scale": 0.1}, 8.0),
        ({"radius": 2.0}, 2.0),
    ],
    ids=str,
)
def test_maclaurin__names_a_row_outside_the_domain(kind, params, limit):
    X = np.full((5, 4), limit / 2, np.float32)  # of length `limit`, up to rounding
    features = MaclaurinFeatures(8, random_state=0, **params).fit_width(4)
    assert features.transform(kind(X)).shape == (5, 8)
    X[3] *= 1.01
    with pytest.raises(InputError, match=r"row 3 \(counted from 0\) has the l2 norm .* radius") as caught:
        features.transform(kind(X))
    assert caught.value.row == 3


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_maclaurin__names_a_row_that_overflows(kind):
    X = np.ones((4, 3))
    X[2] = 1e20
    with pytest.raises(InputError, match=r"a feature of row 2 .* overflows float32: .* products of 3 sums") as caught:
        MaclaurinFeatures(64, random_state=0).fit_width(3).transform(kind(X))
    assert caught.value.row == 2
    X[1, 1] = 1e26
    with pytest.raises(InputError, match=r"1e[+]26 at row 1, column 1 .* takes values up to 1e[+]25"):
        MaclaurinFeatures(64, random_state=0).fit_width(3).transform(kind(X))
    assert np.isfinite(MaclaurinFeatures(64, random_state=0, normalize="l2").fit_width(3).transform(kind(X))).all()
