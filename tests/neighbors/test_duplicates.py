from contextlib import contextmanager

import dask
import numpy as np
import pytest
import scipy.sparse as sp

import dkfeat
from dkfeat.errors import ConfigError, ShardError
from dkfeat.neighbors import duplicates
from dkfeat.neighbors.deduplication import pairs, runs, stages, work_files
from dkfeat.neighbors.deduplication.runs import BandRuns, Run
from dkfeat.neighbors.deduplication.work_files import WorkFolder
from dkfeat.theory.bands import Bands, sharing_probability
from tests.conftest import first_quick
from tests.neighbors.rows import FEATURES, assert_same, featurized, running, write

N_ROWS, N_COLUMNS = 600, 60


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Rows in groups of near copies of different strengths, with copies far apart and two rows of zeros."""
    rng = np.random.default_rng(0)
    centres = rng.lognormal(size=(60, N_COLUMNS)) * (rng.random((60, N_COLUMNS)) < 0.4)
    strength = np.repeat(np.tile([0.02, 0.05, 0.1, 0.2, 0.4, 0.8], 10), 10)[:, None]
    X = np.repeat(centres, 10, axis=0) * np.exp(strength * rng.standard_normal((N_ROWS, N_COLUMNS)))
    X = X[rng.permutation(N_ROWS)]
    X[[590, 300, 595]], X[450] = X[7], X[301]
    X[[20, 500]] = 0
    return write(sp.csr_matrix(X), tmp_path_factory.mktemp("rows") / "rows.svm")


@pytest.fixture(scope="module", params=sorted(FEATURES))
def data(request, text, tmp_path_factory):
    return featurized(text, tmp_path_factory.mktemp("shards") / "shards", FEATURES[request.param], blocksize="9kB")


def expected_pairs(data, found, threshold):
    """Pairs by comparing all codes with all."""
    codes, bits = data.codes(), data.map.code_bits
    one_hot = data.map.decode(codes)
    values = one_hot.indices.reshape(-1, data.map.n_components) % (1 << bits)
    filled = np.flatnonzero(~codes.empty)
    equal = values[:, None] == values[None]
    n_bands, n_codes = found.bands
    shared = equal[:, :, : n_bands * n_codes].reshape(len(filled), len(filled), n_bands, n_codes).all(axis=3)
    counts = equal.sum(axis=2)
    first = filled[np.argmax(counts == data.map.n_components, axis=1)]  # the lowest row with the same codes
    is_copy = first != filled
    near = np.triu(shared.any(axis=2) & (data.map._similarity_of_counts(counts) >= threshold), 1)
    near[is_copy], near[:, is_copy] = False, False
    left, right = (filled[side] for side in np.nonzero(near))
    pairs = np.concatenate([np.column_stack([left, right]), np.column_stack([first, filled])[is_copy]])
    return pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]


@pytest.mark.parametrize("threshold", first_quick([0.6, 0.8, 1.0]))
def test_duplicates__pairs_that_share_a_band(data, threshold, monkeypatch):
    monkeypatch.setattr(pairs, "MAX_COMPARISONS", N_ROWS)
    assert data.n_shards > 5
    found = duplicates(data, threshold, progress=False)
    assert np.array_equal(found.pairs, expected_pairs(data, found, threshold))
    left, right = found.pairs.T
    estimates = data.map.estimate_kernel(data.codes())[left, right]
    np.testing.assert_allclose(found.similarities, estimates, rtol=1e-13)
    assert found.n_candidates == found.n_compared
    assert {(7, 300), (7, 590), (7, 595), (301, 450)} <= set(map(tuple, found.pairs.tolist()))


def test_duplicates__groups_and_kept_rows(data):
    found = duplicates(data, 0.7, progress=False)
    lowest = np.arange(N_ROWS)
    for _ in range(N_ROWS):  # by passing the lowest row along the pairs, until nothing changes
        before = lowest.copy()
        for left, right in found.pairs:
            lowest[[left, right]] = min(lowest[left], lowest[right])
        if np.array_equal(before, lowest):
            break
    assert np.array_equal(found.groups, lowest)
    assert np.array_equal(np.flatnonzero(found.kept), np.unique(lowest))
    assert found.kept[[7, 20, 500]].all()
    assert not found.kept[[300, 590, 595, 450]].any()


def test_duplicates__recall_is_that_of_the_s_curve(tmp_path):
    # pairs of rows of ones on columns of their own, so that all pairs are independent
    size, n_each = 40, 400
    similarities = np.tile([0.6, 0.7, 0.8, 0.9, 0.97], n_each)
    n = len(similarities)
    left = np.arange(n)[:, None] * 2 * size + np.arange(size)
    common = np.round(2 * size * similarities / (1 + similarities)).astype(int)
    right = left + np.where(np.arange(size) < common[:, None], 0, size)
    columns = np.concatenate([left, right])
    shape = (2 * n, 2 * n * size)
    X = sp.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(2 * n + 1) * size), shape)
    features = dkfeat.DartFeatures(n_components=128, bits=8, random_state=5)
    data = featurized(write(X, tmp_path / "rows.svm"), tmp_path / "shards", features, n_features=shape[1])
    found = duplicates(data, 0.7, progress=False)

    assert np.array_equal(found.pairs[:, 1] - found.pairs[:, 0], np.full(len(found.pairs), n))
    exact = common / (2 * size - common)
    rng = np.random.default_rng(0)
    assert found.expected_recall == pytest.approx(sharing_probability(0.7, *found.bands, chance=2**-8))
    for similarity in np.unique(exact):
        of = np.flatnonzero(exact == similarity)
        equal = rng.random((20_000, 128)) < similarity + (1 - similarity) / 256
        bands = equal[:, : found.bands.n_bands * found.bands.n_codes].reshape(20_000, *found.bands)
        is_found = bands.all(axis=2).any(axis=1) & (data.map._similarity_of_counts(equal.sum(axis=1)) >= 0.7)
        expected = is_found.mean()
        recall = np.isin(of, found.pairs[:, 0]).mean()
        # 4.5 standard errors of both, 7e-6 each
        assert abs(recall - expected) < 4.5 * np.sqrt(expected * (1 - expected) * (1 / n_each + 1 / 20_000)) + 0.005
    assert found.expected_recall >= 0.95


@pytest.mark.slow
def test_duplicates__many_equal_rows_take_one_comparison_each(tmp_path):
    n = 200_000
    (tmp_path / "rows.svm").write_text("1 0:1 1:2\n1 0:4 2:1\n" + "1 0:1 1:2\n" * n)
    data = featurized(tmp_path / "rows.svm", tmp_path / "shards", dkfeat.DartFeatures(16, random_state=0), 3)
    found = duplicates(data, progress=False)
    assert np.array_equal(found.pairs, np.column_stack([np.zeros(n, int), np.arange(2, n + 2)]))
    assert (found.similarities == 1).all()
    assert np.flatnonzero(found.kept).tolist() == [0, 1]
    assert found.n_compared == found.n_candidates == 0


def test_duplicates__many_near_copies_are_compared_with_their_neighbours(tmp_path):
    rng = np.random.default_rng(0)
    n = 3000
    X = sp.csr_matrix(np.exp(0.02 * rng.standard_normal((n, 30))))
    features = dkfeat.DartFeatures(128, random_state=0)
    data = featurized(write(X, tmp_path / "rows.svm"), tmp_path / "shards", features, 30)
    found = duplicates(data, progress=False)
    assert found.n_compared <= n * found.bands.n_bands * pairs.MAX_COMPARISONS < found.n_candidates
    assert not found.groups.any()  # all are one group


@pytest.mark.parametrize("where", ["synchronous", "distributed"])
def test_duplicates__same_result_wherever_tasks_run_and_however_rows_are_cut(where, text, tmp_path, monkeypatch):
    features = FEATURES["dart"]
    expected = duplicates(featurized(text, tmp_path / "one", features), progress=False)
    data = featurized(text, tmp_path / "shards", features, blocksize="20kB")
    monkeypatch.setattr(runs, "PARTITION_ROWS", 100)
    monkeypatch.setattr(stages, "RUN_ROWS", 1)
    monkeypatch.setattr(stages, "MOST_RUNS", 3)
    for module in (runs, stages):
        monkeypatch.setattr(module, "MOST_OPEN", 5)
    monkeypatch.setattr(stages, "_TASK_KEYS", 0)
    monkeypatch.setattr(runs, "MERGED", 2)
    monkeypatch.setattr(runs, "_ROW_BITS", 7)  # so that hashes make room for the rows of merged runs
    monkeypatch.setattr(runs, "_PAIRS", 5)
    monkeypatch.setattr(pairs, "_BATCH", 5)
    monkeypatch.setattr(work_files, "_CHUNK", 50)
    opened, counts = WorkFolder.opened, {"run": 1, "merged": 1}

    @contextmanager
    def counted(folder):
        with opened(folder) as files:
            yield files
        for kind in counts:
            counts[kind] = max(counts[kind], sum(name.startswith(f"{kind}-") for name in files.files))

    monkeypatch.setattr(WorkFolder, "opened", counted)
    with running(where) as client:
        found = duplicates(data, client=client, progress=False)
    assert data.n_shards > 5
    assert 2 <= min(counts.values()) <= max(counts.values()) <= 5
    assert len(found.pairs) > 100
    assert_same(found, expected, ("pairs", "similarities", "groups", "n_candidates", "n_compared"))


@pytest.mark.parametrize("data", ["dart"], indirect=True)
def test_duplicates__rows_whose_hashes_collide(data, monkeypatch):
    expected = duplicates(data, progress=False)
    band_keys, rows_and_two_bits = runs.band_keys, np.uint64(3 << 62 | 1023)
    monkeypatch.setattr(pairs, "MAX_COMPARISONS", N_ROWS)
    monkeypatch.setattr(runs, "band_keys", lambda *given: band_keys(*given) & rows_and_two_bits)
    found = duplicates(data, progress=False)
    assert found.n_compared > 10 * expected.n_compared
    copies, equal = (pairs.pairs[pairs.similarities == 1] for pairs in (found, expected))
    assert np.array_equal(copies, equal)
    assert set(map(tuple, expected.pairs)) <= set(map(tuple, found.pairs))


@pytest.mark.parametrize("data", ["dart"], indirect=True)
def test_duplicates__temporary_folder_is_deleted(data, text, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "RUN_ROWS", 1)
    (tmp_path / "temporary").mkdir()
    damaged = featurized(text, tmp_path / "shards", FEATURES["dart"], blocksize="20kB")
    path = sorted((tmp_path / "shards").rglob("*.parquet"))[-1]
    path.write_bytes(path.read_bytes()[:-1])
    seen = []

    def look(_):
        seen.extend(path.name for path in (tmp_path / "temporary").iterdir())

    with dask.config.set({"temporary-directory": str(tmp_path / "temporary")}):
        duplicates(data, progress=look)
        with pytest.raises(ShardError):
            duplicates(damaged, progress=look)
    assert len(set(seen)) == 2
    assert list((tmp_path / "temporary").iterdir()) == []


def test_duplicates__zeros_or_one_row(tmp_path):
    for name, content in [("zeros", "1\n1\n1\n"), ("one", "1 0:3\n")]:
        (tmp_path / name).write_text(content)
        data = featurized(tmp_path / name, tmp_path / f"{name}-shards", FEATURES["dart"])
        found = duplicates(data, progress=False)
        assert (found.pairs.shape, found.similarities.shape) == ((0, 2), (0,))
        assert found.kept.all()


@pytest.mark.parametrize("data", ["dart"], indirect=True)
def test_tasks__worker_that_does_not_see_the_folder(data, tmp_path):
    files = BandRuns(
        WorkFolder.of(tmp_path / "work"), N_ROWS, 0, data.map.n_components, data.map.code_bits, Bands(2, 4)
    )
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="choose a folder as target, or without one set temporary-directory"):
        files.write_run(data, Run(0, 5), lambda: False)


@pytest.mark.parametrize("data", ["dart"], indirect=True)
def test_duplicates__bad_arguments(data, text, tmp_path, monkeypatch):
    for threshold in (0, 1.01, "high"):
        with pytest.raises(ConfigError, match="threshold="):
            duplicates(data, threshold, progress=False)
    fourier = featurized(text, tmp_path / "fourier", dkfeat.FourierFeatures(16, random_state=0))
    with pytest.raises(ConfigError, match="but near rows are found by equal codes"):
        duplicates(fourier, progress=False)
    narrow = featurized(text, tmp_path / "narrow", dkfeat.DartFeatures(1, random_state=0))
    with pytest.raises(ConfigError, match="only 40% of the pairs at the threshold share a band"):
        duplicates(narrow, 0.4, progress=False)
    monkeypatch.setattr("dkfeat.neighbors.deduplication.search.MAX_ROWS", N_ROWS - 1)
    with pytest.raises(ConfigError, match="has 600 rows, but at most 599 are compared"):
        duplicates(data, progress=False)
