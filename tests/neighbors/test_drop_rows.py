"""Sources without duplicates: rows as they are stored, what is left out, and sources that are not those recorded."""

import datetime
import decimal
import gzip
import json
import os
import shutil

import dask
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.neighbors import drop_duplicates, duplicates
from dkfeat.store.commit.publish import publish_text
from tests.cli.test_commands import run
from tests.invariants import assert_dataset_whole, dataset_state

SET_ASIDE = {"on_bad_row": "quarantine", "max_bad_rows": 1}
ADDED = ["duplicate_group", "duplicate_similarity"]
DAY = datetime.datetime(2026, 3, 1)
OF = {  # type: value for a number
    pa.list_(pa.int16()): lambda n: [n, None, n],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]): lambda n: {"a": n, "b": [str(n)] * (n % 3)},
    pa.map_(pa.string(), pa.int64()): lambda n: [("k", n)],
    pa.decimal128(20, 3): lambda n: decimal.Decimal(n) / 4,
    pa.dictionary(pa.int8(), pa.string()): lambda n: f"word {n % 5}",
    pa.timestamp("ns", "Europe/Berlin"): lambda n: DAY + datetime.timedelta(hours=n),
    pa.large_string(): lambda n: "ü" * (n % 40),
    pa.binary(4): lambda n: n.to_bytes(4, "big"),
    pa.list_(pa.float32(), 2): lambda n: [n, n],
    pa.time32("ms"): lambda n: n,
    pa.duration("s"): lambda n: n,
    pa.uint8(): lambda n: n % 256,
    pa.float16(): np.float16,
    pa.null(): lambda _: None,
    pa.string_view(): str,
}


def typed_rows(first, stop, X):
    """A table with columns of all types, with nulls, metadata of pandas and others, and of a field."""
    table = pa.table({f"x{number}": X[first:stop, number] for number in range(X.shape[1])})
    for number, (kind, value) in enumerate(OF.items()):
        is_whole = pa.types.is_fixed_size_list(kind)  # older versions of pyarrow write no null among them
        values = [None if row % 7 == 0 and not is_whole else value(row) for row in range(first, stop)]
        table = table.append_column(f"of type {number}", pa.array(values, kind))
    table = table.append_column(
        pa.field("label", pa.int32(), metadata={"unit": "m"}), [pa.array(np.arange(first, stop) % 2, pa.int32())]
    )
    return table.replace_schema_metadata({**pa.Schema.from_pandas(pd.DataFrame({"x0": [1.0]})).metadata, "own": "{}"})


def with_copies(n_rows):
    """Rows of which the last quarters are near copies, and near copies of these: chains."""
    X = np.random.default_rng(0).lognormal(size=(n_rows, 6))
    half, some = n_rows // 2, n_rows // 4
    X[half : half + some] = X[:some] * np.exp(np.random.default_rng(1).normal(size=(some, 6)) * 0.05)
    X[half + some :] = X[half : half + some] * np.exp(np.random.default_rng(2).normal(size=(some, 6)) * 0.05)
    return X


def searched(folder, source, threshold=0.9):
    dkfeat.featurize(source, folder / "features", dkfeat.DartFeatures(256, random_state=0), progress=False)
    return duplicates(folder / "features", threshold=threshold, target=folder / "duplicates", progress=False)


def drop(*arguments, **options):
    return drop_duplicates(*arguments, progress=False, **options)


def rows_of(folder):
    return [pq.read_table(path) for path in sorted((folder / "data").iterdir())]


def joined(tables):
    return pa.concat_tables([table.replace_schema_metadata() for table in tables])


@pytest.fixture
def parquet(tmp_path):
    """Source of two files that were featurized one after the other, the second first by its name."""
    X, tables = with_copies(400), {}
    names = [f"x{number}" for number in range(6)]
    source = dkfeat.ParquetSource(
        str(tmp_path / "*.parquet"), features=names, features_as="columns", label=None, blocksize="4KiB"
    )
    for name, first, stop in (("b", 0, 240), ("a", 240, 400)):
        tables[name] = typed_rows(first, stop, X)
        pq.write_table(tables[name], tmp_path / f"{name}.parquet", row_group_size=37)
        dkfeat.featurize(source, tmp_path / "features", dkfeat.DartFeatures(256, random_state=0), progress=False)
    found = duplicates(tmp_path / "features", threshold=0.9, target=tmp_path / "duplicates", progress=False)
    return source, list(tables.values()), found


def test_rows__of_parquet_have_all_columns_types_and_metadata(parquet, tmp_path):
    source, tables, found = parquet
    manifest = drop(source, found, tmp_path / "clean", dropped=tmp_path / "dropped")
    kept, dropped = rows_of(tmp_path / "clean"), rows_of(tmp_path / "dropped")
    assert len(kept) == len(manifest.shards) == len(dropped) > 4
    wanted = tables[0].schema
    for table in kept:
        view = table.schema.get_field_index(f"of type {len(OF) - 1}")
        schema = table.schema.set(view, table.schema.field(view).with_type(pa.string_view()))
        assert schema.equals(wanted, check_metadata=False)
        assert schema.field("label").metadata == wanted.field("label").metadata
        assert {key: table.schema.metadata[key] for key in wanted.metadata} == wanted.metadata
    whole = np.array(joined(tables).to_pylist())
    assert joined(kept).to_pylist() == whole[found.kept].tolist()
    assert joined(dropped).drop_columns(ADDED).to_pylist() == whole[~found.kept].tolist()
    direct = {tuple(pair): value for pair, value in zip(found.pairs.tolist(), found.similarities, strict=True)}
    groups = found.groups[~found.kept].tolist()
    similarities = [direct.get((group, row)) for group, row in zip(groups, np.flatnonzero(~found.kept), strict=True)]
    masked = {"shards": tmp_path / "features", "dropped": tmp_path / "first"}
    assert drop(source, ~found.kept, tmp_path / "last", **masked).rows == found.n_rows - found.n_kept
    assert joined(rows_of(tmp_path / "first")).to_pylist() == joined(kept).to_pylist()
    assert joined(rows_of(tmp_path / "last")).to_pylist() == joined(dropped).drop_columns(ADDED).to_pylist()
    assert joined(dropped)[ADDED[0]].to_pylist() == groups
    assert joined(dropped)[ADDED[1]].to_pylist() == similarities
    assert 0 < similarities.count(None) < len(groups)  # chains
    for name in ("clean", "dropped"):
        assert_dataset_whole(tmp_path / name, committed=True)
    assert drop(source, found, tmp_path / "clean") == manifest  # complete already
    again = str(tmp_path / "clean" / "data")
    in_memory = duplicates(tmp_path / "features", threshold=0.9, progress=False)
    drop(str(tmp_path / "*.parquet"), in_memory, tmp_path / "same", dropped=tmp_path / "others")
    for one, other in (("clean", "same"), ("dropped", "others")):
        assert joined(rows_of(tmp_path / one)).equals(joined(rows_of(tmp_path / other)))
    assert dkfeat.featurize(again, tmp_path / "again", dkfeat.DartFeatures(8), progress=False).rows == found.n_kept


def test_pieces__end_by_the_bytes_of_all_columns(tmp_path):
    table = pa.table({"x0": 2.0 ** np.arange(64), "image": [bytes(1 << 10) * (1 + row % 3) for row in range(64)]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="none", row_group_size=8)
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), features="x0", features_as="columns", label=None)
    found = searched(tmp_path, source.replaced(blocksize="20KiB"))
    manifest = drop(source, found, tmp_path / "clean")
    assert [entry.rows for entry in manifest.shards] == [16] * 4  # one row group has less than 20 KiB
    assert joined(rows_of(tmp_path / "clean")).equals(table)


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_lines__of_text_are_kept_byte_for_byte(ending, tmp_path):
    from dkfeat.sources.contents import compress, compression_of_name

    lines = [b"1 1:1 2:2 # first\r\n", b"# comment\n", b"0 1:7\n", b"\n", b"1 1:1   2:2\n", b"oops\n", b"0  4:1.50"]
    path = tmp_path / f"rows.svm{ending}"
    path.write_bytes(compress(b"".join(lines), compression_of_name(path.name)))
    found = searched(tmp_path, dkfeat.LibsvmSource(str(path), **SET_ASIDE), 1.0)
    assert found.kept.tolist() == [True, True, False, True]
    assert drop(str(path), found, tmp_path / "clean", dropped=tmp_path / "dropped").rows == 3
    for name, text in (("clean", lines[0] + lines[2] + lines[6] + b"\n"), ("dropped", lines[4])):
        (made,) = (tmp_path / name).glob(f"part-*.svm{ending}")
        assert made.read_bytes() == compress(text, compression_of_name(made.name))
        assert_dataset_whole(tmp_path / name, committed=True)
    assert joined(rows_of(tmp_path / "clean")).to_pydict() == {"row": [0, 1, 3]}
    assert joined(rows_of(tmp_path / "dropped")).to_pylist() == [{"row": 2, ADDED[0]: 0, ADDED[1]: 1.0}]


def test_lines__of_files_that_one_task_reads_are_counted_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.sources.libsvm.source.WINDOW_BYTES", 0)  # several pieces for all of them
    lines = [f"1 {10 + row * row % 41}:1\n" for row in range(64)]
    for first in range(0, 64, 4):
        (tmp_path / f"{first:02}.svm").write_text("".join(["x\n" * (first == 8), *lines[first : first + 4]]))
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), blocksize=480, **SET_ASIDE)
    assert len(source.splits()) == 1
    found = searched(tmp_path, source, 1.0)
    drop(source, found, tmp_path / "clean", dropped=tmp_path / "dropped")
    for name, chosen in (("clean", found.kept), ("dropped", ~found.kept)):
        manifest = dkfeat.open_shards(tmp_path / name).manifest
        assert len(manifest.shards) > 1
        assert [file.rows for file in manifest.sources] == chosen.reshape(16, 4).sum(axis=1).tolist()
        assert "".join(path.read_text() for path in sorted((tmp_path / name).glob("part-*"))) == "".join(
            np.array(lines)[chosen]
        )


@pytest.fixture
def text(tmp_path):
    """Text of some shards, and two results of a search for its duplicates, with copies without these."""
    path = tmp_path / "rows.svm"
    path.write_text("".join(f"{row} {row % 30}:1 {30 + row % 15}:1\n" for row in range(60)))
    one = searched(tmp_path, dkfeat.LibsvmSource(str(path), blocksize=150), 1.0)
    other = duplicates(tmp_path / "features", threshold=0.1, progress=False)
    for found, name in ((one, "one"), (other, "other")):
        size = drop(path, found, tmp_path / name).size
        assert size == sum(path.stat().st_size for path in (tmp_path / name).rglob("part-*"))
    return path, one, other


def lines_of(folder):
    return {path.name.split("-")[1]: path.read_bytes() for path in folder.glob("part-*")}


def test_lines_of_an_interrupted_run__are_made_again_or_deleted(text, tmp_path, monkeypatch):
    (path, one, other), clean, calls = text, tmp_path / "clean", iter("123")

    def publish(*arguments, **options):
        made = publish_text(*arguments, **options)
        if next(calls) == "3":
            raise KeyboardInterrupt
        return made

    with monkeypatch.context() as patch, dask.config.set(scheduler="synchronous"):
        patch.setattr("dkfeat.neighbors.drop.publish_text", publish)
        with pytest.raises(KeyboardInterrupt):
            drop(path, one, clean)
    files = sorted(clean.glob("part-*"))
    shutil.copytree(clean, tmp_path / "aborted")
    assert set(dkfeat.abort(tmp_path / "aborted").removed) > {file.name for file in files}
    drop(path, other, tmp_path / "aborted")
    assert lines_of(tmp_path / "aborted") == lines_of(tmp_path / "other")
    files[0].unlink()
    for file in files[1:]:
        file.write_bytes(file.read_bytes()[::-1])
    stray = clean / f"part-000009-0000-{'0' * 12}.svm"
    stray.write_bytes(b"#")
    assert drop(path, one, clean).size == dkfeat.open_shards(tmp_path / "one").manifest.size
    stray.unlink()
    assert lines_of(clean) == lines_of(tmp_path / "one")
    cleaned = dkfeat.clean(clean, set_aside=True)
    assert [len(cleaned.removed), cleaned.refused] == [4, ()]  # two shards, two files of text


@pytest.mark.parametrize("damage", ["missing", "changed", "longer", "stray"])
def test_damaged_lines__are_a_problem_and_made_again(damage, text, tmp_path):
    (path, one, _), clean = text, tmp_path / "one"
    first, whole, problem = min(clean.glob("part-*")), lines_of(clean), "missing or damaged; delete it and repeat"
    if damage == "stray":
        first, problem = first.with_name(f"part-000009-0000-{'0' * 12}.svm"), "no manifest lists this shard"
    first.write_bytes(b"#" * (1 << 10) if damage in ("longer", "stray") else bytes(first.stat().st_size))
    if damage == "missing":
        first.unlink()
        assert dkfeat.status(clean).state == "damaged"
    (found,) = dkfeat.open_shards(clean).verify(progress=False).problems
    assert f"{first}: {problem}" in found
    assert dkfeat.clean(clean).removed == ((first.name,) if damage == "stray" else ())
    first.unlink(missing_ok=True)
    drop(path, one, clean)
    assert lines_of(clean) == whole
    assert_dataset_whole(clean, committed=True)


def test_rows_that_were_not_featurized__are_in_neither(tmp_path, capsys):
    x = [1.0, None, 1.0, 2.0, 3.0, 2.0, 5.0, 1.0]
    table = pa.table({"x0": x, "kind": list("aabaabba"), "number": range(8)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = dkfeat.ParquetSource(
        str(tmp_path / "a.parquet"), features="x0", features_as="columns", label=None, filters=[("kind", "==", "a")]
    )
    found = searched(tmp_path, source.replaced(**SET_ASIDE), 1.0)
    drop_duplicates(source, found, tmp_path / "clean", dropped=tmp_path / "dropped")
    assert joined(rows_of(tmp_path / "clean"))["number"].to_pylist() == [0, 3, 4]
    assert joined(rows_of(tmp_path / "dropped"))["number"].to_pylist() == [7]
    note = "neither kept nor dropped, because they were not featurized: 1 bad row, see `dkfeat quarantine"
    shown = capsys.readouterr()
    assert note in shown.out + shown.err
    assert "3 rows that filters=" in shown.out + shown.err


@pytest.mark.parametrize("change", ["changed", "missing", "more"])
def test_source__that_is_not_the_one_recorded_is_a_conflict(change, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.svm").write_text("1 1:1\n0 2:1\n")
    found = searched(tmp_path, str(tmp_path / "*.svm"))
    reason = {"changed": "'b.svm' has another modification time", "missing": "'b.svm' is missing"}
    if change == "changed":
        os.utime(tmp_path / "b.svm", ns=(0, 0))
    elif change == "missing":
        (tmp_path / "b.svm").unlink()
    else:
        (tmp_path / "c.svm").write_text("1 1:1\n")
    match = f"{reason.get(change, 'c.svm')}.*give the unchanged files, or featurize these into another"
    with pytest.raises(SpecConflictError, match=match):
        drop(str(tmp_path / "*.svm"), found, tmp_path / "clean")
    assert not (tmp_path / "clean").exists()


def test_wrong_arguments__are_refused(parquet, tmp_path):
    source, _, found = parquet
    with pytest.raises(InputError, match="a mask does not name the data set"):
        drop(source, found.kept, tmp_path / "clean")
    with pytest.raises(ConfigError, match=r"dropped gets rows of a source, .*features holds shards"):
        drop(tmp_path / "features", found, tmp_path / "clean", dropped=tmp_path / "dropped")
    with pytest.raises(ConfigError, match=r"is the target too, .*; give two folders"):
        drop(source, found, tmp_path / "clean", dropped=str(tmp_path / "clean"))
    with pytest.raises(ConfigError, match=f"{tmp_path}/clean, which holds a run"):
        drop(source, found, tmp_path / "clean", dropped=tmp_path / "clean" / "dropped")
    assert not (tmp_path / "clean").exists()
    drop(source, found, tmp_path / "clean")
    with pytest.raises(SpecConflictError, match="clean was copied by another search"):
        drop(source, ~found.kept, tmp_path / "clean", dropped=tmp_path / "dropped", shards=tmp_path / "features")
    assert not (tmp_path / "dropped").exists()
    with pytest.raises(ConfigError, match="holds rows of a source without duplicates"):
        dkfeat.featurize(source, tmp_path / "clean", progress=False)


def test_column_of_the_name_of_an_added_one__is_an_error(tmp_path):
    pq.write_table(pa.table({"x0": [1.0, 1.0], ADDED[0]: [1, 2]}), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), features="x0", features_as="columns", label=None)
    found = searched(tmp_path, source)
    assert drop(source, found, tmp_path / "clean").rows == 1
    with pytest.raises(ConfigError, match="has a column duplicate_group, which is added to dropped rows; rename it"):
        drop(source, found, tmp_path / "clean", dropped=tmp_path / "dropped")


def test_command__writes_both_and_tells_the_numbers(tmp_path):
    with gzip.open(tmp_path / "a.svm.gz", "wt") as file:
        file.write("1 1:1\n0 2:1\n1 1:1\n")
    searched(tmp_path, str(tmp_path / "*.svm.gz"))
    words = (tmp_path / "a.svm.gz", tmp_path / "duplicates", "--out", tmp_path / "clean", "--dropped", tmp_path / "no")
    record = json.loads(run("drop-duplicates", *words, "--json").stdout)
    assert (record["rows"], record["dropped"]) == (2, 1)
    assert run("verify", tmp_path / "clean").exit_code == 0
    assert record["dropped_target"] == str(tmp_path / "no")
    fsspec.filesystem("memory").put(str(tmp_path / "clean"), "/clean", recursive=True)
    for folder in (tmp_path / "clean", "memory://clean"):
        ended = run("featurize", folder, "--format", "parquet", "--out", tmp_path / "again", status=2)
        text = f"{folder} holds lines of text, whose numbers alone are in data/; give '{folder}/*.svm.gz'"
        assert text in ended.output
    assert dataset_state(tmp_path / "no")[1][0]["rows"] == 1
