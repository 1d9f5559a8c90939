"""Copies of data sets without duplicates: rows, models on them, the same bytes after an interruption, refusals."""

import json

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.tasks import job
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.neighbors import drop_duplicates, duplicates
from tests.cli.test_commands import run
from tests.invariants import assert_dataset_whole, dataset_state

# copies: a whole file, a row without features, and lists of labels
LINES = ["1,2 0:1 3:2\n", "0 1:5\n", "2 2:4 4:1\n", "1\n", "0 0:3\n", "1 5:2\n", "0\n"]
FILES = {"a": LINES, "b": ["2 1:5\n", "0 5:2\n"], "c": ["0 1:5\n", "0,1 6:1\n", "1 0:3\n"]}
KEPT = [True] * 7 + [False, False] + [False, True, False]
FEATURES = {
    "codes": dkfeat.GCWSFeatures(64, random_state=0),
    "sparse": dkfeat.GCWSFeatures(16, random_state=0),
    "dense": dkfeat.NystroemFeatures(4, random_state=0),
}


def featurized(folder, layout="codes", names="abc", *, multilabel=True, out="features"):
    """Shards of one batch a file."""
    rows = folder / "rows"
    rows.mkdir(exist_ok=True)
    source = dkfeat.LibsvmSource(
        str(rows / "*.svm"), n_features=8, zero_based=True, multilabel=multilabel, labels=(0, 1, 2, 3)
    )
    for name in names:
        lines = FILES[name] if multilabel else [line.replace(",2", "").replace(",1", "") for line in FILES[name]]
        path = rows / f"{name}.svm"
        if not path.exists():
            path.write_text("".join(lines))
        dkfeat.featurize(source, folder / out, FEATURES[layout], layout=layout, progress=False)
    return dkfeat.open_shards(folder / out)


def drop(*arguments, **options):
    return drop_duplicates(*arguments, progress=False, **options)


@pytest.mark.parametrize("layout", FEATURES)
def test_rows__that_are_kept_have_all_their_columns(tmp_path, layout):
    data = featurized(tmp_path, layout)
    manifest = drop(data, np.array(KEPT), tmp_path / "distinct")
    assert_dataset_whole(tmp_path / "distinct", committed=True)
    whole, left = (pq.read_table(tmp_path / name / "data") for name in ("features", "distinct"))
    assert left.equals(whole.filter(pa.array(KEPT)))
    assert [entry.rows for entry in manifest.shards] == [7, 0, 1]
    assert manifest.labels == (0, 1, 2, 3)
    distinct = dkfeat.open_shards(tmp_path / "distinct")
    assert distinct.map.fingerprint() == data.map.fingerprint()
    X, y = distinct.to_scipy()
    assert X.shape[0] == y.shape[0] == sum(KEPT)
    n_empty = sum(not (X[row] != 0).sum() for row in range(X.shape[0]))
    assert manifest.n_empty_rows == n_empty >= 2


@pytest.mark.slow
def test_model__reads_rows_as_one_of_the_whole_data_set(tmp_path):
    data = featurized(tmp_path, multilabel=False)
    drop(data, np.array(KEPT), tmp_path / "distinct")
    whole, distinct = (dkfeat.train(tmp_path / name, test=data, progress=False) for name in ("features", "distinct"))
    assert whole.input_spec == distinct.input_spec
    predicted = []
    for number, rows in enumerate((str(tmp_path / "rows" / "a.svm"), tmp_path / "distinct")):
        dkfeat.predict(distinct, rows, tmp_path / f"predicted-{number}", progress=False)
        predicted.append(pq.read_table(tmp_path / f"predicted-{number}" / "data")["scores"])
    assert predicted[0].to_pylist() == predicted[1].to_pylist()[:7]
    like = dkfeat.featurize(tmp_path / "rows" / "b.svm", tmp_path / "b", like=tmp_path / "distinct", progress=False)
    assert like.spec_fp == data.manifest.spec_fp


def test_result__in_a_folder_in_memory_or_a_mask_gives_the_same_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.neighbors.deduplication.duplicates.PIECE_ROWS", 2)  # several files for a shard
    data = featurized(tmp_path)
    first = drop(data, duplicates(data, progress=False), tmp_path / "distinct")
    assert first.rows == sum(KEPT)
    found = duplicates(data, target=tmp_path / "duplicates", progress=False)
    assert len(list((tmp_path / "duplicates" / "groups" / "data").iterdir())) > 2 * data.n_shards
    for given in (found, tmp_path / "duplicates", np.array(KEPT)):
        assert drop(data, given, tmp_path / "distinct") == first  # complete already
    drop(data, tmp_path / "duplicates", tmp_path / "again")
    assert dataset_state(tmp_path / "again") == dataset_state(tmp_path / "distinct")
    dense = featurized(tmp_path, "dense", names="a", out="dense")  # the same rows in one shard
    assert drop(dense, found.kept, tmp_path / "other").rows == sum(KEPT)


def test_interrupted_copy__is_continued_with_the_same_bytes(tmp_path, monkeypatch):
    data = featurized(tmp_path)
    drop(data, np.array(KEPT), tmp_path / "whole")
    publish = job.publish

    def failing(storage, name, *arguments, **options):
        if name.startswith("part-000002"):
            raise RuntimeError("interrupted")
        return publish(storage, name, *arguments, **options)

    with monkeypatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr(job, "publish", failing)
        with pytest.raises(RuntimeError):
            drop(data, np.array(KEPT), tmp_path / "again")
    assert list((tmp_path / "again" / "data").iterdir())
    with pytest.raises(SpecConflictError, match="dkfeat abort"):
        drop(data, np.ones(len(KEPT), bool), tmp_path / "again")
    drop(data, np.array(KEPT), tmp_path / "again")
    assert dataset_state(tmp_path / "again") == dataset_state(tmp_path / "whole")


def test_environments__are_those_of_the_shards(tmp_path, monkeypatch):
    data = featurized(tmp_path, "dense")
    monkeypatch.setattr("dkfeat.engine.tasks.job.numeric_env", lambda: "another")
    assert drop(data, np.array(KEPT), tmp_path / "distinct").numeric_envs == data.manifest.numeric_envs


def test_duplicates_of_other_shards__are_refused(tmp_path):
    data = featurized(tmp_path, names="ab")
    duplicates(data, target=tmp_path / "duplicates", progress=False)
    drop(data, tmp_path / "duplicates", tmp_path / "distinct")
    whole = featurized(tmp_path, names="c")
    with pytest.raises(SpecConflictError, match=r"repeat `dkfeat duplicates .*features --out .*duplicates` with"):
        drop(whole, tmp_path / "duplicates", tmp_path / "other")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(SpecConflictError, match="has the duplicates of other shards"):
        drop(featurized(tmp_path / "elsewhere", names="ac"), tmp_path / "duplicates", tmp_path / "other")
    with pytest.raises(SpecConflictError, match="choose another target"):
        drop(whole, np.array(KEPT), tmp_path / "distinct")
    with pytest.raises(InputError, match=r"shape \(3,\) and type bool, but .* has 12 rows"):
        drop(whole, np.ones(3, bool), tmp_path / "other")
    with pytest.raises(ConfigError, match="is no folder of duplicates"):
        drop(whole, tmp_path / "features", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_source__is_neither_added_nor_compared(tmp_path):
    data = featurized(tmp_path, multilabel=False)
    target, rows = tmp_path / "distinct", str(tmp_path / "rows" / "*.svm")
    drop(data, np.array(KEPT), target)
    for call in (
        lambda: dkfeat.featurize(rows, target, progress=False),
        lambda: dkfeat.verify_inputs(target, rows),
        lambda: dkfeat.neighbors.search(target, n_neighbors=1, rerank=2, source=rows, progress=False),
    ):
        with pytest.raises(SpecConflictError, match="is a copy of other shards without duplicates"):
            call()
    report = dkfeat.run_report(target)
    assert "is a copy of other shards" in report.kernel_note
    assert "dropped from 12 rows" in report.to_html()


def test_command__copies_and_tells_what_it_dropped(tmp_path):
    data = featurized(tmp_path)
    duplicates(data, target=tmp_path / "duplicates", progress=False)
    words = (tmp_path / "features", tmp_path / "duplicates", "--out", tmp_path / "distinct")
    record = json.loads(run("drop-duplicates", *words, "--json").stdout)
    assert (record["rows"], record["dropped"]) == (8, 4)
    shown = run("inspect", tmp_path / "distinct").stdout
    assert "rows=12" in shown
    assert "nonzeros" not in shown
