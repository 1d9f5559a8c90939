"""Rows in memory from end to end: the codes of files, repeated and other rows, clusters, training, errors."""

import os

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask import delayed
from distributed import Client, LocalCluster
from scipy import sparse

import dkfeat
from dkfeat.errors import DkfeatError, SpecConflictError
from dkfeat.sources.digest import MEMORY
from tests.engine.featurize.memory_rows import DRIVER, partition, table
from tests.engine.helpers import featurized, gcws
from tests.invariants import assert_dataset_whole, dataset_state
from tests.sources.parquet.rows import feature_columns, write


def encoder():
    return dkfeat.TableEncoder(text={"note": "word 1-2"})


def shard_bytes(target):
    return [path.read_bytes() for path in sorted((target / "data").iterdir())]


@pytest.fixture
def from_file(tmp_path):
    """Shards of a file whose name is that of rows in memory, which shards hold."""
    table().to_parquet(tmp_path / MEMORY, index=False)
    featurized(dkfeat.ParquetSource(str(tmp_path / MEMORY)), tmp_path / "file", encoder=encoder())
    return tmp_path / "file"


def test_tables__have_the_shards_of_an_equal_file(tmp_path, from_file):
    arrow = pa.Table.from_pandas(table(), preserve_index=False)
    dask = dd.from_pandas(table(), npartitions=1, sort=False)
    kinds = {"pandas": table(), "polars": pl.from_pandas(table()), "arrow": arrow, "dask": dask}
    kinds |= {"batch": arrow.combine_chunks().to_batches()[0], "chunks": pa.concat_tables([arrow[:7], arrow[7:]])}
    manifests = {name: featurized(rows, tmp_path / name, encoder=encoder()) for name, rows in kinds.items()}
    for name, manifest in manifests.items():
        assert shard_bytes(tmp_path / name) == shard_bytes(from_file), name
        assert manifest.sources[0].identity == manifests["arrow"].sources[0].identity, name
    assert_dataset_whole(tmp_path / "dask")


@pytest.mark.parametrize("name", ["array", "float64", "csr", "csc", "dask", "dask_csr"])
def test_arrays__have_the_shards_of_an_equal_file(tmp_path, tiny_rows, name):
    X, y = tiny_rows
    blocks = da.from_array(X.toarray(), chunks=(len(y), 100))
    rows, layout = {
        "array": (X.toarray(), "fixed_size_list"),
        "float64": (np.asfortranarray(X.toarray(), np.float64), "fixed_size_list"),
        "csr": (X, "pairs"),
        "csc": (X.tocsc(), "pairs"),
        "dask": (blocks, "fixed_size_list"),
        "dask_csr": (blocks.map_blocks(sparse.csr_matrix), "pairs"),
    }[name]
    path = write(tmp_path / MEMORY, {**feature_columns(X, layout), "label": y})
    featurized(dkfeat.ParquetSource(path, n_features=X.shape[1]), tmp_path / "file")
    labels = da.from_array(y, chunks=len(y)) if name.startswith("dask") else y
    featurized(dkfeat.TableSource(rows, labels), tmp_path / "memory")
    assert shard_bytes(tmp_path / "memory") == shard_bytes(tmp_path / "file")


def test_roles_and_filters__are_those_of_files(tmp_path):
    rows = table().assign(number=np.arange(60), w=0.5)
    options = {"weight": "w", "id": "number", "keep": ["plan", "seen"], "filters": [("age", ">", 40)]}
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    featurized(dkfeat.ParquetSource(str(tmp_path / "rows.parquet"), **options), tmp_path / "file")
    featurized(dkfeat.TableSource(pl.from_pandas(rows), **options), tmp_path / "memory")
    one, other = (pq.read_table(tmp_path / name / "data") for name in ("file", "memory"))
    assert one.equals(other)
    assert one["id"].to_pylist() == rows["number"][rows["age"] > 40].tolist()


def test_lists__of_polars_have_the_codes_of_an_equal_file(tmp_path):
    """polars gives Arrow text as views, of which pyarrow selects no rows, also in lists and structs."""
    tags = [[f"tag{row % 4}", f"tag{row % 7}"][: row % 3] for row in range(60)]
    rows = pl.DataFrame({"tags": tags, "inner": [{"a": "b"}] * 60, "label": [1, 2] * 30})
    rows.write_parquet(tmp_path / MEMORY)
    for name, given in (("file", dkfeat.ParquetSource(str(tmp_path / MEMORY))), ("memory", rows)):
        featurized(given, tmp_path / name, encoder="auto")
    assert shard_bytes(tmp_path / "memory") == shard_bytes(tmp_path / "file")
    assert pq.read_table(tmp_path / "memory" / "data")["codes"].null_count == 20


def test_rows__again_do_nothing_and_others_conflict(tmp_path):
    target, file = tmp_path / "out", str(tmp_path / "rows.parquet")
    table().to_parquet(file)
    featurized(file, tmp_path / "file")
    small = dkfeat.TableSource(table(), blocksize=5_000)
    manifest = featurized(small, target, encoder=encoder())
    assert len(manifest.shards) > 1
    before = dataset_state(target)
    parts = dd.from_pandas(table(), npartitions=3, sort=False)
    for same in (table(), pl.from_pandas(table()), parts):
        assert featurized(same, target, encoder=encoder()).number == 1
    assert dataset_state(target) == before
    swapped = table().iloc[[1, 0, *range(2, 60)]]
    for other in (swapped, table()[:-1], table().assign(age=1)):
        with pytest.raises(SpecConflictError, match="was made from other rows in memory; rows"):
            featurized(other, target, on_changed_source="keep")
    with pytest.raises(SpecConflictError, match="was made from rows in memory; rows"):
        featurized(file, target, on_changed_source="keep")
    with pytest.raises(SpecConflictError, match="was made from files"):
        featurized(table(), tmp_path / "file")
    with pytest.raises(SpecConflictError, match="was made from rows in memory; rows"):
        dkfeat.verify_inputs(target, file)
    assert dkfeat.verify_inputs(target, small).problems == ()
    later = featurized(table(20, seed=1), tmp_path / "later", map=None, like=target)  # other rows, elsewhere
    assert later.rows == 20
    assert dkfeat.open_shards(tmp_path / "later").encoder.to_spec() == dkfeat.open_shards(target).encoder.to_spec()


def test_interrupted_run__continues_with_other_kinds_of_equal_rows(tmp_path):
    def stop(state):
        if (state.stage, state.tasks) == ("featurize", 1):
            raise KeyboardInterrupt

    options = {"blocksize": 5_000}
    with pytest.raises(KeyboardInterrupt):
        featurized(dkfeat.TableSource(table(), **options), tmp_path / "out", progress=stop, scheduler="synchronous")
    with pytest.raises(SpecConflictError, match="are no part of these rows now; cut them"):
        featurized(dd.from_pandas(table(), npartitions=2, sort=False), tmp_path / "out")
    featurized(dkfeat.TableSource(pl.from_pandas(table()), **options), tmp_path / "out")
    featurized(dkfeat.TableSource(table(), **options), tmp_path / "whole")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "whole")


def test_train__on_rows_gives_the_model_of_their_shards(tmp_path, from_file):
    rows, options = table().drop(columns="label"), {"map": gcws(), "encoder": encoder(), "progress": False}
    expected = dkfeat.train(from_file, progress=False)
    for labels in (table()["label"], table()["label"].tolist(), pl.Series(table()["label"].tolist())):
        model = dkfeat.train(rows, y=labels, **options)
        assert np.array_equal(model.coef, expected.coef)
    assert model.predict(rows).tolist() == expected.predict(rows).tolist()
    assert np.array_equal(dkfeat.train(table(), "liblinear", **options).coef, dkfeat.train(from_file, "liblinear").coef)
    parted = dkfeat.train(table(), dkfeat.SGD(parts=1), **options)
    assert np.array_equal(parted.coef, dkfeat.train(from_file, dkfeat.SGD(parts=1), progress=False).coef)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MEMORY, "file"])


def test_train__with_init_goes_on_by_its_map_encoder_and_classes(tmp_path):
    first = dkfeat.train(table(), map=gcws(), encoder=encoder(), progress=False)
    first.save(tmp_path / "model")
    night = table(seed=1).query("label == 'high'")  # one of the classes, and other ranks
    featurized(dkfeat.TableSource(night), tmp_path / "night", map=None, like=tmp_path / "model")
    expected = dkfeat.train(tmp_path / "night", init=first, progress=False)
    renamed = dkfeat.TableSource(night.rename(columns={"label": "answer"}), label="answer")
    for model in (
        dkfeat.train(night, init=tmp_path / "model", progress=False),
        dkfeat.train(renamed, map=gcws(), encoder=encoder(), init=first, progress=False),
    ):
        assert np.array_equal(model.coef, expected.coef)
        assert model.names.tolist() == ["high", "low"]
    for rows, other, words in (
        (night, {"map": gcws(random_state=9)}, "model of init= was made .* map.seed: 11 there, 9 asked; use the same"),
        (night, {"encoder": encoder().fit(night)}, "encoder.knots: a value there, another asked; .* without init="),
        (night.assign(label="odd"), {}, "row 0, column label: odd, but the classes are high, low; set such rows"),
    ):
        with pytest.raises(DkfeatError, match=words) as caught:
            dkfeat.train(rows, init=first, **other)
        assert len(str(caught.value)) < 300


def test_train__with_init_of_text_takes_arrays(tmp_path, tiny_folder, tiny_rows):
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "a.svm")), tmp_path / "text", map=gcws())
    first = dkfeat.train(tmp_path / "text", progress=False)
    model = dkfeat.train(tiny_rows[0][:250], y=tiny_rows[1][:250], init=first, progress=False)
    assert np.array_equal(model.coef, dkfeat.train(tmp_path / "text", init=first, progress=False).coef)
    dense = dkfeat.train(tiny_rows[0][:250].toarray(), y=tiny_rows[1][:250], init=model, progress=False)
    sparse = dkfeat.train(tiny_rows[0][:250], y=tiny_rows[1][:250], init=model, progress=False)
    assert np.array_equal(dense.coef, sparse.coef)


def test_train__warns_of_scale_once(caplog):
    dkfeat.train(X * [1, 1e6, 1], y=Y, map=gcws(), progress=False)
    assert [record.message.count("column 1 holds 100%") for record in caplog.records] == [1]


X = np.random.default_rng(0).random((12, 3))
Y = (X[:, 0] > 0.5).astype(int)
DX, DY = da.from_array(X, chunks=(4, 3)), da.from_array(Y)
NAN = np.where(X > 0.9, np.nan, X)
UNLABELLED = table().drop(columns="label")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda to: featurized(X[0], to), r"of shape \(3,\) and type float64, but it must be a path, .* a DataFrame"),
        (lambda to: featurized([[1, 2]], to), r"source=\[\[1, 2\]\] is a list, but it must be a path, .* a source, or"),
        (lambda to: featurized(pl.DataFrame({"a": [1]}).lazy(), to), r"rows is a LazyFrame, .* give rows.collect\(\)"),
        (lambda _: dkfeat.TableSource(X, DY), r"y is a Dask Array, .*; give y.compute\(\)"),
        (lambda _: dkfeat.TableSource(X, "label"), "y='label' is a str, .* by dkfeat.TableSource\\(rows, label="),
        (lambda _: dkfeat.TableSource(X, {"y": 1}), "is a dict, but it must be one column of labels"),
        (lambda _: dkfeat.train(table().iloc[:0], map=gcws()), "has no rows; give one or more"),
        (lambda _: dkfeat.train(UNLABELLED, map=gcws()), "have no labels \\(label='label'\\); pass y="),
        (lambda _: dkfeat.train(X, y=Y, init=3), "the model is 3, but it must be a LinearModel, or its folder"),
        (lambda _: dkfeat.TableSource(X, n_features=4), "has 3 columns, but n_features=4"),
        (lambda _: dkfeat.TableSource(X, [1, 2]), "y has 2 labels, but there are 12 rows"),
        (lambda _: dkfeat.TableSource(pd.concat([table()] * 2, axis=1)), "read as columns of Arrow: Duplicate"),
        (lambda _: dkfeat.TableSource(table(), y=[1] * 60), "has a column 'label', but y is given too"),
        (lambda _: dkfeat.TableSource(X, Y, label=None), "y is given, but label=None"),
        (lambda to: featurized(UNLABELLED, to), "rows in memory: column label: there is no such column: the table has"),
        (lambda to: featurized(NAN, to), r"rows in memory: row 1, column features: nan, but"),
        (lambda to: dkfeat.plan(DX, to, gcws()), "only featurize and train read rows of Dask"),
        (lambda to: featurized(dkfeat.TableSource(DX, Y), to), "a ndarray has no partitions; give rows and y both"),
        (lambda to: featurized(delayed(X), to), "a Delayed[A-Za-z]* has no partitions"),
        (lambda to: featurized(dkfeat.TableSource(DX, DY), to), "3 partitions, but y has 1"),
        (lambda _: dkfeat.train(X, Y, map=gcws()), "labels of rows in memory are given by keyword"),
        (lambda _: dkfeat.train(X, y=Y), "need a feature map, such as map="),
        (lambda to: dkfeat.train(X, y=Y, map=gcws(), checkpoint=to), "checkpoint= is for shards"),
        (lambda to: dkfeat.train(to, map=gcws()), r"map= is for rows in memory, .* dkfeat.ParquetSource\(path\)"),
        (lambda _: dkfeat.train(X, y=Y, map=gcws(), test=UNLABELLED), "DataFrame is given for test or validation"),
        (lambda _: dkfeat.train(X, y=Y, map=gcws(), encoder="rank"), "encoder='rank', but it must be a TableEncoder"),
        (lambda _: dkfeat.train(dkfeat.TableSource(X, Y), y=Y, map=gcws()), "the rows are a TableSource, which has"),
        (lambda _: dkfeat.train(X, y=["one"] * 12, map=gcws()), "all 12 rows have the label one"),
        (
            lambda _: dkfeat.TableSource(X, pd.DataFrame({"y": Y})),
            "is a DataFrame, but it must be one column of labels",
        ),
        (lambda _: dkfeat.TableSource(np.ma.masked_array(X, X > 0.5)), r"masked array, .* give rows.filled\(0\)"),
    ],
)
def test_errors__say_what_is_accepted(tmp_path, call, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        call(tmp_path / "out")
    assert isinstance(caught.value, DkfeatError | TypeError)


def test_bad_rows__are_set_aside(tmp_path):
    rows = np.where(np.arange(36).reshape(12, 3) == 16, np.nan, X)
    manifest = featurized(rows, tmp_path / "out", on_bad_row="quarantine", max_bad_rows=1)
    assert manifest.rows == 11
    (bad,) = dkfeat.open_shards(tmp_path / "out").quarantine()
    assert (bad.source, bad.offset, bad.reason) == (MEMORY, 5, "bad value")


@pytest.mark.cluster
def test_cluster__encodes_partitions_where_they_are(tmp_path, monkeypatch):
    """A partition that came to the driver would not unpickle, see `Guarded`."""
    monkeypatch.setenv(DRIVER, str(os.getpid()))
    whole = pd.concat([pd.DataFrame(partition(number)) for number in range(4)])
    featurized(whole, tmp_path / "whole", encoder=encoder())
    lazy = dd.from_map(partition, range(4), meta=table().iloc[:0])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        rows = lazy.persist()
        manifest = featurized(rows, tmp_path / "cluster", encoder=encoder(), client=client)
        assert [entry.rows for entry in manifest.shards] == [20, 21, 22, 23]  # a split for each partition
        model = dkfeat.train(rows, map=gcws(), encoder=encoder(), client=client, progress=False)
        landmarks = dkfeat.train(X, y=Y, map=dkfeat.NystroemFeatures(3, random_state=0), client=client, progress=False)
        sent = featurized(
            dkfeat.TableSource(whole, blocksize=5_000), tmp_path / "sent", encoder=encoder(), client=client
        )
        with pytest.raises(AssertionError, match="came to the driver"):
            rows.compute()
    assert len(sent.shards) > 4
    assert np.array_equal(landmarks.coef, dkfeat.train(X, y=Y, map=landmarks.map, progress=False).coef)
    one, *others = (pq.read_table(tmp_path / name / "data") for name in ("whole", "cluster", "sent"))
    assert [each.equals(one) for each in others] == [True, True]
    assert sent.sources[0].identity == manifest.sources[0].identity
    assert np.array_equal(model.coef, dkfeat.train(tmp_path / "cluster", progress=False).coef)
