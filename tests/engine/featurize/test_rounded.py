"""Integer features that the type of the values rounds: one warning a run, about the first of them."""

import errno
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import dkfeat
from tests.conftest import first_quick
from tests.engine.helpers import featurized

GIVEN = {"n_features": 9, "zero_based": False, "label_dtype": "int64"}
ROWS = "1 1:16777216 2:16777217.0 3:1.6777217e7\n1 1:33554432\n0 4:5 7:-16777219\n1 1:16777217\n"


def rounded(caplog):
    """Warnings but those of the column of large numbers."""
    return [message for message in caplog.messages if "mean row sum" not in message]


@pytest.mark.fault("I-44")
@pytest.mark.parametrize("on_bad_row", ["raise", "quarantine"])
@pytest.mark.parametrize("blocksize", [1, 50, "1MiB"])
def test_text__one_warning_about_the_first(tmp_path, caplog, blocksize, on_bad_row):
    (tmp_path / "a.svm").write_text("1 1:99999999 2:x\n" * (on_bad_row == "quarantine") + "1 2:1 # 16777217\n" + ROWS)
    (tmp_path / "b.svm").write_text(ROWS)
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), blocksize=blocksize, **GIVEN)
    featurized(source, tmp_path / "out", on_bad_row=on_bad_row, max_bad_rows=1.0)
    (message,) = rounded(caplog)
    line = 4 + (on_bad_row == "quarantine")
    assert message.startswith(
        f"{tmp_path}/a.svm:{line}:7: '7:-16777219' is an integer that float32 rounds, to -16777220,"
    )
    assert 'pass dtype="float64"' in message
    caplog.clear()
    featurized(source.replaced(dtype="float64"), tmp_path / "exact", on_bad_row=on_bad_row, max_bad_rows=1.0)
    assert not rounded(caplog)


@pytest.mark.fault("I-44")
@pytest.mark.parametrize("kind", ["columns", "vector", "fixed", "sparse"])
def test_parquet__one_warning_about_the_first(tmp_path, caplog, kind):
    rows = [[1, 2], [2**24, 2**25], [3, 2**24 + 1], [2**24 + 3, 4]]
    label = pa.array([0, 1, 0, 1])
    width = pa.list_(pa.int64(), 2) if kind == "fixed" else pa.list_(pa.int64())
    if kind == "columns":
        table = pa.table({"x": [row[0] for row in rows], "y": pa.array([row[1] for row in rows], pa.int32())})
    else:
        table = pa.table({"y": pa.array(rows, width)})
    features: dict = {"features": "y"}
    if kind == "sparse":
        table = table.append_column("at", pa.array([[0, 1]] * 4))
        features = {"features": ("at", "y"), "features_as": "sparse", "n_features": 2}
    pq.write_table(table.append_column("label", label), tmp_path / "a.parquet", 2)
    given = {"features_as": "columns"} if kind == "columns" else features
    featurized(dkfeat.ParquetSource(str(tmp_path / "a.parquet"), blocksize=1, **given), tmp_path / "out")
    (message,) = rounded(caplog)
    assert message.startswith(
        f"{tmp_path}/a.parquet: row group 1, row 0, column y: 16777217 is an integer that float32"
    )


@pytest.mark.fault("I-44")
def test_warning__behind_an_exact_number_and_of_a_file_that_is_gone(tmp_path, caplog, monkeypatch):
    (tmp_path / "a.svm").write_text(f"1 1:{2**64} 2:1 # 1:16777217\n0 7:16777217\n")

    def gone(*_):
        raise FileNotFoundError(errno.ENOENT, "No such file")

    monkeypatch.setattr("dkfeat.sources.libsvm.source.parse_error", gone)  # which reads the file again
    source = dkfeat.LibsvmSource(str(tmp_path / "a.svm"), **GIVEN)
    featurized(source, tmp_path / "out")
    model = dkfeat.train(tmp_path / "out", dkfeat.SGD(epochs=1), progress=False)
    dkfeat.predict_file(model, source)
    line = len((tmp_path / "a.svm").read_text().splitlines()[0]) + 1
    assert [message.split(" is ")[0] for message in rounded(caplog)] == [
        f"{tmp_path}/a.svm, line at byte {line}: '7:16777217'"
    ] * 2


NUMBERS = [2**63 - 1, 2**24 + 1, 2**24 - 1, 2**25 + 2, 2**53, 2**53 + 1, 2**62, 2**63, 2**63 + 1, 2**64 - 1, 10**20]
NUMBERS = [*NUMBERS[:3], 10**20 + 1, *(-number for number in NUMBERS), *NUMBERS[3:], 10**22 + 1]


@pytest.mark.fault("I-44")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", first_quick(NUMBERS, 5))
def test_warning__if_and_only_if_the_number_changes(tmp_path, caplog, number, dtype):
    changes = int(np.dtype(dtype).type(float(number))) != number
    (tmp_path / "a.svm").write_text(f"1 1:{number}\n")
    featurized(dkfeat.LibsvmSource(str(tmp_path / "a.svm"), dtype=dtype, **GIVEN), tmp_path / "text")
    assert len(rounded(caplog)) == changes
    kind = "int64" if -(2**63) <= number < 2**63 else "uint64" if 0 <= number < 2**64 else None
    if kind is None:
        return
    caplog.clear()
    array = np.array([[1, number]], kind)
    pq.write_table(pa.table({"x": array[0], "label": [0, 1]}), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), features_as="columns", dtype=dtype)
    featurized(source, tmp_path / "parquet")
    assert len(rounded(caplog)) == changes
    for X in (array, sparse.csr_matrix(array)) if dtype == "float64" else ():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dkfeat.kernels.gmm(X)
            dkfeat.GCWSFeatures(4, random_state=0).fit(X)
        texts = [str(one.message) for one in caught]
        assert len(texts) == 2 * changes
        assert all(f"X holds {number} at row 0, column 1 (counted from 0)" in text for text in texts)
