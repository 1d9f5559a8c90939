"""Neighbours as a table: equal to those in memory, continued with the same bytes, extended, and what is refused."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.engine.runners.base import probe
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, InputError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.neighbors import Neighbors, search
from dkfeat.neighbors.scan import CompareTask
from tests.invariants import assert_dataset_whole, dataset_state
from tests.neighbors.rows import assert_same
from tests.programs import command, run_killed

N_ROWS, N_COLUMNS, N_QUERIES = 120, 20, 30


def make_rows(seed, n):
    """Rows in groups of near copies."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).lognormal(size=(12, N_COLUMNS))
    return (
        (centres[rng.integers(12, size=n)] * rng.lognormal(sigma=0.3, size=(n, N_COLUMNS))).round(3).astype(np.float32)
    )


def write_rows(file, X, prefix="row"):
    columns = {f"x{column}": X[:, column] for column in range(N_COLUMNS)}
    pq.write_table(pa.table({**columns, "name": [f"{prefix} {row}" for row in range(len(X))]}), file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows and queries as Parquet, and shards of the rows."""
    folder = tmp_path_factory.mktemp("neighbors")
    write_rows(folder / "rows.parquet", make_rows(1, N_ROWS))
    write_rows(folder / "queries.parquet", make_rows(2, N_QUERIES), "query")
    featurize(folder / "rows.parquet", folder / "features")
    return folder


def source_of(files, **options):
    features = tuple(f"x{c}" for c in range(N_COLUMNS))
    return dkfeat.ParquetSource(str(files), label=None, features=features, features_as="columns", **options)


def featurize(files, target):
    source = source_of(files, id="name", blocksize="4kB")
    return dkfeat.featurize(source, target, dkfeat.GCWSFeatures(64, random_state=0), progress=False)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("dkfeat.neighbors.scan.QUERIES", 7)


def test_search__tasks_of_the_driver_need_no_memory_of_workers(folder, tmp_path):
    with open_runner(ExecutionConfig(scheduler="synchronous")) as runner:
        small = replace(runner, memory_limit=1)
        found = search(folder / "features", None, 2, target=tmp_path / "graph", client=small, progress=False)
    assert_same(found, search(folder / "features", None, 2, progress=False))


@pytest.mark.usefixtures("small_batches")
def test_table_of_the_graph(folder, tmp_path):
    found = search(folder / "features", n_neighbors=3, target=tmp_path / "graph", progress=False)
    assert_same(found, search(folder / "features", n_neighbors=3, progress=False))
    table = pq.read_table(tmp_path / "graph" / "data")
    assert table["query"].to_pylist() == [query for query in range(N_ROWS) for _ in range(3)]
    assert table["rank"].to_pylist() == [1, 2, 3] * N_ROWS
    assert table["neighbor"].to_pylist() == found.rows.ravel().tolist()
    assert table["id"].to_pylist() == [f"row {query}" for query in range(N_ROWS) for _ in range(3)]
    assert table["neighbor_id"].to_pylist() == [f"row {row}" for row in found.rows.ravel()]
    with pytest.raises(SpecConflictError, match="without_self: true there, false asked"):
        search(folder / "features", folder / "features", 3, target=tmp_path / "graph", progress=False)
    assert [field.name for field in table.schema if field.nullable] == ["id", "neighbor_id"]
    assert not dkfeat.open_shards(tmp_path / "graph").verify().problems


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("queries", [None, make_rows(2, N_QUERIES)])
def test_search__all_batches_are_one_run__whose_tasks_end_in_any_order(queries, folder, tmp_path):
    runs = []

    class Shuffled:
        description, memory_limit, n_threads = "shuffled", None, 2

        def run(self, task, items, done):
            runs.append(task)
            order = np.random.default_rng(len(items)).permutation(len(items))
            for item, result in [(items[at], task(items[at], lambda: False)) for at in order]:
                done(item, result)

    given = {} if queries is not None else {"target": tmp_path / "graph"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dkfeat.neighbors.neighbor_search.open_runner", lambda _: nullcontext(Shuffled()))
        found = search(folder / "features", queries, 3, client=Shuffled(), progress=False, **given)
    (task,) = (task for task in runs if isinstance(task, CompareTask))
    assert probe(task) is not None  # workers that make other features are refused
    assert_same(found, search(folder / "features", queries, 3, progress=False))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("rerank", [None, 9])
def test_queries_from_files_give_what_their_rows_give(rerank, folder, tmp_path):
    exact = {} if rerank is None else {"rerank": rerank, "source": folder / "rows.parquet"}
    expected = search(folder / "features", make_rows(2, N_QUERIES), 4, **exact, progress=False)
    queries = source_of(folder / "queries.parquet", id="name")
    assert_same(search(folder / "features", queries, 4, **exact, progress=False), expected)
    found = search(folder / "features", queries, 4, **exact, target=tmp_path / "found", progress=False)
    assert_same(found, expected)
    assert_same(Neighbors.open(tmp_path / "found"), expected)
    if rerank is None:
        assert_same(search(folder / "features", tmp_path / "found-queries", 4, progress=False), expected)
    assert (found.n_queries, found.n_neighbors) == (expected.n_queries, expected.n_neighbors) == (N_QUERIES, 4)
    for rank in (1, 4):
        medians = np.median(expected.similarities[:, rank - 1]), np.median(expected.errors[:, rank - 1])
        assert found.medians(rank) == expected.medians(rank) == medians
    names = pq.read_table(tmp_path / "found" / "data", columns=["id", "neighbor_id"])
    assert names["id"].to_pylist()[::4] == [f"query {query}" for query in range(N_QUERIES)]
    assert names["neighbor_id"].to_pylist() == [f"row {row}" for row in found.rows.ravel()]


def test_queries_need_no_labels(tmp_path):
    X = make_rows(1, 20)
    write_rows(tmp_path / "queries.parquet", X)
    pq.write_table(
        pq.read_table(tmp_path / "queries.parquet").append_column("y", pa.array([-1, 1] * 10)),
        tmp_path / "rows.parquet",
    )
    source = source_of(tmp_path / "rows.parquet", labels=(-1, 1)).replaced(label="y")
    dkfeat.featurize(source, tmp_path / "features", dkfeat.DartFeatures(64, random_state=0), progress=False)
    found = search(tmp_path / "features", tmp_path / "queries.parquet", 1, progress=False)
    assert found.similarities.tolist() == [[1.0]] * 20
    (tmp_path / "query.svm").write_text("0.5 1:1 2:3\n")
    text = dkfeat.LibsvmSource(tmp_path / "query.svm", zero_based=False)
    assert search(tmp_path / "features", text, 1, progress=False).rows.shape == (1, 1)


@pytest.mark.usefixtures("small_batches")
def test_more_queries_extend_the_table(folder, tmp_path, capsys):
    (tmp_path / "queries").mkdir()
    for number, seed in enumerate((2, 3)):
        write_rows(tmp_path / "queries" / f"{number}.parquet", make_rows(seed, 9), f"query {number}")
        seen = []
        found = search(
            folder / "features",
            source_of(tmp_path / "queries" / "*.parquet"),
            2,
            target=tmp_path / "found",
            progress=seen.append,
        )
        assert found.n_queries == 9 * (number + 1)
        assert (seen[-1].stage, seen[-1].tasks) == ("search", seen[-1].total_tasks)
        assert seen[-1].total_tasks == 2 * dkfeat.open_shards(folder / "features").n_shards  # of the new queries
    expected = search(folder / "features", np.vstack([make_rows(seed, 9) for seed in (2, 3)]), 2, progress=False)
    assert_same(found, expected)
    search(folder / "features", tmp_path / "found-queries", 2, target=tmp_path / "found")
    assert "is complete already: 36 rows; nothing to do" in capsys.readouterr().err


def test_a_data_set_that_moved_on_is_refused(folder, tmp_path):
    (tmp_path / "rows").mkdir()
    for number in range(2):
        write_rows(tmp_path / "rows" / f"{number}.parquet", make_rows(number, 9))
        featurize(tmp_path / "rows" / "*.parquet", tmp_path / "features")
        if number == 0:
            search(tmp_path / "features", folder / "features", 2, target=tmp_path / "found", progress=False)
    (tmp_path / "rows" / "1.parquet").rename(tmp_path / "1.parquet")
    featurize(tmp_path / "rows" / "*.parquet", tmp_path / "again")  # the same shards, made at another time
    assert search(tmp_path / "again", folder / "features", 2, target=tmp_path / "found", progress=False).n_rows == 9
    with pytest.raises(SpecConflictError, match=r"among 9 rows, but .* has 18 rows now.* choose another target"):
        search(tmp_path / "features", folder / "features", 2, target=tmp_path / "found", progress=False)


def test_what_is_refused(folder, tmp_path):
    features = folder / "features"
    search(features, folder / "queries.parquet", 2, target=tmp_path / "found", progress=False)
    dkfeat.featurize(
        source_of(folder / "queries.parquet", keep=("name",)), tmp_path / "kept", like=features, progress=False
    )
    write_rows(tmp_path / "rank.parquet", make_rows(2, 3))
    columns = pq.read_table(tmp_path / "rank.parquet")
    pq.write_table(columns.rename_columns([*columns.column_names[:-1], "rank"]), tmp_path / "rank.parquet")
    rank = source_of(tmp_path / "rank.parquet", keep=("rank",))
    path = folder / "queries.parquet"
    for error, message, arguments in [
        (SpecConflictError, "n_neighbors: 2 there, 3 asked", {"queries": path, "n_neighbors": 3}),
        (SpecConflictError, "choose another target", {"n_neighbors": 2}),
        (
            SpecConflictError,
            "rerank: null there, 20 asked",
            {"queries": path, "n_neighbors": 2, "rerank": 20, "source": folder / "rows.parquet"},
        ),
        (ConfigError, "holds features, but the output .* neighbours", {"queries": path, "target": tmp_path / "kept"}),
        (ConfigError, "target=''", {"queries": path, "target": ""}),
        (ConfigError, "leave out the target", {"queries": make_rows(2, 3)}),
        (ConfigError, "column 'rank', but a table of neighbours", {"queries": rank, "target": tmp_path / "rank"}),
        (
            ConfigError,
            "but these queries are shards; give the files from which they were made",
            {"queries": tmp_path / "kept", "rerank": 20, "source": folder / "rows.parquet", "target": tmp_path / "new"},
        ),
        (ConfigError, "holds neighbors, but near rows", {"queries": tmp_path / "found"}),
        (SourceNotFoundError, "nowhere.svm", {"queries": tmp_path / "nowhere.svm"}),
    ]:
        with pytest.raises(error, match=message):
            search(features, **{"target": tmp_path / "found", "n_neighbors": 2, "progress": False, **arguments})
    assert not (tmp_path / "kept-queries").exists()
    with pytest.raises(ConfigError, match="holds neighbors, but near rows are found by equal codes"):
        search(tmp_path / "found", progress=False)
    with pytest.raises(ShardError, match="there is no such folder"):
        search(tmp_path / "nowhere", progress=False)
    with pytest.raises(ConfigError, match="holds features, not neighbours"):
        Neighbors.open(features)
    with pytest.raises(ConfigError, match="rank=3"):
        Neighbors.open(tmp_path / "found").medians(3)
    with pytest.raises(InputError, match="NaN"):
        search(features, np.full((1, N_COLUMNS), np.nan), progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", ["after_plan:1", "mid_write:3", "after_publish:4", "before_manifest:1"])
def test_a_killed_search_is_continued_with_the_same_bytes(kill_at, folder, tmp_path):
    features, target, whole = folder / "features", tmp_path / "graph", tmp_path / "whole"
    run_killed(kill_at, command("neighbors", features, "--n-neighbors", 3, "--out", target))
    assert_dataset_whole(target, finished=False)
    with pytest.raises(ShardError, match=r"no batch was committed|spec\.json is missing"):
        Neighbors.open(target)
    seen, here = [], ExecutionConfig(scheduler="synchronous")
    search(features, n_neighbors=3, target=target, client=here, progress=seen.append)
    assert (seen[-1].stage, seen[-1].source_bytes) == ("search, exact", seen[-1].total_bytes)
    search(
        features, n_neighbors=3, target=whole, client=ExecutionConfig(n_workers=3, scheduler="threads"), progress=False
    )
    assert dataset_state(target) == dataset_state(whole)
    assert_dataset_whole(target, committed=True)
