"""Tables made from shards: rows, extension by a batch, the same bytes after an interruption, what is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.tables import TableJob, TableSpec, write_table
from dkfeat.errors import ConfigError, SpecConflictError

PIECE_ROWS = 2


class TwiceEach(TableJob):
    """Two rows for each row of the data set: its number and its first code."""

    def columns(self, split, piece):
        rows = [row for row in range(piece.block.n_rows) for _ in range(2)]
        first = self.first_row(split, piece)
        codes = [int(piece.block.X.codes[row, 0]) for row in rows]
        return {"row": [first + row for row in rows], "code": codes}


class Interrupted(TwiceEach):
    def columns(self, split, piece):
        if self.first_row(split, piece) >= 4:
            raise RuntimeError("interrupted")
        return TwiceEach.columns(self, split, piece)


SPEC = TableSpec(
    layout="pairs",
    schema=pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("row", "code")]),
    settings={"times": 2},
    piece_rows=PIECE_ROWS,
    row_bytes=32,
)


def write(folder, job=TwiceEach, out="table", spec=SPEC):
    data = dkfeat.open_shards(folder / "features")
    return write_table(data, folder / out, spec, job, stage="table", client=None, progress=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows").mkdir()
    add(tmp_path, "a", 5)
    add(tmp_path, "b", 3)
    return tmp_path


def add(folder, name, n_rows):
    (folder / "rows" / f"{name}.svm").write_text("".join(f"1 {i + 1}:1\n" for i in range(n_rows)))
    dart = dkfeat.DartFeatures(16, random_state=0)
    dkfeat.featurize(
        dkfeat.LibsvmSource(str(folder / "rows" / "*.svm"), n_features=9, zero_based=False),
        folder / "features",
        dart,
        progress=False,
    )


def files(folder):
    return {file.name: file.read_bytes() for file in sorted((folder / "data").iterdir())}


def test_rows_of_all_pieces_are_there_in_order(folder):
    manifest = write(folder)
    found = pq.read_table(folder / "table" / "data")
    assert found["row"].to_pylist() == [row for row in range(8) for _ in range(2)]
    codes = dkfeat.open_shards(folder / "features").codes().codes[:, 0].tolist()
    assert found["code"].to_pylist() == [code for code in codes for _ in range(2)]
    assert manifest.rows == 16
    assert len(manifest.shards) == 3 + 2
    assert not dkfeat.open_shards(folder / "table").verify().problems
    assert not found.schema.field("row").nullable


def test_a_new_batch_is_added(folder):
    before = write(folder)
    add(folder, "c", 2)
    after = write(folder)
    assert after.shards[: len(before.shards)] == before.shards
    assert pq.read_table(folder / "table" / "data")["row"].to_pylist()[-4:] == [8, 8, 9, 9]


def test_an_interrupted_table_is_continued_with_the_same_bytes(folder):
    write(folder, out="whole")
    with pytest.raises(RuntimeError):
        write(folder, Interrupted)
    assert files(folder / "table").items() < files(folder / "whole").items()
    write(folder)
    assert files(folder / "table") == files(folder / "whole")


def test_a_table_of_other_settings_is_refused(folder):
    write(folder)
    other = TableSpec(**{name: getattr(SPEC, name) for name in SPEC.__slots__} | {"settings": {"times": 3}})
    with pytest.raises(SpecConflictError, match="times"):
        write(folder, spec=other)


def test_a_table_is_not_a_data_set_of_features(folder):
    write(folder)
    data = dkfeat.open_shards(folder / "table")
    assert data.layout == "pairs"
    assert not data.has_features
    assert dataset_reader(folder / "table") is not None
    with pytest.raises(ConfigError, match="holds pairs, not features"):
        next(data.batches(2))
    with pytest.raises(ConfigError, match="holds pairs, not features"):
        write_table(data, folder / "other", SPEC, TwiceEach, stage="table", client=None, progress=False)
