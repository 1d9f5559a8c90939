"""Bad rows of Parquet sources set aside: with their position, and without any effect on the good rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.errors import ConfigError, ParquetError
from dkfeat.sources import pieces as quarantine
from dkfeat.sources.parquet import decode as parquet_decode
from tests.conftest import first_quick
from tests.engine.helpers import featurized
from tests.faults.input.quarantine import features_of, run, set_aside
from tests.sources.parquet.rows import write

N = 60
BAD_ROWS = (7, 8, 31, 59)
LABELS = pa.array([row % 2 for row in range(N)])


def records(target):
    return [(row.line, row.reason, row.message, row.text) for row in set_aside(target)]


def with_bad(values, bad, kind):
    """Return the values, with the bad value in the rows that must be bad."""
    return pa.array([bad if row in BAD_ROWS else value for row, value in enumerate(values)], kind)


FLOATS = [row / 7 + 1 for row in range(N)]
LISTS = [[row / 7 + 1, 2.0, 3.0] for row in range(N)]
INDICES = [[0, 2, row % 5 + 3] for row in range(N)]


def column(**bad):
    return {"a": pa.array(FLOATS), "b": pa.array(FLOATS[::-1]), **bad}


CASES = {
    "null": (column(b=with_bad(FLOATS, None, pa.float32())), "b", "a null, but features", "bad value"),
    "nan": (column(a=with_bad(FLOATS, np.nan, pa.float64())), "a", "nan, but features", "bad value"),
    "too large": (column(a=with_bad(FLOATS, 1e39, pa.float64())), "a", "1e\\+39 overflows", "bad value"),
    "label null": (column(label=with_bad(LABELS.to_pylist(), None, pa.int64())), "label", "a null", "bad label"),
    "label nan": (column(label=with_bad(LABELS.to_pylist(), np.nan, pa.float64())), "label", "nan", "bad label"),
    "multilabel": (
        column(a=with_bad(FLOATS, np.nan, pa.float64()), label=pa.array([[0, 1][: row % 3] for row in range(N)])),
        "a", "nan, but features", "bad value",
    ),
    "weight": (column(w=with_bad(FLOATS, -1, pa.float64())), "w", "-1.0, but weights", "bad weight"),
    "kept": (column(k=with_bad([1] * N, 2**64 - 1, pa.uint64())), "k", "cannot be kept", "bad kept value"),
    "vector null": ({"features": with_bad(LISTS, [1.0, None, 2.0], None)}, "features", "a null in", "bad value"),
    "vector of two": ({"features": with_bad(LISTS, [1.0, 2.0], None)}, "features", "2 values, but", "bad feature"),
    "no vector": ({"features": with_bad(LISTS, None, None)}, "features", "a null, but features", "bad value"),
    "binary": (
        {"features": with_bad([np.ones(3, "<f4").tobytes()] * N, np.full(3, np.inf, "<f4").tobytes(), pa.binary(12))},
        "features", "inf, but", "bad value",
    ),
    "order": (
        {"indices": with_bad(INDICES, [2, 1, 3], None), "values": pa.array(LISTS)},
        "indices", "index 1 after 2", "indices not ascending",
    ),
    "range": (
        {"indices": with_bad(INDICES, [1, 2, 40], None), "values": pa.array(LISTS)},
        "indices", "40, but the highest index is 19", "index out of range",
    ),
    "lengths": (
        {"indices": pa.array(INDICES), "values": with_bad(LISTS, [1.0], None)},
        "values", "1 values for 3 indices", "bad feature",
    ),
    "struct": (
        {"features": with_bad([{"indices": i, "values": v} for i, v in zip(INDICES, LISTS, strict=True)], None, None)},
        "features", "a null, but each row", "bad feature",
    ),
}  # fmt: skip


def source_of(path, columns, **options):
    if "a" in columns:
        options |= {"features_as": "columns"}
    if "w" in columns:
        options |= {"weight": "w", "features": ("a", "b")}
    if "k" in columns:
        options |= {"keep": "k", "features": ("a", "b")}
    wide = isinstance(columns.get("features"), pa.Array) and not pa.types.is_fixed_size_binary(columns["features"].type)
    if "indices" in columns or wide:
        is_vector = wide and pa.types.is_list(columns["features"].type)
        options |= {"n_features": 3 if is_vector else 20}
    return dkfeat.ParquetSource(str(path), blocksize=1000, **options)


@pytest.mark.fault("I-40", "I-34")
@pytest.mark.parametrize("case", first_quick(CASES, 6))
def test_quarantine__good_rows_as_if_bad_ones_were_absent(tmp_path, case):
    columns, blamed, message, reason = CASES[case]
    columns = {"label": LABELS, **columns}
    table = pa.table(columns)
    source = source_of(write(tmp_path / "bad.parquet", table, row_group_size=25), columns)
    manifest = run(source, tmp_path / "features")
    assert (manifest.rows, manifest.bad_rows) == (N - 4, {reason: 4})
    found = set_aside(tmp_path / "features")
    assert [(row.line, row.offset, row.reason) for row in found] == [(row + 1, row, reason) for row in BAD_ROWS]
    assert found[2].message.startswith(f"row group 1, row 6, column {blamed}")
    assert found[2].text.startswith(f"{blamed}=")
    assert found[0].place == "bad.parquet"
    with pytest.raises(ParquetError, match=f"row group [0-2], row [0-9]+, column {blamed}.*: {message}"):
        featurized(source, tmp_path / "raising")
    clean = table.take([row for row in range(N) if row not in BAD_ROWS])
    path = write(tmp_path / "clean.parquet", clean)
    featurized(source_of(path, columns), tmp_path / "expected")
    assert features_of(tmp_path / "features") == features_of(tmp_path / "expected")
    assert dkfeat.verify_inputs(tmp_path / "features", source).problems == ()


@pytest.mark.fault("I-40")
@pytest.mark.parametrize("most", [1, 4096])
@pytest.mark.parametrize(("group", "blocksize"), [(7, 100), (60, 100), (60, "1MiB")])
def test_quarantine__same_rows_and_records_for_any_cut(tmp_path, monkeypatch, most, group, blocksize):
    monkeypatch.setattr("dkfeat.sources.tabular.MOST_BAD_ROWS", most)
    values = [None if row % 3 == 1 or 20 <= row < 30 else row + 1.0 for row in range(N)]
    table = pa.table({"label": LABELS, "a": pa.array(values, pa.float64()), "day": pa.array(range(N))})
    path = write(tmp_path / "bad.parquet", table, row_group_size=group)
    filters = [("day", ">", 4)]
    options = {"features_as": "columns", "filters": filters, "blocksize": blocksize}
    source = dkfeat.ParquetSource(path, features="a", keep="day", **options)
    manifest = run(source, tmp_path / "features")
    good = [row for row in range(5, N) if values[row] is not None]
    assert (manifest.rows, manifest.n_bad_rows) == (len(good), N - 5 - len(good))
    assert all(entry.n_bad_rows <= most for entry in manifest.shards)
    lines = [row.line for row in set_aside(tmp_path / "features")]
    assert lines == [row + 1 for row in range(5, N) if values[row] is None]
    data = pa.concat_tables(
        pq.read_table(tmp_path / "features/data" / entry.name, columns=["day"]) for entry in manifest.shards
    )
    assert data["day"].to_pylist() == good
    lost = manifest.shards[len(manifest.shards) // 2].name
    (tmp_path / "features/data" / lost).unlink()
    assert run(source, tmp_path / "features") == manifest


@pytest.mark.fault("I-40", "I-20")
@pytest.mark.parametrize(("filters", "blocksize"), [(None, 100), ([("day", ">", 4)], "1MiB")])
def test_refused__rows_are_set_aside(tmp_path, filters, blocksize):
    values = [-row - 1.0 if row % 10 == 5 else None if row % 10 == 2 else row + 1.0 for row in range(N)]
    table = pa.table({"label": LABELS, "a": pa.array(values, pa.float64()), "day": pa.array(range(N))})
    path = write(tmp_path / "bad.parquet", table, row_group_size=25)
    source = dkfeat.ParquetSource(path, features="a", features_as="columns", filters=filters, blocksize=blocksize)
    laplace = dkfeat.LaplaceFeatures(8, random_state=0)
    manifest = run(source, tmp_path / "features", map=laplace)
    assert manifest.bad_rows == {"refused by the map": 6, "bad value": 5 if filters else 6}
    found = [(row.line, row.reason) for row in set_aside(tmp_path / "features")]
    assert found == [
        (row + 1, "bad value" if values[row] is None else "refused by the map")
        for row in range(5 if filters else 0, N)
        if values[row] is None or values[row] < 0
    ]
    text = next(row for row in records(tmp_path / "features") if row[0] == 36)
    assert text[2].startswith("row group 1, row 10, column a: Negative values")
    assert text[3] == ("a=-36.0, label=1, day=35" if filters else "a=-36.0, label=1")
    assert run(source, tmp_path / "features", map=laplace) == manifest


@pytest.mark.fault("I-40", "I-33", "I-34")
def test_quarantine__never_of_a_damaged_file_or_a_column_of_another_type(tmp_path):
    path = tmp_path / "bad.parquet"
    columns = {"label": LABELS, "a": pa.array([np.nan, *FLOATS[1:]])}
    write(path, columns, compression="none", use_dictionary=False, write_page_checksum=True)
    value = np.float64(FLOATS[30]).tobytes()
    path.write_bytes(path.read_bytes().replace(value, value[::-1]))
    with pytest.raises(ParquetError, match="damaged"):
        run(dkfeat.ParquetSource(str(path), features_as="columns"), tmp_path / "features")
    for name, values in (("c", FLOATS), ("d", [str(value) for value in FLOATS])):
        write(tmp_path / f"{name}.parquet", {"label": LABELS, "x": pa.array(values)})
    paths = [str(tmp_path / f"{name}.parquet") for name in "cd"]
    with pytest.raises(ParquetError, match=r"d\.parquet: column x: is string"):
        run(dkfeat.ParquetSource(paths, features_as="columns"), tmp_path / "features")


def test_quarantine__bad_rows_settle_nothing(tmp_path):
    indices = [[0, 2**40] if row == 5 else [1, row % 4 + 2] for row in range(N)]
    values = [[1.0, np.nan] if row == 5 else [1.0, 2.0] for row in range(N)]
    labels = [0.5 if row == 5 else float(row % 2) for row in range(N)]
    path = write(tmp_path / "a.parquet", {"label": labels, "indices": pa.array(indices), "values": pa.array(values)})
    manifest = run(dkfeat.ParquetSource(path), tmp_path / "features")
    assert (manifest.n_features, manifest.labels, manifest.schema["label"]) == (6, (0, 1), "int64")


def test_quarantine__needs_the_width_of_vectors(tmp_path):
    path = write(tmp_path / "a.parquet", {"label": LABELS, "features": pa.array([*LISTS[:-1], [1.0]])})
    with pytest.raises(ConfigError, match="needs n_features for vectors"):
        run(dkfeat.ParquetSource(path), tmp_path / "features")
    assert run(dkfeat.ParquetSource(path, n_features=3), tmp_path / "features").n_bad_rows == 1


def test_limit__a_share_ends_the_run_early_where_footers_tell_the_rows(tmp_path):
    columns = {"label": LABELS, "a": pa.nulls(N, pa.float64())}
    path = write(tmp_path / "a.parquet", columns, row_group_size=1)
    source, seen = dkfeat.ParquetSource(path, features="a", features_as="columns", blocksize=1), []
    with pytest.raises(ParquetError, match=r"a\.parquet: bad rows: 7 of 60, more than max_bad_rows=0\.1 .*row 0"):
        run(
            source, tmp_path / "features", max_bad_rows=0.1, scheduler="synchronous",
            progress=lambda state: seen.append(state.tasks),
        )  # fmt: skip
    assert max(seen) < 10


def test_quarantine__few_bad_rows_cost_little(tmp_path, monkeypatch):
    values = [None if row == 4321 else 1.0 for row in range(10_000)]
    path = write(tmp_path / "a.parquet", {"label": [0] * 10_000, "a": pa.array(values)})
    source = dkfeat.ParquetSource(path, on_bad_row="quarantine")
    files = source.files()
    source, decode, rows = source.inspect(files), parquet_decode.decode, []

    def counting(source, batch, first_row):
        rows.append(len(batch.rows))
        return decode(source, batch, first_row)

    monkeypatch.setattr(parquet_decode, "decode", counting)
    (piece,) = source.read(source.splits(files)[0])
    assert (piece.block.n_rows, [bad.offset for bad in piece.bad_rows]) == (9_999, [4321])
    assert sum(rows) < 6 * 10_000


def test_records__are_escaped_and_cut(tmp_path):
    columns = {"label": LABELS, "a": pa.array([np.nan, *FLOATS[1:]]), "k": pa.array(["\x1b[2Jü" * 999] * N)}
    path = write(tmp_path / "a.parquet", columns)
    run(dkfeat.ParquetSource(path, features="a", features_as="columns", keep="k"), tmp_path / "features")
    ((line, reason, _, text),) = records(tmp_path / "features")
    assert (line, reason, text[:28]) == (1, "bad value", "a=nan, label=0, k='\\x1b[2J\\x")
    assert text.isascii()
    assert len(text) <= 160
    assert {reason for _, _, _, reason in CASES.values()} <= set(quarantine.REASONS)
