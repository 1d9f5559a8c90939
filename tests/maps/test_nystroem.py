"""Nyström features: their landmarks, their law, and scikit-learn's as an outside reference."""

from __future__ import annotations

import json
import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem

import dkfeat
from dkfeat import kernels
from dkfeat.compiled.random import choose_rows
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps import NystroemFeatures, from_spec
from tests.conftest import first_quick, peak_bytes

KERNELS = {
    "gmm": {"p": 0.5},
    "egmm": {"gamma": 2.0},
    "resemblance": {},
    "rbf": {"gamma": 0.05},
    "rbf_cosine": {"gamma": 1.5},
    "exponential_semigroup": {"beta": 0.3},
    "reciprocal_semigroup": {"rate": 20.0},
    "polynomial": {"degree": 2, "coef0": 0.5},
    "vovk_real": {"degree": 3},
    "vovk_infinite": {"alpha": 0.5},
    "exponential_dot_product": {"gamma": 0.7},
    "maclaurin": {"coefficients": [1.0, 0.5, 0.0, 0.25]},
}


def rows_for(kernel, n_samples=120, seed=0):
    """Sparse rows in every kernel's domain."""
    rng = np.random.default_rng(seed)
    X = sp.random(n_samples, 30, density=0.3, random_state=rng, format="csr")
    X.data *= 1 if "semigroup" in kernel else rng.choice([-1, 1], X.nnz)
    return X / 4 if "vovk" in kernel else X


def nystroem(kernel="gmm", n_components=40, **params):
    return NystroemFeatures(n_components, kernel=kernel, kernel_params=KERNELS[kernel], random_state=1, **params)


def exact(kernel, *rows):
    return getattr(kernels, kernel)(*rows, **KERNELS[kernel])


def test_kernels__all_are_named():
    assert set(KERNELS) == set(kernels.__all__)


@pytest.mark.parametrize("kernel", KERNELS)
def test_features__are_exact_on_landmarks(kernel):
    X = rows_for(kernel)
    features = nystroem(kernel).fit(X)
    landmarks = features.landmarks_
    Z, Z_landmarks = features.transform(X), features.transform(landmarks)
    wanted = exact(kernel, X, landmarks)
    assert np.abs(Z.astype(float) @ Z_landmarks.T - wanted).max() < 5e-6 * np.abs(wanted).max()
    assert (landmarks != X[features.landmark_rows_]).nnz == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_features__of_dense_and_sparse_rows_in_any_block(kernel):
    X = rows_for(kernel)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    features = nystroem(kernel).fit(X)
    assert features.fingerprint() == clone(features).fit(X.toarray()).fingerprint()
    whole = features.transform(X)
    blocks = [features.transform(X[at : at + 7]) for at in range(0, 120, 7)]
    assert np.array_equal(np.vstack(blocks), whole)
    dense = features.transform(X.toarray())
    if "semigroup" in kernel:
        assert np.allclose(dense, whole, rtol=0, atol=1e-5 * np.abs(whole).max())
    else:
        assert np.array_equal(dense, whole)


@pytest.mark.parametrize(("kernel", "params", "theirs"), [
    ("rbf", {"gamma": 0.2}, {"kernel": "rbf", "gamma": 0.2}),
    ("polynomial", {"degree": 2, "coef0": 1.0}, {"kernel": "polynomial", "gamma": 1, "degree": 2, "coef0": 1}),
    ("gmm", {}, {"kernel": kernels.gmm}),
])  # fmt: skip
@pytest.mark.parametrize("kind", [sp.csr_matrix, lambda X: X.toarray()], ids=["sparse", "dense"])
def test_features__agree_with_scikit_learns(kernel, params, theirs, kind):
    X = kind(rows_for(kernel))
    ours = NystroemFeatures(25, kernel=kernel, kernel_params=params, random_state=3).fit(X)
    landmarks = ours.landmarks_.toarray()
    if callable(theirs["kernel"]):
        theirs = {"kernel": lambda x, y: float(kernels.gmm(x[None], y[None])[0, 0])}
        X = X.toarray() if sp.issparse(X) else X
    reference = Nystroem(n_components=25, random_state=0, **theirs).fit(landmarks)  # all rows are its landmarks
    Z, wanted = ours.transform(X), reference.transform(X)
    assert np.abs(Z @ Z.T - wanted @ wanted.T).max() < 1e-6 * max(np.abs(wanted @ wanted.T).max(), 10)


@pytest.mark.parametrize("gamma", [0.5, 0.02, 1e-3])  # eigenvalues that span 1e2, 1e6 and 1e10
@pytest.mark.parametrize("offset", [0, 50])
def test_features__are_close_to_those_of_float64(gamma, offset):
    X = np.random.default_rng(0).standard_normal((400, 8)) + offset
    features = NystroemFeatures(200, kernel="rbf", kernel_params={"gamma": gamma}, random_state=0).fit(X)
    Z = features.transform(X).astype(float)
    wanted = kernels.rbf(X, features.landmarks_.toarray(), gamma=gamma) @ features.normalization_
    assert np.abs(Z - wanted).max() < 1e-4
    assert np.abs(Z @ Z.T - wanted @ wanted.T).max() < 1e-5


@pytest.mark.parametrize("n_columns", [3_000, 2**40], ids=["listed", "searched"])
@pytest.mark.parametrize("kernel", ["rbf", "rbf_cosine", "polynomial", "gmm"])
def test_features__of_sparse_landmarks_with_common_and_rare_columns(kernel, n_columns):
    rng = np.random.default_rng(0)
    X = sp.random(300, 3_000, density=0.02, random_state=rng, format="lil")
    X[::2, 5] = X[::3, 2_000] = 1.5  # held by a half and a third of the landmarks
    X[7] = 0
    X = X.tocsr()
    stride = n_columns // 3_000
    wide = sp.csr_matrix((X.data, X.indices.astype(np.int64) * stride, X.indptr), shape=(300, n_columns))
    features = NystroemFeatures(200, kernel=kernel, random_state=0).fit(wide)
    Z = features.transform(wide)
    landmarks = X[features.landmark_rows_]
    wanted = getattr(kernels, kernel)(X, landmarks) @ features.normalization_
    assert np.abs(Z @ Z.T - wanted @ wanted.T).max() < 1e-5 * max(np.abs(wanted @ wanted.T).max(), 1)
    blocks = [features.transform(wide[at : at + 7]) for at in range(0, 300, 7)]
    assert np.array_equal(np.vstack(blocks), Z)
    if n_columns == 3_000:
        assert np.array_equal(features.transform(wide.toarray()), Z)


def test_features__rows_far_from_the_landmarks_or_the_origin_keep_their_digits():
    X = np.random.default_rng(0).standard_normal((50, 3))
    X[7] *= 1e200
    X[8] = 0
    for kernel in ("rbf", "rbf_cosine"):
        features = NystroemFeatures(30, kernel=kernel, random_state=1).fit(X[10:])
        wanted = getattr(kernels, kernel)(X, features.landmarks_.toarray()) @ features.normalization_
        for rows in (X, sp.csr_matrix(X)):
            assert np.abs(features.transform(rows) - wanted).max() < 1e-4
    far = X[10:] + 1e9  # float64 has seven digits of the differences left
    features = NystroemFeatures(30, kernel="rbf", random_state=1).fit(far)
    wanted = kernels.rbf(far - 1e9, features.landmarks_.toarray() - 1e9) @ features.normalization_
    assert np.abs(features.transform(far) - wanted).max() < 1e-4


def test_features__kernel_values_beyond_float32_are_multiplied_in_float64():
    X = np.random.default_rng(0).standard_normal((40, 3))
    for scale, row in ((1.0, 1e7), (1e6, 1.0), (1e-6, 1.0)):
        params = {"degree": 5, "coef0": 0.0}
        features = NystroemFeatures(9, kernel="polynomial", kernel_params=params, random_state=0).fit(X[:20] * scale)
        rows = X * scale
        rows[30] *= row
        wanted = kernels.polynomial(rows, features.landmarks_.toarray(), **params) @ features.normalization_
        assert (np.abs(features.transform(rows) - wanted) < 1e-5 * np.abs(wanted).max(axis=1, keepdims=True)).all()


@pytest.mark.parametrize(
    ("degree", "scale", "row_scale"),
    [(3, 1.0, 1.0), (2, 1e10, 1e10), (1, 1e6, 1e33)],  # sums of the last would overflow float32
)
def test_features__of_float32_rows_with_a_polynomial_kernel(degree, scale, row_scale):
    rows = np.random.default_rng(0).uniform(-0.3, 1, (120, 300))
    rows[:10] *= row_scale
    rows[10:] *= scale
    rows[5] = rows[6, :200] = rows[7, 100:] = rows[8, 70:130] = 0
    X, params = rows.astype(np.float32), {"degree": degree, "coef0": float(degree == 3)}
    features = NystroemFeatures(30, kernel="polynomial", kernel_params=params, random_state=1).fit(X[10:])
    Z = features.transform(X)
    landmarks = features.landmarks_.toarray()
    wanted = kernels.polynomial(X.astype(np.float64), landmarks, **params) @ features.normalization_
    assert (np.abs(Z - wanted) <= 1e-5 * np.abs(wanted).max(axis=1, keepdims=True)).all()
    assert np.array_equal(features.transform(sp.csr_matrix(X)), Z)
    assert np.array_equal(np.vstack([features.transform(X[at : at + 7]) for at in range(0, 120, 7)]), Z)


def test_features__sums_that_overflow_float32_with_both_signs():
    X = np.random.default_rng(0).uniform(0.5, 1, (60, 300)).astype(np.float32)
    features = NystroemFeatures(20, kernel="polynomial", kernel_params={"degree": 1, "coef0": 0.0}, random_state=1)
    features.fit(X * np.float32(1e6))
    rows = X[:4] * np.float32(1e33)
    rows[:, 64:] *= -1  # the first sum is inf, the others -inf
    wanted = features.transform(rows.astype(np.float64))
    assert np.isfinite(wanted).all()
    assert np.array_equal(features.transform(rows), wanted)


@pytest.mark.parametrize(
    ("kernel", "params", "dtype"),
    [
        ("polynomial", {"degree": 2, "coef0": 1.0}, np.float64),  # landmarks that are not float32
        ("polynomial", {"degree": 5, "coef0": 1.0}, np.float32),
        ("vovk_infinite", {"alpha": 0.5}, np.float32),
        ("exponential_dot_product", {"gamma": 1.0}, np.float32),
        ("rbf", {"gamma": 1.0}, np.float32),
    ],
)
def test_features__of_float32_rows_in_float64_where_errors_would_grow(kernel, params, dtype):
    X = np.random.default_rng(0).random((60, 100)) / 20
    rows = X.astype(np.float32)
    features = NystroemFeatures(20, kernel=kernel, kernel_params=params, random_state=1).fit(X.astype(dtype))
    assert np.array_equal(features.transform(rows), features.transform(rows.astype(np.float64)))


def test_rank__duplicates_are_cut_and_features_stay_exact():
    X = sp.vstack([rows_for("gmm", 10)] * 4, format="csr")
    features = NystroemFeatures(40, random_state=0).fit(X)
    assert features.n_features_out == 10
    assert features.encoded_row_bytes == 40
    Z = features.transform(X)
    assert np.abs(Z @ Z.T - kernels.gmm(X)).max() < 1e-6


def test_rank__tolerance_keeps_large_eigenvalues():
    X = rows_for("rbf")
    eigenvalues = np.linalg.eigvalsh(exact("rbf", nystroem("rbf").fit(X).landmarks_))
    for tolerance in (1e-3, 1e-2, 1.0):
        features = nystroem("rbf", rank_tolerance=tolerance).fit(X)
        assert features.n_features_out == np.count_nonzero(eigenvalues >= tolerance * eigenvalues.max() * (1 - 1e-12))


def test_rank__landmarks_that_resemble_nothing_give_a_column_of_zeros():
    features = NystroemFeatures(3, random_state=0).fit(np.zeros((5, 2)))
    assert features.transform(np.ones((2, 2))).tolist() == [[0.0], [0.0]]


def test_components__fewer_rows_than_asked_are_all_landmarks():
    features = NystroemFeatures(100, random_state=0).fit(rows_for("gmm", 7))
    assert features.landmark_rows_.tolist() == list(range(7))


def test_choose_rows__is_uniform_over_all_rows():
    # every row of 50 equally often among 4,000 samples of 10; a correct program fails one in 10,000 choices of seeds
    counts = np.zeros(50)
    for seed in range(4_000):
        rows = choose_rows(seed, 50, 10)
        assert len(set(rows.tolist())) == 10
        counts[rows] += 1
    expected = 4_000 * 10 / 50
    # without replacement counts vary less, by the factor of 1 - 10/50
    statistic = ((counts - expected) ** 2 / expected).sum() / (1 - 10 / 50) * (49 / 50)
    assert chi2.ppf(1e-4 / 2, 49) < statistic < chi2.ppf(1 - 1e-4 / 2, 49)


def test_choose_rows__are_these_for_ever():
    # version 1 of stream 48: another choice under an old seed would be another map
    assert choose_rows(0, 10**6, 5).tolist() == [502717, 655081, 693515, 734739, 982773]
    assert choose_rows(2**64 - 1, 2**62, 2).tolist() == [3539911559564216621, 4315662116513477584]
    assert choose_rows(7, 12, 11).tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62), st.integers(1, 60), st.integers(1, 60))
def test_choose_rows__smaller_samples_are_part_of_larger_ones(seed, n_rows, few, more):
    some, many = (choose_rows(seed, n_rows, n) for n in sorted((few, more)))
    assert set(some.tolist()) <= set(many.tolist())
    assert len(many) == min(n_rows, max(few, more))
    assert (np.diff(many) > 0).all()
    assert not len(many) or 0 <= many[0] <= many[-1] < n_rows


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, np.asarray])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("chunks", [(7, 30), (50, 11), (120, 30)])
def test_fit__of_dask_arrays_draws_the_same_landmarks(kind, known, chunks):
    X = rows_for("gmm")
    blocks = da.from_array(X.toarray(), chunks=chunks)
    if blocks.numblocks[1] == 1:
        blocks = blocks.map_blocks(kind, dtype=X.dtype, meta=kind(np.empty((0, 0))))
    if not known:
        blocks._chunks = ((np.nan,) * blocks.numblocks[0], blocks.chunks[1])
    features = nystroem().fit(blocks)
    assert features.fingerprint() == nystroem().fit(X).fingerprint()
    assert np.isnan(blocks.shape[0]) == (not known)
    if chunks[1] == 30:
        assert np.array_equal(features.transform(blocks).compute(), features.transform(X))


def test_fit__of_dask_arrays_computes_only_blocks_with_landmarks():
    seen = []

    def look(block, block_id):
        seen.append(block_id[0])
        return block

    X = da.from_array(rows_for("gmm").toarray(), chunks=(6, 30))
    features = NystroemFeatures(3, random_state=0).fit(X.map_blocks(look, dtype=float, meta=np.empty((0, 0))))
    assert sorted(seen) == sorted({row // 6 for row in features.landmark_rows_.tolist()})


def test_fit_width__is_refused():
    with pytest.raises(ConfigError, match=r"landmarks are rows of the data; call fit\(X\)"):
        NystroemFeatures().fit_width(10)


@pytest.mark.parametrize(("params", "text"), [
    ({"kernel": "gm"}, "kernel='gm', but it must be one of 'gmm'"),
    ({"kernel_params": {"gamma": 1.0}}, "'gmm' has no parameter 'gamma'; its parameters are: p"),
    ({"kernel_params": {"p": 0}}, "p=0.0, but it must be a finite number above 0"),
    ({"kernel_params": [1]}, "kernel_params="),
    ({"kernel": "rbf", "kernel_params": {"gamma": -1}}, "gamma=-1"),
    ({"kernel": "polynomial", "kernel_params": {"degree": 2.5}}, "degree=2.5"),
    ({"kernel": "maclaurin", "kernel_params": {"coefficients": 3}}, "coefficients=3"),
    ({"rank_tolerance": 0}, "rank_tolerance=0"),
    ({"rank_tolerance": 1e-16}, "rank_tolerance=1e-16, but it must be from 1e-15 to 1"),
    ({"n_components": 2**14 + 1}, "n_components=16385"),
    ({"random_state": -1}, "random_state=-1"),
])  # fmt: skip
def test_parameters__out_of_range_are_refused(params, text):
    with pytest.raises(ConfigError, match=text):
        NystroemFeatures(**params).fit(np.ones((3, 2)))


def test_fit__names_the_row_that_a_kernel_refuses():
    X = np.ones((9, 2))
    X[4, 1] = -1
    with pytest.raises(
        InputError, match=r"Negative values in data: .* counts only the 9 landmarks: it is row"
    ) as caught:
        NystroemFeatures(20, kernel="reciprocal_semigroup", random_state=0).fit(X)
    assert (caught.value.row, caught.value.column) == (4, 1)


@pytest.mark.parametrize("kind", first_quick([np.asarray, sp.csr_matrix]))
@pytest.mark.parametrize(
    ("kernel", "params", "value", "column"),
    [
        ("exponential_semigroup", {}, -1.0, 1),
        ("vovk_infinite", {}, 9.0, None),
        ("polynomial", {"degree": 9}, 1e60, None),
    ],
)
def test_transform__names_a_refused_row_by_its_place_in_all_rows(kernel, params, value, column, kind):
    X = np.full((9_000, 2), 0.2)
    features = NystroemFeatures(256, kernel=kernel, kernel_params=params, random_state=0).fit(X)
    X[8_500, 1] = value  # 8,192 rows are taken at a time
    with pytest.raises(InputError, match="row 8,500") as caught:
        features.transform(kind(X))
    assert (caught.value.row, caught.value.column) == (8_500, column)


def test_fit__landmarks_that_no_file_would_hold_are_refused_before_they_are_decomposed(monkeypatch):
    monkeypatch.setattr("dkfeat.maps._landmarks._MOST_BYTES", 10_000)
    X = np.ones((100, 8))
    NystroemFeatures(20, random_state=0).fit(X)
    with pytest.raises(
        ConfigError, match=r"50 landmarks with 400 values would take 27,200 bytes.*smaller n_components"
    ):
        NystroemFeatures(50, random_state=0).fit(X)


def test_fit__without_rows_is_refused():
    with pytest.raises(InputError, match="there are none"):
        NystroemFeatures().fit(da.zeros((0, 3)))


@pytest.mark.parametrize(
    ("kernel", "n_components", "density", "dtype"),
    [("rbf", 4, None, np.float32), pytest.param("gmm", 256, 0.01, np.float64, marks=pytest.mark.slow)],
)
def test_transform__memory_is_as_projected(kernel, n_components, density, dtype):
    # dense rows are copied in blocks, however few landmarks there are: in float64 they would take 160 MB
    rng = np.random.default_rng(0)
    X = sp.random(20_000, 5_000, density, "csr", random_state=rng) if density else rng.standard_normal((20_000, 1_000))
    X = X.astype(dtype)
    features = NystroemFeatures(n_components, kernel=kernel, random_state=0).fit(X)
    features.transform(X[:10])
    Z_bytes = 4 * 20_000 * features.n_features_out
    assert Z_bytes < peak_bytes(lambda: features.transform(X)) < Z_bytes + features._working_bytes


def test_spec__holds_no_array_and_reads_back_with_them():
    features = nystroem("maclaurin").fit(rows_for("maclaurin"))
    spec = json.loads(json.dumps(features.to_spec()))
    assert len(json.dumps(spec)) < 500
    assert spec["landmarks"] == from_spec(spec, features._fitted_arrays()).to_spec()["landmarks"]
    features.transform(features.landmarks_)
    data = pickle.dumps(features)
    assert len(data) < 1.1 * sum(array.nbytes for array in features._fitted_arrays().values()) + 2_000
    assert pickle.loads(data).fingerprint() == features.fingerprint()


def test_spec__without_or_with_other_landmarks_is_refused():
    features = nystroem().fit(rows_for("gmm"))
    arrays = features._fitted_arrays()
    with pytest.raises(ConfigError, match="not in its spec but in a file"):
        dkfeat.from_spec(features.to_spec())
    other = {**arrays, "values": arrays["values"] * 2}
    with pytest.raises(dkfeat.errors.SpecConflictError, match="does not read back"):
        dkfeat.from_spec(features.to_spec(), other)


@pytest.mark.parametrize("change", [
    {"numbers": np.array([3, 3])},
    {"numbers": np.array([-1, 3])},
    {"indptr": np.array([0, 3, 1])},
    {"indptr": np.array([0, 1, 9])},
    {"indices": np.array([0, 1, 99])},
    {"indices": np.array([0, -1, 2])},
    {"indices": np.array([0, 2, 2])},
    {"values": np.array([1.0, np.nan, 1.0])},
    {"values": np.array([1.0, 0.0, 1.0])},
    {"normalization": np.ones((3, 2))},
    {"normalization": np.ones((2, 3))},
    {"normalization": np.full((2, 2), np.inf)},
    {"normalization": np.ones((2, 2), np.float32)},
    {"more": np.ones(2)},
])  # fmt: skip
def test_arrays__that_are_no_landmarks_are_refused(change):
    X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    features = NystroemFeatures(2, random_state=0).fit(X)
    with pytest.raises(ConfigError, match="landmarks"):
        from_spec(features.to_spec(), {**features._fitted_arrays(), **change})
