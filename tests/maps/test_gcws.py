"""GCWSFeatures: parameters, codes, preparation of rows, and use in a pipeline."""

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

from dkfeat import GCWSFeatures
from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import gmm
from dkfeat.maps import _rows

PATIENT = settings(max_examples=30)  # the first call compiles


def some_rows(n_samples=30, n_features=9, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)


def same(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


def packed_as_integers(encoded, n_components, bits):
    """Codes by one big integer a row: an unpacking that shares nothing with decode."""
    numbers = [int.from_bytes(row.tobytes(), "little") for row in encoded.codes]
    return np.array([[(n >> (j * bits)) & (2**bits - 1) for j in range(n_components)] for n in numbers], np.int64)


@parametrize_with_checks(
    [
        GCWSFeatures(n_components=3, i_bits=3, t_bits=2, center=0.5, normalize="l2", p=2.0),
        GCWSFeatures(n_components=3, i_bits=1, center=-1, normalize="max", code="lowest", random_state=1),
    ]
)
def test_fit__options_keep_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_components", [0, -1, 1.0, "8", None, True, 2**24 + 1]),
        ("i_bits", [0, 17, 8.0, None]),
        ("t_bits", [-1, 3, 0.0]),
        ("p", [0, -2.0, np.nan, np.inf, 1001, "1", None, True]),
        ("center", [np.nan, np.inf, [1.0, 2.0], np.full(9, np.nan), "mean", ["a"] * 9]),
        ("normalize", ["l3", 2, True, ["l1"]]),
        ("code", ["mixed", None, 1]),
    ],
)
def test_fit__refuses_parameters_out_of_range(name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            GCWSFeatures(**{name: value}).fit_width(9)
        with pytest.raises(ConfigError, match=name):
            GCWSFeatures(**{name: value}).fit(some_rows())


@pytest.mark.parametrize("random_state", [-1, 2**64, "7", 1.5])
def test_fit__refuses_a_seed_out_of_range(random_state):
    with pytest.raises(ConfigError, match="random_state"):
        GCWSFeatures(random_state=random_state).fit_width(9)


@pytest.mark.parametrize("n_features", [0, -1, 1.0, None, 2**62 + 1])
def test_fit_width__refuses_what_is_no_width(n_features):
    with pytest.raises(ConfigError, match="n_features="):
        GCWSFeatures().fit_width(n_features)


@pytest.mark.parametrize(
    ("n_features", "i_bits", "mode"),
    [
        (128, 8, "injective"),
        (129, 8, "signed"),
        (256, 8, "signed"),
        (257, 8, "mixed"),
        (1, 1, "injective"),
        (3, 1, "mixed"),
    ],
)
def test_code_mode__follows_width_and_bits(n_features, i_bits, mode):
    assert GCWSFeatures(i_bits=i_bits).fit_width(n_features).code_mode_ == mode
    assert GCWSFeatures(i_bits=i_bits, code="lowest").fit_width(n_features).code_mode_ == "lowest"


@PATIENT
@given(
    n_components=st.integers(1, 40),
    i_bits=st.integers(1, 16),
    t_bits=st.integers(0, 2),
    n_features=st.sampled_from([1, 5, 40, 300, 70_000]),
    code=st.sampled_from(["auto", "lowest"]),
)
def test_transform__is_decode_of_encode(n_components, i_bits, t_bits, n_features, code):
    features = GCWSFeatures(n_components, i_bits=i_bits, t_bits=t_bits, code=code, random_state=1).fit_width(n_features)
    X = sp.csr_matrix(some_rows(6, min(n_features, 9)))
    X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(6, n_features))
    Z, encoded = features.transform(X), features.encode(X)
    bits = i_bits + t_bits
    assert same(features.decode(encoded), Z)
    assert encoded.codes.shape == (6, features.encoded_row_bytes)
    assert features.encoded_row_bytes == -(-n_components * bits // 8)
    codes = packed_as_integers(encoded, n_components, bits)
    held = ~encoded.empty
    wanted = codes + np.arange(n_components) * 2**bits
    assert Z.shape == (6, n_components * 2**bits)
    assert Z.indices.tolist() == wanted[held].ravel().tolist()
    assert np.diff(Z.indptr).tolist() == (held * n_components).tolist()


def test_transform__is_csr_matrix_of_int32_and_float32_ones():
    Z = GCWSFeatures(16, random_state=0).fit_transform(some_rows())
    assert isinstance(Z, sp.csr_matrix)
    assert (Z.indices.dtype, Z.indptr.dtype, Z.data.dtype) == (np.int32, np.int32, np.float32)
    assert (Z.data == 1).all()
    assert (np.diff(Z.indptr) == 16).all()
    assert Z.has_canonical_format


@pytest.mark.parametrize(("n_components", "dtype"), [(2**15 - 1, np.int32), (2**15, np.int64)])
def test_transform__indices_are_int64_where_the_width_passes_int32(n_components, dtype):
    features = GCWSFeatures(n_components, i_bits=16, random_state=0).fit_width(3)
    Z = features.transform(np.ones((1, 3)))
    assert Z.shape[1] == n_components * 2**16
    assert Z.indices.dtype == dtype
    assert Z.indices[-1] // 2**16 == n_components - 1


def test_sample__codes_keep_the_low_bits_of_an_injective_sample():
    features = GCWSFeatures(64, i_bits=5, t_bits=2, random_state=0).fit_width(9)
    X = some_rows() * 1e3
    i_star, t_star = features.sample(X)
    codes = packed_as_integers(features.encode(X), 64, 7)
    assert features.code_mode_ == "injective"
    assert np.array_equal(codes & 31, i_star)
    assert np.array_equal(codes >> 5, t_star % 4)
    assert len(np.unique(t_star % 4)) == 4


def test_sample__lowest_code_is_the_papers():
    features = GCWSFeatures(64, i_bits=3, code="lowest", random_state=0).fit_width(9)
    X = some_rows()
    assert np.array_equal(packed_as_integers(features.encode(X), 64, 3), features.sample(X)[0] % 8)


def test_sample__signed_code_is_lossless_on_each_sign():
    features = GCWSFeatures(64, i_bits=4, random_state=0).fit_width(9)
    assert features.code_mode_ == "signed"
    for sign in (1, -1):
        X = sign * np.abs(some_rows())
        i_star, codes = features.sample(X)[0], packed_as_integers(features.encode(X), 64, 4)
        for component in range(64):
            pairs = set(zip(i_star[:, component], codes[:, component], strict=True))
            assert len({i for i, _ in pairs}) == len({c for _, c in pairs}) == len(pairs)


def test_sample__only_held_coordinates_of_the_right_sign():
    X = some_rows()
    X[3] = 0
    i_star, t_star = GCWSFeatures(50, random_state=0).fit(X).sample(X)
    assert i_star.dtype == t_star.dtype == np.int64
    for row, drawn in zip(X, i_star, strict=True):
        held = {2 * f + (v < 0) for f, v in enumerate(row) if v} or {-1}
        assert set(drawn.tolist()) <= held
    assert (i_star[3] == -1).all()
    assert (t_star[3] == 0).all()


def test_encode__all_zero_rows_are_marked_and_decode_to_nothing():
    X = some_rows()
    X[[0, 5, -1]] = 0
    features = GCWSFeatures(10, i_bits=3, random_state=0).fit(X)
    encoded = features.encode(sp.csr_matrix(X))
    assert isinstance(encoded, PackedCodes)
    assert np.array_equal(encoded.empty, ~X.any(axis=1))
    assert not encoded.codes[encoded.empty].any()
    assert np.array_equal(np.diff(features.decode(encoded).indptr), np.where(encoded.empty, 0, 10))


def test_decode__takes_read_only_codes_and_refuses_foreign_ones():
    features = GCWSFeatures(10, i_bits=3, random_state=0).fit_width(9)
    encoded = features.encode(some_rows())
    for array in encoded:
        array.flags.writeable = False
    assert features.decode(encoded).nnz == 300
    for codes, empty in [
        (encoded.codes[:, :-1], encoded.empty),
        (encoded.codes[:-1], encoded.empty),
        (encoded.codes.astype(np.int64), encoded.empty),
        (encoded.codes, encoded.empty.astype(np.uint8)),
    ]:
        with pytest.raises(InputError, match="needs 4 bytes of uint8"):
            features.decode(PackedCodes(codes, empty))
    for call in (features.decode, features.estimate_kernel, features.estimate_correlation):
        with pytest.raises(InputError, match="got ndarray, but it must be codes: pass the result of encode"):
            call(some_rows())


@pytest.mark.fault("I-09")
@pytest.mark.parametrize("n_features", [2**31, 2**40])
def test_transform__width_of_the_input_costs_nothing(n_features):
    features = GCWSFeatures(32, random_state=0).fit_width(n_features)
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


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("center", [0.25, -1e3, np.arange(9.0) - 4, np.r_[np.zeros(8), 2.0]], ids=str)
def test_center__is_subtracted_from_absent_entries_too(kind, center):
    X = some_rows()
    X[4] = center
    centered = GCWSFeatures(32, center=center, random_state=0).fit(kind(X))
    plain = GCWSFeatures(32, random_state=0).fit(X)
    assert same(centered.transform(kind(X)), plain.transform(X - center))
    assert centered.encode(kind(X)).empty.tolist() == [row == 4 for row in range(30)]


@pytest.mark.parametrize("center", [0, 0.0, np.zeros(9)], ids=str)
def test_center__of_zero_changes_nothing(center):
    X = some_rows()
    centered = GCWSFeatures(32, center=center, random_state=0).fit(X)
    assert same(centered.transform(X), GCWSFeatures(32, random_state=0).fit(X).transform(X))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_center__blocks_of_any_size_give_the_same(kind, monkeypatch):
    X = some_rows()
    features = GCWSFeatures(32, center=0.5, normalize="l2", random_state=0).fit(X)
    wanted, (i_star, t_star) = features.transform(X), features.sample(X)
    for cells in (1, 20, 100):
        monkeypatch.setattr(_rows, "_BLOCK_CELLS", cells)
        assert same(features.transform(kind(X)), wanted)
        assert np.array_equal(features.sample(kind(X)), (i_star, t_star))
        X_bad = X.copy()
        X_bad[17, 3] = np.nan
        with pytest.raises(InputError, match="NaN at row 17, column 3"):
            features.transform(kind(X_bad))


def test_center__that_would_make_a_wide_row_dense_is_refused():
    with pytest.raises(ConfigError, match="fills in 1,099,511,627,776 columns"):
        GCWSFeatures(center=0.5).fit_width(2**40)
    assert GCWSFeatures(center=0).fit_width(2**40).n_features_in_ == 2**40


def test_center__overflow_names_its_cell():
    X = np.array([[1.0, 1e308]])
    with pytest.raises(InputError, match=r"inf at row 0, column 1 .*after the centre was subtracted"):
        GCWSFeatures(center=-1.7e308).fit(X).transform(X)


@pytest.mark.parametrize("center", [2, 0.5, [1.0] * 9, np.arange(9)], ids=str)
def test_center__survives_the_spec(center):
    features = GCWSFeatures(8, center=center, random_state=0).fit_width(9)
    again = GCWSFeatures.from_spec(features.to_spec())
    assert again.fingerprint() == features.fingerprint()
    assert same(again.transform(some_rows()), features.transform(some_rows()))


def test_center__changed_by_the_caller_after_fit_does_not_matter():
    center = np.arange(9.0)
    features = GCWSFeatures(8, center=center, random_state=0).fit_width(9)
    spec = features.to_spec()
    center[:] = 0
    assert features.to_spec() == spec


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalize__divides_rows_in_float64(kind, norm, dtype):
    X = some_rows().astype(dtype)
    X[2] = 0
    wanted = X.astype(np.float64)
    for row in wanted:
        size = 0.0
        for value in row:
            size = {"l1": size + abs(value), "l2": size + value * value, "max": max(size, abs(value))}[norm]
        if size:
            row /= np.sqrt(size) if norm == "l2" else size
    normalised = GCWSFeatures(32, normalize=norm, random_state=0).fit(X)
    plain = GCWSFeatures(32, random_state=0).fit(X)
    assert same(normalised.transform(kind(X)), plain.transform(wanted))
    assert np.array_equal(normalised.sample(kind(X)), plain.sample(wanted))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_normalize__does_not_overflow_and_drops_what_vanishes(norm):
    features = GCWSFeatures(32, normalize=norm, random_state=0).fit_width(2)
    X = np.array([[1.5e308, -1.5e308], [3e-320, -3e-320], [1e308, 1e-308]])
    before = sp.csr_matrix(X)
    i_star, t_star = features.sample(before)
    assert np.array_equal(i_star[0], i_star[1])
    assert np.array_equal(t_star[0], t_star[1])
    assert (i_star[2] == 0).all()
    assert np.array_equal(before.toarray(), X)


def test_p__is_the_power_of_every_coordinate():
    X = 2.0 ** np.random.default_rng(0).integers(-9, 9, (40, 9)) * np.sign(some_rows(40))
    left = GCWSFeatures(256, p=2, random_state=0).fit(X).sample(X)
    right = GCWSFeatures(256, random_state=0).fit(X).sample(np.sign(X) * X**2)
    assert np.mean(np.equal(left, right).all(axis=0)) > 0.999  # 2 log x and log x^2 may round apart


def test_scale__float64_extremes_work():
    X = some_rows()
    features = GCWSFeatures(32, random_state=0).fit_width(9)
    for scale in (1e-300, 1e300):
        assert (np.diff(features.transform(X * scale).indptr) == 32).all()


@pytest.mark.parametrize(("n_features", "i_bits"), [(40, 8), (200, 8), (2000, 8), (2000, 4)])
def test_estimate_kernel__corrects_by_the_code_in_force(n_features, i_bits):
    rng = np.random.default_rng(3)
    X = rng.lognormal(size=(12, n_features))
    features = GCWSFeatures(4096, i_bits=i_bits, random_state=0).fit(X)
    estimate = features.estimate_kernel(features.encode(X[:5]), features.encode(X))
    exact = gmm(X[:5], X)
    # standard error at most 1/128, with 4 bits 16/15 of that; 60 values within 5 of them: fails once in 30,000 seeds
    assert np.abs(estimate - exact).max() < 5 / 128 * 16 / 15 + 0.01  # 0.01: the 0-bit bias
    assert np.allclose(np.diag(estimate), 1)


def test_estimate_kernel__rows_that_share_nothing_are_near_0():
    X = sp.csr_matrix(np.kron(np.eye(2), np.ones((8, 300))))
    features = GCWSFeatures(2048, i_bits=4, random_state=0).fit(X)
    codes = features.encode(X)
    assert features.code_mode_ == "mixed"
    estimate = features.estimate_kernel(codes)
    assert np.array_equal(estimate, features.estimate_kernel(codes, codes))
    # standard error sqrt(15)/16 / sqrt(2048) * 16/15 = 0.0057
    assert np.abs(estimate[:8, 8:]).max() < 0.04
    assert estimate[:8, 8:].min() < 0  # unbiased, so not cut at 0


@pytest.mark.parametrize("i_bits", [2, 8])
def test_estimate_kernel__of_an_empty_row_is_0(i_bits):
    X = np.zeros((3, 40))
    X[1] = 1
    features = GCWSFeatures(64, i_bits=i_bits, random_state=0).fit(X)
    codes = features.encode(X)
    assert features.estimate_kernel(codes).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("t_bits", [0, 1, 2])
@pytest.mark.parametrize("binary", [False, True])
def test_estimate_kernel__takes_levels_into_account(t_bits, binary):
    X = np.kron(np.eye(2), np.random.default_rng(4).lognormal(size=(1, 1000)))
    X = (X > 0).astype(float) if binary else X
    features = GCWSFeatures(2**17, i_bits=2, t_bits=t_bits, random_state=0).fit(X)
    estimate = features.estimate_kernel(features.encode(X))[0, 1]
    # standard error at most sqrt(3)/4 / 2^8.5 * 4/3 = 0.0016; within 4 of them: each case fails once in 16,000 seeds.
    # The chance of 1/4 alone, whatever the levels, would be off by 0.1 for real values, 1/16 by 0.2 for binary ones
    assert abs(estimate) < 4 * 0.0016


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "sigma"), [(0.9, 1.0), (-0.6, 1.0), (0.5, 3.0)])
def test_estimate_correlation__of_heavy_tails(rho, sigma):
    rng = np.random.default_rng(5)
    normal = rng.multivariate_normal([0, 0], [[1, rho * sigma], [rho * sigma, sigma**2]], size=5_000)
    X = (normal / np.sqrt(rng.chisquare(3, size=(5_000, 1)) / 3)).T  # t-distribution, 3 degrees of freedom
    features = GCWSFeatures(2**14, t_bits=2, random_state=0).fit(X)
    found = features.estimate_correlation(features.encode(X), sigma=sigma)
    # 4 standard errors of g: 4 * 0.5 / 2^7 = 0.016 from codes, 0.04 from columns; slope of rho in g at most 4 here
    assert abs(found[0, 1] - rho) < 4 * (0.016 + 0.04)
    assert features.estimate_correlation(features.encode(X[:1]))[0, 0] == 1


def test_estimate_correlation__of_another_power_is_refused():
    features = GCWSFeatures(8, p=2.0, random_state=0).fit_width(3)
    with pytest.raises(ConfigError, match=r"p=2\.0.*p=1 only"):
        features.estimate_correlation(features.encode(np.ones((1, 3))))


@pytest.mark.parametrize("limit", ["SWEPT_ROWS", "_BLOCK_NONZEROS"])
def test_encode__sparse_blocks_of_any_size_give_the_same(limit, monkeypatch, rng):
    X = sp.random(60, 400, density=0.05, format="lil", random_state=rng)
    X[10:25] = 0
    X = X.tocsr()
    features = GCWSFeatures(n_components=24, t_bits=1, random_state=3).fit(X)
    whole, samples = features.encode(X), features.sample(X)
    monkeypatch.setattr(_rows, limit, 17)
    for again, before in zip([*features.encode(X), *features.sample(X)], [*whole, *samples], strict=True):
        np.testing.assert_array_equal(again, before)
    X.data[-1] = np.nan
    with pytest.raises(InputError, match=f"row {np.flatnonzero(np.diff(X.indptr))[-1]}, column"):
        features.encode(X)


def test_encode__of_a_dask_array_points_elsewhere():
    da = pytest.importorskip("dask.array", reason="maps work without Dask")
    with pytest.raises(InputError, match="rows in memory"):
        GCWSFeatures().fit_width(3).encode(da.ones((2, 3)))


def test_pandas__names_are_kept_and_output_follows_scikit_learns_rules():
    pd = pytest.importorskip("pandas", reason="data frames are an option")
    frame = pd.DataFrame(some_rows(), columns=list("abcdefghi"))
    features = GCWSFeatures(8, random_state=0).fit(frame)
    assert features.feature_names_in_.tolist() == list("abcdefghi")
    assert same(features.transform(frame), GCWSFeatures(8, random_state=0).fit(some_rows()).transform(some_rows()))
    with pytest.raises(ValueError, match="sparse"):
        features.set_output(transform="pandas").transform(frame)
    assert not hasattr(features.set_output(transform="default").fit_width(9), "feature_names_in_")


def test_pipeline__linear_learning_beats_the_raw_features():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    raw = LinearSVC(C=0.01, random_state=0).fit(X, y).score(X_test, y_test)
    model = make_pipeline(GCWSFeatures(512, random_state=0), LinearSVC(C=0.01, random_state=0)).fit(X, y)
    assert model.score(X_test, y_test) > max(0.97, raw)
