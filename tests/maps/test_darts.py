"""DartFeatures: parameters, codes and samples, preparation of rows, and estimates from codes."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkfeat
from dkfeat import DartFeatures, GCWSFeatures
from dkfeat.blocks import PackedCodes
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import gmm
from dkfeat.maps import _rows
from dkfeat.theory import darts, fourier

PATIENT = settings(max_examples=30)  # the first call compiles


def some_rows(n_samples=30, n_features=9, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)


def same(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


@parametrize_with_checks([DartFeatures(n_components=3, bits=3, center=0.5, normalize="l2", p=2.0, random_state=1)])
def test_fit__options_keep_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_components", [0, 1.0, None, True, 2**24 + 1]),
        ("bits", [0, 17, 8.0, None, True]),
        ("p", [0, np.inf, 1001, "1"]),
        ("center", [np.nan, [1.0, 2.0]]),
        ("normalize", ["l3", True]),
        ("random_state", [-1, 2**64, "7"]),
    ],
)
def test_fit__refuses_parameters_out_of_range(name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            DartFeatures(**{name: value}).fit_width(9)


@PATIENT
@given(n_components=st.sampled_from([1, 2, 15, 16, 17, 40, 511, 513, 1100]), bits=st.integers(1, 16))
def test_encode__packs_the_top_bits_of_the_sampled_darts(n_components, bits):
    X = some_rows(6)
    X[2] = 0
    wide, features = (DartFeatures(n_components, bits=b, random_state=1).fit(X) for b in (16, bits))
    encoded, Z = features.encode(X), features.transform(X)
    assert encoded.codes.shape == (6, features.encoded_row_bytes) == (6, -(-n_components * bits // 8))
    assert encoded.empty.tolist() == [row == 2 for row in range(6)]
    assert not encoded.codes[2].any()
    words = wide.encode(X).codes.view("<u2") >> (16 - bits)
    wanted = words + np.arange(n_components) * 2**bits
    assert Z.shape == (6, n_components * 2**bits)
    assert Z.indices.tolist() == wanted[~encoded.empty].ravel().tolist()
    assert same(features.decode(encoded), Z)


def test_sample__equal_darts_have_equal_codes_and_others_by_chance_alone():
    X = some_rows(2, 200, seed=4)
    X[1] = np.where(np.arange(200) < 100, X[0], X[1])
    features = DartFeatures(8192, bits=4, random_state=0).fit(X)
    i_star, dart = features.sample(X)
    agree = (i_star[0] == i_star[1]) & (dart[0] == dart[1])
    Z = features.transform(X)
    codes_agree = Z[0].indices == Z[1].indices
    assert codes_agree[agree].all()
    n = np.count_nonzero(~agree)
    # |z| < 4.5: fails one correct program in 150,000
    assert abs(np.count_nonzero(codes_agree[~agree]) - n / 16) < 4.5 * np.sqrt(n * 15) / 16
    assert 2000 < n < 6000


def test_sample__only_held_coordinates_of_the_right_sign():
    X = some_rows()
    X[3] = 0
    i_star, dart = DartFeatures(600, random_state=0).fit(X).sample(X)
    assert i_star.dtype == dart.dtype == np.int64
    assert i_star.shape == dart.shape == (30, 600)
    for row, drawn in zip(X, i_star, strict=True):
        assert set(drawn.tolist()) == ({2 * f + (v < 0) for f, v in enumerate(row) if v} or {-1})
    assert not dart[3].any()
    octaves, values = dart >> 32, np.take_along_axis(np.abs(X), np.maximum(i_star, 0) // 2, axis=1)
    held = i_star >= 0
    assert (2.0 ** octaves[held] <= values[held]).all()  # a row owns no dart above its weight


@pytest.mark.fault("I-09")
@pytest.mark.parametrize("n_features", [2**31, 2**40])
def test_transform__width_of_the_input_costs_nothing(n_features):
    features = DartFeatures(32, random_state=0).fit_width(n_features)
    data, columns = np.array([1.0, -2.0]), np.array([7, n_features - 1])
    X = sp.csr_matrix((data, columns, np.array([0, 2])), shape=(1, n_features))
    features.transform(X), features.sample(X)  # compiled from here on
    tracemalloc.start()
    i_star, _ = features.fit(X).sample(X)
    Z = features.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert set(i_star[0].tolist()) == {14, 2 * n_features - 1}
    assert Z.nnz == 32


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_preparation__centres_and_normalises_before_sampling(kind):
    X, center = some_rows(), np.arange(9.0) - 4
    X[4] = center
    prepared = X - center
    norms = np.abs(prepared).max(axis=1, keepdims=True)
    prepared = np.divide(prepared, norms, out=prepared, where=norms > 0)
    features = DartFeatures(64, center=center, normalize="max", random_state=0).fit(X)
    assert same(features.transform(kind(X)), DartFeatures(64, random_state=0).fit(X).transform(prepared))
    assert features.encode(kind(X)).empty.tolist() == [row == 4 for row in range(30)]


def test_p__is_the_power_of_every_coordinate():
    X = 2.0 ** np.random.default_rng(0).integers(-9, 9, (40, 9)) * np.sign(some_rows(40))
    left = DartFeatures(256, p=2, random_state=0).fit(X).sample(X)
    right = DartFeatures(256, random_state=0).fit(X).sample(np.sign(X) * X**2)
    assert np.mean(np.equal(left, right).all(axis=0)) > 0.999  # 2 log x and log x^2 may round apart


@pytest.mark.parametrize("scale", [2.0**-990, 2.0**-60, 2.0**60, 2.0**990])
def test_scale__by_a_power_of_two_moves_the_octaves_alone(scale):
    X = np.sign(some_rows()) * np.maximum(np.abs(some_rows()), 1e-3)
    features = DartFeatures(2048, random_state=0).fit(X)
    exact = gmm(X)
    found = features.estimate_kernel(features.encode(X * scale))
    # 435 pairs within 5 standard errors, 0.0112 at most: fails one correct program in 4,000
    assert np.abs(found - exact).max() < 5 * 0.0112
    assert (np.diag(found) == 1).all()


def test_scale__extremes_of_both_dtypes_work():
    features = DartFeatures(64, p=1.0, random_state=0).fit_width(3)
    wide = np.array([[1e308, -1e308, 0], [5e-324, 0, 1e-310], [1e308, 5e-324, 0]])
    i_star, _ = features.sample(wide)
    assert [sorted(set(row)) for row in i_star.tolist()] == [[0, 3], [4], [0]]
    narrow = np.array([[1e30, -1e30, 0], [1e-45, 0, 1e-45]], np.float32)
    assert same(features.transform(narrow), features.transform(narrow.astype(np.float64)))
    steep = DartFeatures(64, p=1000.0, random_state=0).fit_width(3)
    assert sorted(set(steep.sample(wide)[0][0].tolist())) == [0, 3]


@pytest.mark.parametrize("bits", [1, 8])
def test_estimate_kernel__corrects_chance_and_keeps_empty_rows_at_0(bits):
    X = sp.csr_matrix(np.kron(np.eye(2), np.ones((8, 300))))
    X = sp.vstack([X, sp.csr_matrix((1, 600))], format="csr")
    features = DartFeatures(2048, bits=bits, random_state=0).fit(X)
    codes = features.encode(X)
    estimate = features.estimate_kernel(codes)
    assert np.array_equal(estimate, features.estimate_kernel(codes, codes))
    error = np.sqrt(darts.dart_variance(0.0, bits) / 2048)
    assert np.abs(estimate[:8, 8:16]).max() < 4.5 * error  # one of equal pairs: fails one correct program in 150,000
    assert not estimate[16].any()
    assert not estimate[:, 16].any()
    assert (estimate[:8, :8] == 1).all()


def test_kernel_pairs__errors_are_those_of_theory_without_a_bias():
    # few columns, where codes of GCWS without levels are far off
    X = np.random.default_rng(1).lognormal(sigma=1.5, size=(40, 4))
    pairs = DartFeatures(4096, random_state=0).fit(X).kernel_pairs(X)
    assert (pairs.kernel, pairs.note) == ("GMM", "")
    assert pairs.error < 1.5 * pairs.expected_error
    levels_dropped = GCWSFeatures(4096, random_state=0).fit(X).kernel_pairs(X)
    assert levels_dropped.error > 4 * pairs.error
    at = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(DartFeatures(8).expected_error_at(at) ** 2 * 8, darts.dart_variance(at, 8))


def test_theory__is_that_of_bernoulli_trials():
    g = np.array([0.0, 0.3, 1.0])
    assert darts.collision_probability(g, 2).tolist() == [0.25, 0.475, 1.0]
    np.testing.assert_allclose(darts.dart_variance(g, 2), [0.25 * 0.75 / 0.75**2, 0.475 * 0.525 / 0.75**2, 0])
    np.testing.assert_allclose(darts.dart_variance(g, 50), fourier.gcws_variance(g), atol=1e-14)
    for call in (darts.collision_probability, darts.dart_variance):
        with pytest.raises(ValueError, match=r"similarity=1\.5"):
            call(1.5, 8)
        with pytest.raises(ValueError, match="bits=0"):
            call(0.5, 0)


def test_estimate_correlation__of_normal_rows():
    X = np.random.default_rng(5).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=5000).T
    features = DartFeatures(2**13, random_state=0).fit(X)
    # 4 standard errors of g: 4 * 0.5 / 90 = 0.022 from codes, 0.02 from columns; slope of rho in g at most 4 here
    assert abs(features.estimate_correlation(features.encode(X))[0, 1] - 0.6) < 4 * (0.022 + 0.02)
    squared = DartFeatures(8, p=2.0, random_state=0).fit_width(3)
    with pytest.raises(ConfigError, match=r"p=2\.0.*p=1 only"):
        squared.estimate_correlation(squared.encode(np.ones((1, 3))))


@pytest.mark.parametrize("limit", ["SWEPT_ROWS", "_BLOCK_NONZEROS"])
def test_encode__sparse_blocks_of_any_size_give_the_same(limit, monkeypatch, rng):
    X = sp.random(60, 400, density=0.05, format="csr", random_state=rng)
    features = DartFeatures(n_components=24, random_state=3).fit(X)
    whole, samples = features.encode(X), features.sample(X)
    monkeypatch.setattr(_rows, limit, 17)
    for again, before in zip([*features.encode(X), *features.sample(X)], [*whole, *samples], strict=True):
        np.testing.assert_array_equal(again, before)
    X.data[-1] = np.nan
    with pytest.raises(InputError, match=f"row {np.flatnonzero(np.diff(X.indptr))[-1]}, column"):
        features.encode(X)


def test_shards__hold_the_codes_and_a_model_of_them_predicts(tmp_path):
    X = np.abs(some_rows(200))
    y = np.where(X[:, 0] > X[:, 1], 1, -1)
    for name, rows in (("train", slice(0, 150)), ("test", slice(150, 200))):
        lines = [
            f"{label} " + " ".join(f"{column + 1}:{float(value)!r}" for column, value in enumerate(row) if value)
            for label, row in zip(y[rows], X[rows], strict=True)
        ]
        (tmp_path / f"{name}.svm").write_text("\n".join(lines) + "\n")
    options = {"progress": False, "client": ExecutionConfig(scheduler="synchronous")}
    chosen = DartFeatures(64, bits=5, normalize="l2", random_state=0)
    dkfeat.featurize(tmp_path / "train.svm", tmp_path / "train", chosen, **options)
    dkfeat.featurize(tmp_path / "test.svm", tmp_path / "test", like=tmp_path / "train", **options)
    train, test = (dkfeat.open_shards(tmp_path / name) for name in ("train", "test"))
    assert (train.spec["output"]["layout"], train.spec["output"]["row_bytes"]) == ("codes", 40)
    assert train.map.fingerprint() == test.map.fingerprint()
    kept, wanted = test.codes(), train.map.encode(X[150:])
    assert isinstance(kept, PackedCodes)
    np.testing.assert_array_equal(kept.codes, wanted.codes)
    np.testing.assert_array_equal(kept.empty, wanted.empty)
    model = dkfeat.train(train, "liblinear", progress=False)
    model.save(tmp_path / "model")
    again = dkfeat.load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(dkfeat.load_pipeline(tmp_path / "model").predict(X), model.predict(X))


def test_pipeline__linear_learning_beats_the_raw_features():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    raw = LinearSVC(C=0.01, random_state=0).fit(X, y).score(X_test, y_test)
    model = make_pipeline(DartFeatures(512, random_state=0), LinearSVC(C=0.01, random_state=0)).fit(X, y)
    assert model.score(X_test, y_test) > max(0.97, raw)
