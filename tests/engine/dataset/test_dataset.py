from __future__ import annotations

import pickle
import shutil
import threading
from collections import Counter

import dask
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from scipy import sparse

import dkfeat
from dkfeat.blocks import PackedCodes
from dkfeat.cli import cli
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.errors import ConfigError, ShardError
from tests.engine.helpers import featurized, gcws


@pytest.fixture(scope="module")
def target(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset") / "features"
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000), folder)
    return folder


@pytest.fixture(scope="module")
def expected(tiny_rows):
    X, y = tiny_rows
    return gcws().fit(X).transform(X), y


def stacked(batches):
    parts = list(batches)
    return sparse.vstack([X for X, _ in parts], format="csr"), np.concatenate([y for _, y in parts])


def fingerprints(Z, y):
    """Number of occurrences of each (row, label)."""
    rows = (tuple(Z.indices[a:b]) for a, b in zip(Z.indptr[:-1], Z.indptr[1:], strict=True))
    return Counter(zip(rows, y.tolist(), strict=True))


def test_open_shards__tells_what_is_there(target, tiny_rows):
    data = dkfeat.open_shards(target)
    assert data.shape == (400, 24 * 256)
    assert data.n_rows == data.manifest.rows == 400
    assert data.n_shards == len(list((target / "data").iterdir()))
    assert data.classes.tolist() == [-1, 1]
    assert data.classes.dtype == np.int64
    assert data.map.fingerprint() == gcws().fit(tiny_rows[0]).fingerprint()
    assert "400 rows" in repr(data)
    assert data.verify().problems == []


def test_paths__are_the_committed_files_in_the_order_of_the_rows(target, expected, tmp_path):
    folder = shutil.copytree(target, tmp_path / "features")
    data = dkfeat.open_shards(folder)
    shutil.copy(data.paths[0], folder / "data" / f"part-000099-0000-{'0' * 12}.parquet")  # of a batch in progress
    frame = pl.scan_parquet(dkfeat.open_shards(folder).paths).collect()
    assert frame["label"].to_list() == expected[1].tolist()
    assert pl.read_parquet(folder / "data" / "*.parquet").height > 400
    done = CliRunner().invoke(cli, ["files", str(folder)])
    assert done.stdout.splitlines() == data.paths
    assert "is not a data set" in CliRunner().invoke(cli, ["files", str(tmp_path)]).output


def test_to_scipy__is_the_transform_of_the_source(target, expected):
    Z, y = dkfeat.open_shards(target).to_scipy()
    assert isinstance(Z, sparse.csr_matrix)
    assert Z.indices.dtype == Z.indptr.dtype == np.int32
    assert Z.dtype == np.float32
    assert (expected[0] != Z).nnz == 0
    np.testing.assert_array_equal(y, expected[1])


@pytest.mark.parametrize("rows", [1, 7, 100, 400, 1000])
def test_batches__in_order_are_the_source(rows, target, expected):
    batches = list(dkfeat.open_shards(target).batches(rows, shuffle=False))
    assert [X.shape[0] for X, _ in batches[:-1]] == [rows] * (len(batches) - 1)
    assert all(isinstance(X, sparse.csr_matrix) and X.indices.dtype == np.int32 for X, _ in batches)
    Z, y = stacked(batches)
    assert (expected[0] != Z).nnz == 0
    np.testing.assert_array_equal(y, expected[1])


@pytest.mark.parametrize(("rows", "buffer_rows"), [(1, 1), (7, 20), (64, 150), (50, None), (1000, 10_000)])
def test_batches__shuffled_hold_every_row_once(rows, buffer_rows, target, expected):
    batches = list(dkfeat.open_shards(target).batches(rows, buffer_rows=buffer_rows))
    assert [X.shape[0] for X, _ in batches[:-1]] == [rows] * (len(batches) - 1)
    Z, y = stacked(batches)
    assert fingerprints(Z, y) == fingerprints(*expected)
    assert (expected[0] != Z).nnz > 0


def test_pickle__has_no_records__which_a_process_reads_once(target, monkeypatch):
    from dkfeat.store.shards import reader

    data, read, start = dkfeat.open_shards(target), [], threading.Barrier(4)
    whole = reader.read_numbered
    monkeypatch.setattr(reader, "read_numbered", lambda *args: read.append(args) or whole(*args))
    monkeypatch.setattr(reader, "_OPENED", type(reader._OPENED)(1))
    sent = pickle.dumps((data, ShardSource.of(data.shards)))
    assert data.manifest.shards[0].name.encode() not in sent
    sent = pickle.dumps(pickle.loads(sent))  # of a copy that was not used
    assert not read
    found = []

    def use():
        got, source = pickle.loads(sent)
        start.wait()
        found.append((got.n_rows, source.splits(), got.codes().codes.tobytes()))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = data.n_rows, ShardSource.of(data.shards).splits(), data.codes().codes.tobytes()
    assert found == [expected] * 4
    assert len(read) == 1


def test_batches__are_a_function_of_the_seed(target):
    data = dkfeat.open_shards(target)
    runs = [stacked(data.batches(30, random_state=seed, buffer_rows=60)) for seed in (5, 5, 6)]
    assert (runs[0][0] != runs[1][0]).nnz == 0
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert (runs[0][0] != runs[2][0]).nnz > 0


@pytest.mark.slow
def test_batches__full_buffer_is_a_uniform_shuffle(target, expected):
    """First rows of 120 epochs: 12 expected in each tenth of the source; 40 or more with chance below 1e-9."""
    data = dkfeat.open_shards(target)
    place = {}
    for number, row in enumerate(expected[0]):
        place.setdefault(tuple(row.indices), []).append(number)
    tenths = Counter()
    for seed in range(120):
        X, _ = next(iter(data.batches(1, random_state=seed, buffer_rows=1000)))
        tenths[place[tuple(X.indices)][0] // 40] += 1
    assert max(tenths.values()) < 40
    assert len(tenths) == 10


def test_batches__undecoded_are_codes(target, tiny_rows):
    X, _ = tiny_rows
    parts = [codes for codes, _ in dkfeat.open_shards(target).batches(90, shuffle=False, decode=False)]
    assert all(isinstance(part, PackedCodes) for part in parts)
    whole = gcws().fit(X).encode(X)
    np.testing.assert_array_equal(np.concatenate([part.codes for part in parts]), whole.codes)
    np.testing.assert_array_equal(np.concatenate([part.empty for part in parts]), whole.empty)


def test_batches__left_early_stop_their_thread(target):
    before = set(threading.enumerate())
    batches = dkfeat.open_shards(target).batches(10)
    next(batches)
    batches.close()
    assert [each for each in set(threading.enumerate()) - before if each.name.startswith("dkfeat")] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": 0}, "rows=0"),
        ({"rows": 2.5}, r"rows=2\.5"),
        ({"rows": 5, "buffer_rows": 0}, "buffer_rows=0"),
        ({"rows": 5, "random_state": -1}, "random_state=-1"),
        ({"rows": 5, "columns": ["query_id"]}, "query ids"),
    ],
)
def test_batches__refuse(options, words, target):
    with pytest.raises(ConfigError, match=words):
        dkfeat.open_shards(target).batches(**options)


@pytest.mark.parametrize("chunk_rows", [1, 100, 130, 10_000])
def test_to_dask__joins_small_shards(chunk_rows, target, expected):
    data = dkfeat.open_shards(target)
    shards = [entry.rows for entry in data.manifest.shards]
    assert len(shards) > 4
    assert data.to_dask()[0].chunks[0] == tuple(shards)
    X, y = data.to_dask(chunk_rows=chunk_rows)
    assert X.shape == data.shape
    assert X.chunks[0] == y.chunks[0]
    assert isinstance(X._meta, sparse.csr_matrix)
    assert all(rows <= chunk_rows or rows in shards for rows in X.chunks[0])
    assert set(np.cumsum(X.chunks[0])) <= set(np.cumsum(shards))
    # no two neighbouring chunks fit into one
    assert all(
        rows + shards[np.cumsum(shards).tolist().index(stop) + 1] > chunk_rows
        for rows, stop in list(zip(X.chunks[0], np.cumsum(X.chunks[0]), strict=True))[:-1]
    )
    Z, labels = dask.compute(X, y, scheduler="synchronous")
    assert isinstance(Z, sparse.csr_matrix)
    assert (expected[0] != Z).nnz == 0
    np.testing.assert_array_equal(labels, expected[1])


def test_to_dask__graph_is_small_and_its_keys_tell_contents(target):
    data = dkfeat.open_shards(target)
    X, _ = data.to_dask()
    assert len(dict(X.__dask_graph__())) == 2 * data.n_shards + 1
    names = {X.name, data.to_dask()[0].name, data.to_dask(chunk_rows=100)[0].name, data.to_dask(chunk_rows=90)[0].name}
    assert len(names) == 3


@pytest.mark.parametrize("chunk_rows", [0, "all"])
def test_to_dask__refuses_chunk_rows(chunk_rows, target):
    with pytest.raises(ConfigError, match="chunk_rows="):
        dkfeat.open_shards(target).to_dask(chunk_rows=chunk_rows)


def test_to_dask__tasks_neither_carry_nor_read_the_manifest(target, expected, tmp_path):
    from distributed.protocol import dumps

    shutil.copytree(target, tmp_path / "features")  # not open in this process, as in a worker
    X, _ = dkfeat.open_shards(tmp_path / "features").to_dask()
    assert all(sum(map(len, dumps(task))) < 20_000 for task in dict(X.__dask_graph__()).values())
    lazy = pickle.dumps(X)
    shutil.rmtree(tmp_path / "features" / "_dkfeat")
    assert (expected[0] != pickle.loads(lazy).compute(scheduler="synchronous")).nnz == 0


def test_query_ids__come_with_the_rows(tmp_path):
    (tmp_path / "rows.svm").write_text("2 qid:7 1:1\n0 qid:7 2:1\n1 qid:9 3:1\n")
    featurized(dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), query_id=True), tmp_path / "features")
    ranked = dkfeat.open_shards(tmp_path / "features")
    _, y, qid = ranked.to_scipy(query_id=True)
    assert (y.tolist(), qid.tolist()) == ([2, 0, 1], [7, 7, 9])
    batches = list(ranked.batches(2, columns=["query_id"]))
    labels, query_ids = (np.concatenate(part).tolist() for part in list(zip(*batches, strict=True))[1:])
    assert sorted(zip(labels, query_ids, strict=True)) == [(0, 7), (1, 9), (2, 7)]


def test_multilabel__is_an_indicator_matrix(tmp_path):
    (tmp_path / "rows.svm").write_text("3,1 1:1\n 2:1\n3 3:1\n1,8 1:2\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), multilabel=True, blocksize=8)
    featurized(source, tmp_path / "features")
    tagged = dkfeat.open_shards(tmp_path / "features")
    truth = [[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert tagged.n_shards > 1
    assert tagged.classes.tolist() == [1, 3, 8]
    _, y = tagged.to_scipy()
    assert y.dtype == np.uint8
    assert y.toarray().tolist() == truth
    assert [row.tolist() for row in tagged.labels()] == [[3, 1], [], [3], [1, 8]]
    _, lazy = tagged.to_dask()
    assert lazy.shape == (4, 3)
    assert lazy.compute(scheduler="synchronous").toarray().tolist() == truth
    shuffled = sparse.vstack([y for _, y in tagged.batches(3)]).toarray().tolist()
    assert sorted(shuffled) == sorted(truth)


def test_open_shards__bad_verify_is_refused(target):
    with pytest.raises(ConfigError, match="verify='md5'"):
        dkfeat.open_shards(target, verify="md5")


def test_open_shards__nothing_there(tmp_path):
    with pytest.raises(ShardError, match="not a data set"):
        dkfeat.open_shards(tmp_path)


def test_open_shards__of_what_is_no_path():
    with pytest.raises(ConfigError, match=r"target=7, but it must be a path"):
        dkfeat.open_shards(7)


def test_codes__of_another_layout_are_refused(tiny_folder, tmp_path):
    featurized(str(tiny_folder / "a.svm"), tmp_path / "features", layout="sparse")
    data = dkfeat.open_shards(tmp_path / "features")
    with pytest.raises(ConfigError, match="'sparse', not codes"):
        data.codes()
    assert sum(X.shape[0] for X, _ in data.batches(60)) == 250
