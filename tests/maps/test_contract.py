"""What every feature map promises, checked on each class in FEATURE_MAPS."""

import itertools
import json
import pickle
from dataclasses import dataclass
from typing import ClassVar

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkfeat
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.maps import CLASSES, GCWSFeatures, from_spec
from dkfeat.maps._base import FeatureMap, Fitted, check_flag
from dkfeat.maps._kernel_estimates import EstimatedKernel
from tests.cli.test_commands import run
from tests.conftest import peak_bytes
from tests.maps.small import FEATURE_MAPS, has, rows_for, small_map

COLUMNS = 11
MAPS = [pytest.param(cls, id=name) for name, cls in FEATURE_MAPS.items()]
SIZED = [pytest.param(cls, id=name) for name, cls in FEATURE_MAPS.items() if has(cls, "n_components")]
RANDOM = [pytest.param(cls, id=name) for name, cls in FEATURE_MAPS.items() if has(cls, "random_state")]
KINDS = [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array, sp.coo_array, np.asfortranarray, np.asarray]


def make(cls, **params):
    return small_map(cls.name, n_components=24, random_state=5).set_params(**params)


def fitted(cls, n_columns=COLUMNS, **params):
    if cls._needs_rows:
        return make(cls, **params).fit(np.pad(some_rows(cls), ((0, 0), (0, n_columns - COLUMNS))))
    return make(cls, **params).fit_width(n_columns)


def some_rows(cls, seed=0, n_samples=40):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, COLUMNS)) * 10.0 ** rng.integers(-3, 4, (n_samples, COLUMNS))
    X *= rng.random(X.shape) < 0.5
    X[::9] = 0
    if cls().__sklearn_tags__().input_tags.positive_only:
        X = np.abs(X)
    return rows_for(cls, X.astype(np.float32).astype(np.float64))


def array_of(features):
    return features.toarray() if sp.issparse(features) else np.asarray(features)


def assert_same(left, right):
    assert np.array_equal(array_of(left), array_of(right))


class SetsOfColumns(dkfeat.MinHashFeatures):
    """MinHashFeatures of the columns that are not zero: scikit-learn's checks send rows of any numbers."""

    def _as_rows(self, X, *, reset):
        rows = FeatureMap._as_rows(self, X, reset=reset)
        values = rows.data if sp.issparse(rows) else rows
        values = np.where(np.isfinite(values), values != 0, values).astype(values.dtype)
        return sp.csr_matrix((values, rows.indices, rows.indptr), rows.shape) if sp.issparse(rows) else values

    def _check_rows(self, X):
        self._check_fitted()
        return self._as_rows(X, reset=False)


def checked_map(name):
    return SetsOfColumns(8) if name == "minhash" else small_map(name, random_state=None)


# scikit-learn itself skips its check of array_api input unless SCIPY_ARRAY_API is set; with it, all maps pass
@parametrize_with_checks([checked_map(name) for name in FEATURE_MAPS])
def test_map__keeps_scikit_learns_rules(estimator, check):
    check(estimator)


@pytest.mark.fault("D-04")
@pytest.mark.parametrize("cls", MAPS)
@given(cuts=st.lists(st.integers(0, 40), max_size=6))
def test_map__features_do_not_depend_on_the_partition(cls, cuts):
    X, features = some_rows(cls), fitted(cls)
    whole = array_of(features.transform(X))
    bounds = [0, *sorted(cuts), 40]
    for kind in (np.asarray, sp.csr_matrix):
        parts = [array_of(features.transform(kind(X[a:b]))) for a, b in itertools.pairwise(bounds)]
        assert_same(np.vstack(parts), whole)


@pytest.mark.fault("D-13")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("cls", MAPS)
def test_map__every_container_gives_the_same_features(cls, kind, index):
    X, features = some_rows(cls), fitted(cls)
    held = kind(X)
    for name in ("indices", "indptr"):
        if hasattr(held, name):
            setattr(held, name, getattr(held, name).astype(index))
    assert_same(features.transform(held), features.transform(X))


@pytest.mark.fault("D-13")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint16, bool, ">f8"])
@pytest.mark.parametrize("cls", MAPS)
def test_map__every_dtype_of_equal_values_gives_the_same_features(cls, dtype):
    X, features = np.fmod(some_rows(cls), 100).astype(dtype), fitted(cls)
    wanted = features.transform(X.astype(np.float64))
    assert_same(features.transform(X), wanted)
    if np.dtype(dtype).isnative:
        assert_same(features.transform(sp.csr_matrix(X)), wanted)


@pytest.mark.parametrize("cls", MAPS)
def test_map__decode_of_encode_is_transform(cls):
    X, features = some_rows(cls), fitted(cls)
    assert_same(features.decode(features.encode(X)), features.transform(X))
    assert array_of(features.transform(X)).any()


@pytest.mark.parametrize("cls", MAPS)
def test_map__explicit_zeros_change_nothing(cls):
    X, features = some_rows(cls), fitted(cls)
    full = sp.csr_matrix(np.ones_like(X))
    full.data = X.ravel().copy()
    assert full.nnz == X.size
    assert_same(features.transform(full), features.transform(X))


@pytest.mark.fault("D-13")
@pytest.mark.parametrize("cls", MAPS)
def test_map__duplicates_are_summed_and_order_is_free(cls):
    features = fitted(cls)
    messy = sp.csr_matrix(([0.25, 1.0, 0.75, 3.0, -3.0], [7, 2, 7, 5, 5], [0, 5]), shape=(1, COLUMNS))
    before = messy.data.copy(), messy.indices.copy()
    clean = np.zeros((1, COLUMNS))
    clean[0, [2, 7]] = 1
    assert_same(features.transform(messy), features.transform(clean))
    assert np.array_equal(messy.data, before[0])
    assert np.array_equal(messy.indices, before[1])


@pytest.mark.fault("D-09")
@pytest.mark.parametrize("cls", RANDOM)
def test_map__the_seed_decides(cls):
    X = some_rows(cls)
    one = array_of(fitted(cls).transform(X))
    assert_same(fitted(cls).transform(X), one)
    assert (array_of(fitted(cls, random_state=6).transform(X)) != one).any()


@pytest.mark.parametrize("cls", RANDOM)
def test_map__without_a_seed_fit_draws_one_and_keeps_it(cls):
    X = some_rows(cls)
    features = make(cls, random_state=None).fit(X)
    again = clone(features).set_params(random_state=features.seed_).fit(X)
    assert_same(features.transform(X), features.transform(X))
    assert_same(features.transform(X), again.transform(X))
    assert make(cls, random_state=None).fit(X).seed_ != features.seed_


@pytest.mark.parametrize("cls", MAPS)
def test_map__fit_and_fit_width_agree(cls):
    X = some_rows(cls)
    assert make(cls).fit(X).fingerprint() == fitted(cls).fingerprint()
    assert make(cls).fit(sp.csc_array(X)).fingerprint() == fitted(cls).fingerprint()


@pytest.mark.fault("D-13")
@pytest.mark.parametrize("cls", MAPS)
def test_map__input_is_never_modified(cls):
    features = fitted(cls)
    for kind in KINDS:
        held = kind(some_rows(cls))
        before = pickle.loads(pickle.dumps(held))
        features.transform(held)
        make(cls).fit(held)
        if sp.issparse(held):
            assert np.array_equal(held.data, before.data)
            assert (held != before).nnz == 0
        else:
            assert np.array_equal(held, before)


@pytest.mark.fault("D-13")
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("cls", MAPS)
def test_map__read_only_and_memory_mapped_rows_are_fine(cls, kind, tmp_path):
    X, features = some_rows(cls), fitted(cls)
    joblib.dump(kind(X), tmp_path / "rows")
    assert_same(features.transform(joblib.load(tmp_path / "rows", mmap_mode="r")), features.transform(X))


@pytest.mark.parametrize("cls", MAPS)
def test_map__a_block_without_rows_gives_no_rows(cls):
    features = fitted(cls)
    for kind in (np.asarray, sp.csr_matrix):
        assert features.transform(kind(np.zeros((0, COLUMNS)))).shape == (0, features.n_features_out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")])
@pytest.mark.parametrize("cls", MAPS)
def test_map__names_a_value_that_is_not_finite(cls, kind, value, shown):
    X, features = some_rows(cls), fitted(cls)
    X[13, 4] = value
    for call in (features.transform, make(cls).fit):
        with pytest.raises(InputError, match=f"X holds {shown} at row 13, column 4 ") as caught:
            call(kind(X))
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.row, again.column) == (13, 4)


@pytest.mark.parametrize("cls", MAPS)
def test_map__fit_makes_no_copy_of_dense_rows(cls):
    X = np.ones((4000, 1000), np.float32)
    make(cls).fit(X[:100])  # compiles and imports
    assert peak_bytes(lambda: make(cls).fit(X)) < X.nbytes / 2


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, da.asarray])
@pytest.mark.parametrize("cls", MAPS)
def test_map__refuses_another_width_in_scikit_learns_words(cls, kind):
    with pytest.raises(InputError, match=f"X has 3 features, but {cls.__name__} is expecting 11 features as input"):
        fitted(cls).transform(kind(np.ones((2, 3))))


@pytest.mark.parametrize("cls", MAPS)
def test_map__refuses_work_before_fit(cls):
    for call in (lambda m: m.transform(some_rows(cls)), lambda m: m.to_spec(), lambda m: m.fingerprint()):
        with pytest.raises(NotFittedError):
            call(make(cls))


@pytest.mark.parametrize("cls", SIZED)
def test_map__a_failed_fit_leaves_it_unfitted(cls):
    features = make(cls, n_components=0)
    with pytest.raises(ConfigError, match="n_components=0"):
        features.fit(some_rows(cls))
    with pytest.raises(NotFittedError):
        features.transform(some_rows(cls))


@pytest.mark.parametrize("cls", SIZED)
def test_map__parameters_set_after_fit_wait_for_the_next_fit(cls):
    X, features = some_rows(cls), fitted(cls)
    wanted, spec = features.transform(X), features.to_spec()
    features.set_params(n_components=3)
    assert_same(features.transform(X), wanted)
    assert features.to_spec() == spec


@pytest.mark.parametrize("cls", MAPS)
def test_map__spec_is_json_and_reads_back(cls):
    X, features = some_rows(cls), fitted(cls)
    again = from_spec(json.loads(json.dumps(features.to_spec(), allow_nan=False)), features._fitted_arrays())
    assert type(again) is cls
    assert again.fingerprint() == features.fingerprint()
    assert_same(again.transform(X), features.transform(X))
    assert dkfeat.from_spec is from_spec


@pytest.mark.parametrize("cls", MAPS)
def test_map__fingerprint_follows_what_decides_the_features(cls):
    changes = [{name: value} for name, value in (("random_state", 6), ("n_components", 25)) if has(cls, name)]
    fingerprints = {
        fitted(cls).fingerprint(),
        fitted(cls, COLUMNS + 1).fingerprint(),
        *(fitted(cls, **change).fingerprint() for change in changes),
    }
    assert len(fingerprints) == 2 + len(changes)
    assert all(len(f) == 64 for f in fingerprints)
    for change in changes:
        assert fitted(cls, **{name: np.int64(value) for name, value in change.items()}).fingerprint() in fingerprints


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"map": "no such"}, ConfigError, "known maps are"),
        ({"version": 99}, SpecConflictError, "made by version 99"),
        ({"params": {"nonsense": 1}}, ConfigError, "unknown settings .*nonsense"),
        ({"seed": -1}, (ConfigError, SpecConflictError), "random_state=-1|does not read back"),
        ({"n_features": 0}, ConfigError, "n_features=0"),
        ({"more": 1}, SpecConflictError, "does not read back"),
    ],
)
@pytest.mark.parametrize("cls", MAPS)
def test_map__refuses_a_spec_that_it_cannot_honour(cls, change, error, text):
    with pytest.raises(error, match=text):
        from_spec(fitted(cls).to_spec() | change, fitted(cls)._fitted_arrays())


@pytest.mark.parametrize("cls", MAPS)
def test_map__pickles_to_equal_features(cls):
    X, features = some_rows(cls), fitted(cls)
    data = pickle.dumps(features)
    # settings and a seed, no table; what is learnt from rows goes with it
    assert len(data) < 2_000 or features._fitted_arrays()
    assert_same(pickle.loads(data).transform(X), features.transform(X))


@pytest.mark.parametrize("cls", MAPS)
def test_map__names_as_many_features_as_it_makes(cls):
    names = fitted(cls).get_feature_names_out()
    assert len(names) == fitted(cls).n_features_out
    assert names[1] == f"{cls.__name__.lower()}{'0_' * (fitted(cls).layout == 'codes')}1"


@pytest.mark.parametrize("cls", MAPS)
def test_map__dask_without_known_columns_is_refused(cls):
    X = da.from_delayed(dask.delayed(some_rows)(cls), shape=(40, np.nan), dtype=float)
    with pytest.raises(InputError, match="fit_width"):
        make(cls).fit(X)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("cls", MAPS)
def test_map__a_cluster_gives_the_same_features(cls, kind, cluster_client):
    X, features = some_rows(cls), fitted(cls)
    blocks = da.from_array(X, chunks=(7, COLUMNS)).map_blocks(kind, dtype=X.dtype, meta=kind(np.empty((0, 0))))
    assert_same(cluster_client.compute(features.transform(blocks)).result(), features.transform(X))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((23, 7)) * (rng.random((23, 7)) < 0.6)


@pytest.fixture(scope="module")
def gcws():
    return GCWSFeatures(n_components=16, i_bits=4, random_state=3).fit_width(7)


def same_rows(left, right):
    return left.shape == right.shape and (left != right).nnz == 0


BLOCK_KINDS = [np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_matrix]


def blocks_of(rows, kind, chunks):
    return da.from_array(rows, chunks=chunks).map_blocks(kind, dtype=rows.dtype, meta=kind(np.empty((0, 0))))


@pytest.mark.parametrize("kind", BLOCK_KINDS)
@pytest.mark.parametrize("chunks", [(5, 7), (23, 7), ((1, 0, 22), 7), (5, 3)])
def test_transform_blocks__equals_the_bare_array(rows, gcws, kind, chunks):
    X = blocks_of(rows, kind, chunks)
    features = gcws.transform(X)
    assert features.chunks == (X.chunks[0], (256,))
    assert features.dtype == np.float32
    assert features.shape == (23, 16 * 16)
    assert isinstance(features._meta, sp.csr_matrix)
    assert same_rows(features.compute(scheduler="synchronous"), gcws.transform(rows))


def test_transform_blocks__keeps_unknown_row_chunks(rows, gcws):
    X = da.from_array(rows, chunks=(5, 3))
    X = X[X[:, 0] > 0]
    features = gcws.transform(X)
    assert np.isnan(features.chunks[0]).all()
    assert same_rows(features.compute(scheduler="synchronous"), gcws.transform(rows[rows[:, 0] > 0]))


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
    gcws = GCWSFeatures(n_components=4, center=np.arange(7.0), random_state=0).fit_width(7)
    graph = gcws.transform(da.from_array(rows, chunks=(1, 7))).__dask_graph__()
    holders = [key for key, task in dict(graph).items() if "GCWSFeatures" in repr(task)]
    assert len(holders) == 1


def test_transform_blocks__names_follow_the_map_and_the_input(rows, gcws):
    X = da.from_array(rows, chunks=(5, 7))
    again = GCWSFeatures(n_components=16, i_bits=4, random_state=3).fit_width(7)
    other = GCWSFeatures(n_components=16, i_bits=4, random_state=4).fit_width(7)
    assert gcws.transform(X).name == again.transform(X).name
    assert gcws.transform(X).name != other.transform(X).name
    assert gcws.transform(X).name != gcws.transform(X + 1).name


@pytest.mark.parametrize("shape", [(4,), (2, 7, 2), (4, 6)])
def test_transform_blocks__refuses_other_shapes(gcws, shape):
    with pytest.raises(InputError, match=r"two-dimensional|X has 6 features, but GCWSFeatures is expecting 7"):
        gcws.transform(da.ones(shape))


def test_transform_blocks__error_of_a_block_names_row_and_column(rows, gcws):
    spoilt = rows.copy()
    spoilt[6, 2] = np.nan
    features = gcws.transform(da.from_array(spoilt, chunks=(5, 7)))
    with pytest.raises(InputError, match="NaN at row 1, column 2") as caught:
        features.compute(scheduler="synchronous")
    assert (caught.value.row, caught.value.column) == (1, 2)
    assert caught.value.__notes__ == ["in row block 1 of the Dask array"]


@dataclass(eq=False, repr=False)
class HalvedFeatures(FeatureMap):
    """The rows themselves, halved on request.

    Parameters
    ----------
    halved : bool, default=False
        Whether to halve the rows.
    """

    name = "halved"
    version = 1
    layout = "dense"
    _checks: ClassVar = {"halved": lambda value, name: check_flag(value, name, yes="halves", no="copies")}

    halved: bool = False

    def _resolve(self, params, n_features, seed):  # noqa: ARG002 - any width will do
        assert seed == 0
        return Fitted(params=params)

    @property
    def n_features_out(self):
        return self.n_features_in_

    def _estimated_kernel(self):
        return EstimatedKernel(name="linear", exact=lambda X, Y: X @ (X if Y is None else Y).T)

    def _transform_rows(self, X):
        rows = X.toarray() if hasattr(X, "toarray") else X
        return (rows / 2 if self._fitted.params["halved"] else rows).astype(np.float32)


@pytest.fixture
def halved(monkeypatch):
    monkeypatch.setitem(CLASSES, "halved", f"{__name__}:HalvedFeatures")


@pytest.mark.usefixtures("halved")
def test_seedless_map__has_no_seed_in_its_state_and_spec():
    features = HalvedFeatures(halved=True)
    features._check_params()
    features.fit(np.ones((2, 3)))
    assert not hasattr(features, "seed_")
    spec = features.to_spec()
    assert spec == {"map": "halved", "version": 1, "n_features": 3, "params": {"halved": True}}
    for again in (dkfeat.from_spec(spec), pickle.loads(pickle.dumps(features)), clone(features).fit_width(3)):
        assert again.fingerprint() == features.fingerprint()
    with pytest.raises(ConfigError, match=r"missing entries \['n_features'\]"):
        dkfeat.from_spec({key: value for key, value in spec.items() if key != "n_features"})


@pytest.mark.usefixtures("halved")
def test_seedless_map__goes_the_whole_way_to_predictions(tmp_path):
    text, shards = tmp_path / "rows.svm", tmp_path / "shards"
    text.write_text("1 1:0.5 3:2\n0 2:1\n" * 8)
    assert dkfeat.plan(text, shards, HalvedFeatures(halved=True)).tasks
    dkfeat.featurize(text, shards, HalvedFeatures(halved=True))
    shown = run("inspect", shards).stdout
    assert "halved version 1: n_features=3, halved=True\n" in shown
    dkfeat.featurize(text, tmp_path / "again", HalvedFeatures(), like=shards)  # takes the parameter of the data set
    assert dkfeat.open_shards(tmp_path / "again").to_scipy()[0][0].tolist() == [0.25, 0, 1]
    run("train", shards, "--out", tmp_path / "model")
    assert run("predict", tmp_path / "model", text).stdout.split() == ["1", "0"] * 8
