"""Digest of rows: equal for equal values, whatever holds them, and different for any other."""

import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dkfeat.sources.digest import digest_of, record_of
from dkfeat.sources.memory import arrow_table

TIMES = [datetime.datetime(2026, 1, day, 10, tzinfo=datetime.UTC) for day in (1, 2, 10)]
LISTS = [[1, 2], [], [3]]


def sha256(table, *cuts):
    parts = [table.slice(start, stop - start) for start, stop in pairwise([0, *cuts, table.num_rows])]
    return record_of(table.column_names, map(digest_of, parts)).etag


def column(*args):
    return arrow_table(pa.table({"x": pa.array(*args)}))


@pytest.mark.parametrize(
    ("values", "one", "other"),
    [
        ([1, None, -3], pa.int8(), pa.float64()),
        ([0.5, None, 2.0], pa.float32(), pa.float64()),
        ([1, 2, 2**60 + 1], pa.int64(), pa.uint64()),
        (["a", None, "bc"], pa.string_view(), pa.dictionary(pa.int8(), pa.string())),
        (TIMES, pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")),
        (LISTS, pa.list_(pa.int32()), pa.large_list(pa.float32())),
        ([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2), pa.list_(pa.int64())),
        ([None] * 3, pa.null(), pa.string()),
    ],
)
def test_digest__is_that_of_the_values_not_of_their_storage(values, one, other):
    expected = sha256(column(values, one))
    assert sha256(column(values, other)) == expected
    for cuts in ((1,), (2,), (0, 1, 2, 3)):
        assert sha256(column(values, one), *cuts) == expected


def test_digest__differs_for_other_rows_cells_and_names():
    pairs = [("ab", "c"), ("a", "bc"), ("c", "ab"), ("", "abc"), (["ab"], "c"), (None, "abc"), ([1, 2], 3), ([1], 2)]
    tables = [pa.table({"x": [one, one], "y": [other, other]}) for one, other in pairs]
    tables += [pa.table({"y": [each] * 2, "x": ["b", "a"]}) for each in (1, True, "1", 2**60, 2**60 + 1, [1], [None])]
    day = datetime.date(2026, 1, 2)
    tables += [column(values) for values in ([True], ["True"], [day], [str(day)], [b"x"], ["x"])]
    tables += [column(values) for values in ([1, 2, None], [1, None, 2], [1, None], [1, 2, None, None], [1, 2, 0])]
    tables += [column(values) for values in ([[1], [2, 3]], [[1, 2], [3]], [["a", "b"]], [["a, b"]], [[]], [None])]
    tables += [column(values) for values in (np.array([-(2**60)]), np.array([2**64 - 2**60], np.uint64))]  # equal bits
    assert len({sha256(table) for table in tables}) == len(tables)


def test_digest__is_that_of_every_row_of_many_batches():
    """Rows 4,096 and on are in another batch of cells, and the last ones of another part."""
    X = np.arange(10_000.0)
    table = pa.table({"x": X, "text": X.astype(str)})
    found = {sha256(table)}
    for row in (0, 4095, 4096, 9999):
        changed = X.copy()
        changed[row] += 0.5
        found.add(sha256(table.set_column(0, "x", pa.array(changed))))
    assert len(found) == 5
    assert sha256(table, 4095, 4097) in found
    nan = pa.table({"x": np.where(X == 7, np.nan, X), "text": X.astype(str)})
    null = pa.table({"x": pa.array(X, mask=X == 7), "text": X.astype(str)})
    assert sha256(nan) == sha256(null)
