"""Maps of sampled codes: preparation of rows, packing, estimates from codes, and use in a pipeline."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkfeat import DartFeatures, GCWSFeatures, MinHashFeatures
from dkfeat.blocks import PackedCodes
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps import _rows
from tests.conftest import peak_bytes
from tests.maps.small import rows_for

of_both = pytest.mark.parametrize("cls", [GCWSFeatures, DartFeatures])
of_all = pytest.mark.parametrize("cls", [GCWSFeatures, DartFeatures, MinHashFeatures])


def some_rows(n_samples=30, n_features=9, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)


def same(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


@parametrize_with_checks(
    [
        GCWSFeatures(n_components=3, i_bits=3, t_bits=2, center=0.5, normalize="l2", p=2.0),
        GCWSFeatures(n_components=3, i_bits=1, center=-1, normalize="max", code="lowest", random_state=1),
        DartFeatures(n_components=3, bits=3, center=0.5, normalize="l2", p=2.0, random_state=1),
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
        ("bits", [0, 17, 8.0, None, True]),
        ("p", [0, -2.0, np.nan, np.inf, 1001, "1", None, True]),
        ("center", [np.nan, np.inf, [1.0, 2.0], np.full(9, np.nan), "mean", ["a"] * 9]),
        ("normalize", ["l3", 2, True, ["l1"]]),
        ("code", ["mixed", None, 1]),
        ("random_state", [-1, 2**64, "7", 1.5]),
    ],
)
@of_all
def test_fit__refuses_parameters_out_of_range(cls, name, values):
    for value in values if name in cls().get_params() else ():
        with pytest.raises(ConfigError, match=name):
            cls(**{name: value}).fit_width(9)
        with pytest.raises(ConfigError, match=name):
            cls(**{name: value}).fit(rows_for(cls, some_rows()))


@pytest.mark.parametrize("n_features", [0, -1, 1.0, None, 2**62 + 1])
def test_fit_width__refuses_what_is_no_width(n_features):
    with pytest.raises(ConfigError, match="n_features="):
        GCWSFeatures().fit_width(n_features)


@of_both
def test_transform__is_csr_matrix_of_int32_and_float32_ones(cls):
    Z = cls(16, random_state=0).fit_transform(some_rows())
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


@of_both
def test_encode__all_zero_rows_are_marked_and_decode_to_nothing(cls):
    X = some_rows()
    X[[0, 5, -1]] = 0
    features = cls(10, random_state=0).fit(X)
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
    for call in (features.decode, features.estimate_kernel):
        with pytest.raises(InputError, match="got ndarray, but it must be codes: pass the result of encode"):
            call(some_rows())
    with pytest.raises(InputError, match="values in memory are needed"):
        features.encode(da.ones((2, 9)))


@of_both
def test_sample__only_held_coordinates_of_the_right_sign(cls):
    X = some_rows()
    X[3] = 0
    i_star, number = cls(600, random_state=0).fit(X).sample(X)
    assert i_star.dtype == number.dtype == np.int64
    assert i_star.shape == number.shape == (30, 600)
    for row, drawn in zip(X, i_star, strict=True):
        assert set(drawn.tolist()) == ({2 * f + (v < 0) for f, v in enumerate(row) if v} or {-1})
    assert not number[3].any()


@of_both
@pytest.mark.fault("I-09")
@pytest.mark.parametrize("n_features", [2**31, 2**40, 2**62])
def test_transform__width_of_the_input_costs_nothing(cls, n_features):
    features = cls(32, random_state=0).fit_width(n_features)
    data, columns = np.array([1.0, -2.0]), np.array([7, n_features - 1])
    X = sp.csr_matrix((data, columns, np.array([0, 2])), shape=(1, n_features))
    features.transform(X), features.sample(X)  # compiled from here on
    assert peak_bytes(lambda: features.fit(X).transform(X)) + peak_bytes(lambda: features.sample(X)) < 4 * 2**20
    i_star, Z = features.sample(X)[0], features.transform(X)
    assert set(i_star[0].tolist()) == {14, 2 * n_features - 1}
    assert Z.nnz == 32


@of_both
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("center", [0, 0.25, -1e3, np.arange(9.0) - 4, np.r_[np.zeros(8), 2.0]], ids=str)
def test_center__is_subtracted_from_absent_entries_too(cls, kind, center):
    X = some_rows()
    X[4] = center
    centered = cls(32, center=center, random_state=0).fit(kind(X))
    plain = cls(32, random_state=0).fit(X)
    assert same(centered.transform(kind(X)), plain.transform(X - center))
    assert centered.encode(kind(X)).empty.tolist() == [row == 4 for row in range(30)]


def test_center__that_would_make_a_wide_row_dense_is_refused():
    with pytest.raises(ConfigError, match="fills in 1,099,511,627,776 columns"):
        GCWSFeatures(center=0.5).fit_width(2**40)
    assert GCWSFeatures(center=0).fit_width(2**40).n_features_in_ == 2**40


def test_center__overflow_names_its_cell():
    X = np.array([[1.0, 1e308]])
    with pytest.raises(InputError, match=r"inf at row 0, column 1 .*after the centre was subtracted"):
        GCWSFeatures(center=-1.7e308).fit(X).transform(X)


@pytest.mark.parametrize("center", [2, 0.5, [1.0] * 9, np.arange(9)], ids=str)
def test_center__survives_the_spec_and_changes_by_the_caller(center):
    features = GCWSFeatures(8, center=center, random_state=0).fit_width(9)
    again = GCWSFeatures.from_spec(features.to_spec())
    assert again.fingerprint() == features.fingerprint()
    assert same(again.transform(some_rows()), features.transform(some_rows()))
    if np.ndim(center):
        center[0] = -5
    assert again.fingerprint() == features.fingerprint()


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@of_both
def test_normalize__divides_rows_in_float64(cls, kind, norm, dtype):
    X = some_rows().astype(dtype)
    X[2] = 0
    wanted = X.astype(np.float64)
    for row in wanted:
        size = 0.0
        for value in row:
            size = {"l1": size + abs(value), "l2": size + value * value, "max": max(size, abs(value))}[norm]
        if size:
            row /= np.sqrt(size) if norm == "l2" else size
    normalised = cls(32, normalize=norm, random_state=0).fit(X)
    plain = cls(32, random_state=0).fit(X)
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


@of_both
def test_p__is_the_power_of_every_coordinate(cls):
    X = 2.0 ** np.random.default_rng(0).integers(-9, 9, (40, 9)) * np.sign(some_rows(40))
    left = cls(256, p=2, random_state=0).fit(X).sample(X)
    right = cls(256, random_state=0).fit(X).sample(np.sign(X) * X**2)
    assert np.mean(np.equal(left, right).all(axis=0)) > 0.999  # 2 log x and log x^2 may round apart


@of_all
@pytest.mark.parametrize("bits", [1, 4, 8])
def test_estimate_kernel__corrects_chance_and_keeps_empty_rows_at_0(cls, bits):
    X = sp.csr_matrix(np.kron(np.eye(2), np.ones((8, 300))))
    X = sp.vstack([X, sp.csr_matrix((1, 600))], format="csr")
    features = cls(2048, **{"i_bits" if cls is GCWSFeatures else "bits": bits}, random_state=0).fit(X)
    codes = features.encode(X)
    estimate = features.estimate_kernel(codes)
    assert np.array_equal(estimate, features.estimate_kernel(codes, codes))
    error = features.expected_error_at(0.0)
    assert np.abs(estimate[:8, 8:16]).max() < 4.5 * error  # one of equal pairs: fails one correct program in 150,000
    if cls is GCWSFeatures and bits == 4:
        assert estimate[:8, 8:16].min() < 0  # unbiased, so not cut at 0
    assert not estimate[16].any()
    assert not estimate[:, 16].any()
    assert (estimate[:8, :8] == 1).all()


@of_both
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    ("limit", "center"),
    [("SWEPT_ROWS", None), ("_BLOCK_NONZEROS", None), ("_BLOCK_CELLS", None), ("_BLOCK_CELLS", 0.5)],
)
def test_encode__blocks_of_any_size_give_the_same(cls, kind, limit, center, monkeypatch, rng):
    X = rng.standard_normal((60, 40)) * (rng.random((60, 40)) < 0.1)
    X[10:25] = 0
    features = cls(n_components=24, center=center, normalize="l2", random_state=3).fit(X)
    whole = [*features.encode(X), *features.sample(X)]
    monkeypatch.setattr(_rows, limit, 17)
    for again, before in zip([*features.encode(kind(X)), *features.sample(kind(X))], whole, strict=True):
        np.testing.assert_array_equal(again, before)
    X[50, 3] = np.nan
    with pytest.raises(InputError, match="NaN at row 50, column 3"):
        features.encode(kind(X))


def test_pandas__names_are_kept_and_output_follows_scikit_learns_rules():
    pd = pytest.importorskip("pandas", reason="data frames are an option")
    frame = pd.DataFrame(some_rows(), columns=list("abcdefghi"))
    features = GCWSFeatures(8, random_state=0).fit(frame)
    assert features.feature_names_in_.tolist() == list("abcdefghi")
    assert same(features.transform(frame), GCWSFeatures(8, random_state=0).fit(some_rows()).transform(some_rows()))
    with pytest.raises(ValueError, match="sparse"):
        features.set_output(transform="pandas").transform(frame)
    assert not hasattr(features.set_output(transform="default").fit_width(9), "feature_names_in_")


@pytest.mark.parametrize("columns", [np.arange(9), np.arange(9) << 36])
@pytest.mark.parametrize(
    "features",
    [
        GCWSFeatures(48, i_bits=8, t_bits=2, p=2.0, center=0.3),
        GCWSFeatures(48, i_bits=3),
        GCWSFeatures(40, i_bits=12, code="lowest"),
        DartFeatures(600, bits=5, p=0.5),
        MinHashFeatures(48, bits=8),
    ],
    ids=str,
)
def test_columns_of_codes__others_do_not_decide_a_code(features, columns):
    """A code stays when any column but its own is emptied, and goes when its own is: so no other column made it."""
    rows = (
        sp.csr_matrix(some_rows(5)) if not features.takes_sets else sp.csr_matrix(abs(some_rows(5)) > 0.4, dtype=float)
    )
    features = features.set_params(random_state=0)
    is_wide = columns[1] > 1
    if is_wide:
        if getattr(features, "center", None) is not None:
            features = features.set_params(center=None)
        rows = sp.csr_matrix((rows.data, columns[rows.indices], rows.indptr), shape=(5, 1 << 40))
    features.fit_width(rows.shape[1])
    centre = getattr(features, "center", None) or 0.0
    for row in rows:
        pairs = _pairs(features, row)
        assert len(pairs) == features.n_components
        assert {column for _, column in pairs} <= {*columns}
        for column in row.indices.tolist():
            left = row.copy()
            left.data[left.indices == column] = centre
            others = _pairs(features, left)
            assert {pair for pair in pairs if pair[1] != column} <= others
            assert column not in {column for _, column in others}


def _pairs(features, row):
    codes, columns = features.columns_of_codes(row).nonzero()
    return {*zip(codes.tolist(), columns.tolist(), strict=True)}
