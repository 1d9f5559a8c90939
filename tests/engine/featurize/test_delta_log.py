"""The Delta Lake log of a target: delta-rs, polars and DuckDB read what is committed, and no more."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import dkfeat
from dkfeat.errors import CommitError, ParseError
from tests import programs
from tests.engine.helpers import featurized, gcws

MAPS = {"codes": gcws(), "sparse": gcws(), "dense": dkfeat.FourierFeatures(5, random_state=0)}
DAY = "".join(f"{1 + i % 2} {1 + i % 2}:{1 + i % 7} {3 + i % 5}:0.5\n" for i in range(40)) + "2 \n"


@pytest.fixture
def days(tmp_path):
    """A function that adds a file of rows, and returns the source of all."""

    def add(text=DAY):
        folder = tmp_path / "days"
        folder.mkdir(exist_ok=True)
        (folder / f"day-{len(list(folder.iterdir()))}.svm").write_text(text)
        return dkfeat.LibsvmSource(str(folder / "*.svm"), n_features=9, zero_based=False, blocksize=200)

    return add


def rows_of(columns):
    return Counter(repr(row) for row in zip(*(columns[name] for name in sorted(columns)), strict=True))


def read(target, version=None):
    """Version and rows of the table, and the committed files that it lists."""
    table = DeltaTable(str(target), version=version)
    assert table.version() == 0 or sorted(table.file_uris()) == dkfeat.open_shards(target).paths
    return table.version(), table.to_pyarrow_table().num_rows


@pytest.mark.parametrize("layout", MAPS)
def test_table__three_readers_have_the_rows_of_each_commit(days, tmp_path, layout):
    target = tmp_path / "features"
    featurized(days(), target, map=MAPS[layout], layout=layout, delta=True)
    assert read(target) == (1, 41)
    DeltaTable(str(target)).create_checkpoint()
    featurized(days(), target, map=MAPS[layout])  # without the option
    featurized(days(""), target, map=MAPS[layout])  # no rows, no shard with rows
    assert read(target) == (3, 82)
    assert {path.suffix for path in (target / "data").iterdir()} == {".parquet"}
    expected = rows_of(pq.read_table(target / "data").to_pydict())
    table = DeltaTable(str(target))
    assert rows_of(table.to_pyarrow_table().to_pydict()) == expected
    assert rows_of(pl.read_delta(str(target)).to_dict(as_series=False)) == expected
    with duckdb.connect() as database:
        database.register("features", table.to_pyarrow_dataset())
        assert rows_of(database.sql("from features").to_arrow_table().to_pydict()) == expected
        counts = database.sql("select label, count(*) from features group by label order by label").fetchall()
    assert counts == [(1, 40), (2, 42)]


def test_table__kept_columns_have_their_types_and_tags_the_order(days, tmp_path):
    rows = {
        "label": [0, 1],
        "a": [0.5, 2.0],
        "text": ["x", None],
        "flag": [True, False],
        "day": pl.Series(["2026-01-01", "2026-01-02"]).str.to_date(),
        "at": pl.Series(["2026-01-01 00:00:01", "2026-01-02 00:00:02"]).str.to_datetime(time_unit="us"),
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    source = dkfeat.ParquetSource(tmp_path / "rows.parquet", features=["a"], keep=["text", "flag", "day", "at"])
    featurized(source, tmp_path / "features", delta=True)
    found = pl.read_delta(str(tmp_path / "features")).drop("codes")
    assert found.rows() == pl.DataFrame(rows).drop("a").select(found.columns).rows()
    featurized(days(), tmp_path / "days-features", delta=True)
    actions = [json.loads(line) for line in log(tmp_path / "days-features", 1).read_text().splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    shards = dkfeat.open_shards(tmp_path / "days-features")
    assert [int(add["tags"]["first_row"]) for add in added] == shards.first_rows[:-1].tolist()
    assert [add["tags"]["sha256"] for add in added] == shards.manifest.shards.sha256


def log(target, version):
    return target / "_delta_log" / f"{version:020d}.json"


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", ["before_manifest:1", "after_manifest:1"])
def test_killed_around_the_commit__the_next_run_catches_up(days, tmp_path, kill_at):
    (name,), target = days().urlpath, tmp_path / "features"
    words = ("featurize", name, "--n-components", 16, "--out", target)
    programs.run_killed(kill_at, programs.command(*words, "--delta"))
    assert read(target) == (0, 0)
    ended = programs.run(programs.command(*words))  # has nothing to do, if the batch is committed
    assert ended.status == 0, ended.err
    assert read(target) == (1, 41)


def test_data_set_that_exists__gets_a_log_and_batches_that_are_aborted_are_not_in_it(days, tmp_path):
    target = tmp_path / "features"
    featurized(days(), target)
    assert not (target / "_delta_log").exists()
    featurized(days(DAY), target)
    source = dkfeat.LibsvmSource(str(tmp_path / "days" / "*.svm"), n_features=9, zero_based=False, blocksize=200)
    featurized(source, target, delta=True)  # nothing to do
    assert read(target) == (1, 82)
    with pytest.raises(ParseError):
        featurized(days(DAY * 3 + "bad\n"), target, scheduler="synchronous")
    assert len(list((target / "data").iterdir())) > len(dkfeat.open_shards(target).paths)
    assert read(target) == (1, 82)
    dkfeat.abort(target)
    assert read(target) == (1, 82)


def test_another_writer__is_refused(days, tmp_path):
    target = tmp_path / "features"
    featurized(days(), target, delta=True)
    with pytest.raises(DeltaError, match="dkfeat"):  # a writer must know the table's features
        DeltaTable(str(target)).optimize.compact()
    assert read(target) == (1, 41)
    text = log(target, 1).read_text()
    for changed in (text.replace('"add"', '"adx"', 1), text.replace('"shards":', '"shards":1', 1)):
        log(target, 1).write_text(changed)
        assert "_delta_log is damaged" in dkfeat.open_shards(target).verify().problems[0]


def without_a_row(text):
    first, *lines = text.splitlines(keepends=True)
    return first + "".join(lines[:-1])


FOREIGN = '{"commitInfo":{"timestamp":0,"operation":"OPTIMIZE"}}\n'
DAMAGES = [(1, without_a_row), (2, lambda text: text + text[:50]), (0, lambda text: text[:300]), (2, lambda _: FOREIGN)]


@pytest.mark.parametrize(("version", "damage"), [*DAMAGES, (0, None), (2, None)])
def test_damaged_log__is_found_by_the_next_run_and_by_verify(days, tmp_path, version, damage):
    source, target = days(), tmp_path / "features"
    featurized(source, target, delta=True)
    source = days()
    featurized(source, target)
    assert not dkfeat.open_shards(target).verify().problems
    file = log(target, version)
    text = file.read_text()
    file.unlink()
    if damage is not None:
        file.write_text(damage(text))
    elif version == 2:  # as if a kill had come before it
        featurized(source, target)
        assert read(target) == (2, 82)
        return
    with pytest.raises(CommitError, match="_delta_log is damaged"):
        featurized(source, target)
    (problem,) = dkfeat.open_shards(target).verify().problems
    assert "Remove the folder _delta_log" in problem
    shutil.rmtree(target / "_delta_log")
    featurized(source, target, delta=True)
    assert read(target) == (1, 82)


def test_object_store__has_the_same_log(days):
    target = "memory://delta/features"
    dkfeat.featurize(days(), target, gcws(), progress=False, delta=True)
    shards = dkfeat.open_shards(target).shards
    assert [*shards.storage.list("_delta_log")] == [f"{version:020d}.json" for version in (0, 1)]
    actions = map(json.loads, shards.storage.read(f"_delta_log/{1:020d}.json").splitlines())
    paths = [action["add"]["path"] for action in actions if "add" in action]
    assert paths == [f"data/{entry.name}" for entry in shards.manifest.shards]
