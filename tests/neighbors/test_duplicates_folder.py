"""Duplicates in a folder: the tables, what is refused, and the same bytes after an interruption."""

import gzip
import json
from functools import partial

import dask
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

import dkfeat
from dkfeat.errors import CommitConflictError, CommitError, ConfigError, ShardError, SpecConflictError, TargetBusyError
from dkfeat.neighbors import Duplicates, drop_duplicates, duplicates
from dkfeat.neighbors.deduplication import groups as group_files
from dkfeat.neighbors.deduplication import pairs as pair_tasks
from dkfeat.neighbors.deduplication import runs, stages
from dkfeat.neighbors.deduplication import search as searching
from dkfeat.neighbors.deduplication.runs import BandRuns
from dkfeat.store.commit.begin import hold
from dkfeat.store.storage.local import LocalStorage
from tests.conftest import first_quick
from tests.neighbors.rows import assert_same, featurized, write

N_ROWS, N_COLUMNS = 300, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in two files, in groups of ten near copies of different strengths, with copies and rows of zeros."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    X = np.repeat(rng.lognormal(size=(30, N_COLUMNS)), 10, axis=0)
    strength = np.repeat(np.tile([0.02, 0.1, 0.4], 10), 10)[:, None]
    X = (X * np.exp(strength * rng.standard_normal(X.shape)))[rng.permutation(N_ROWS)]
    X[[290, 150, 295]], X[[20, 200]] = X[7], 0
    write(X[:170], folder / "a.svm")
    write(X[170:], folder / "b.svm")
    featurized(folder / "*.svm", folder / "shards", dkfeat.DartFeatures(128, random_state=1), N_COLUMNS, "9kB")
    return folder


def test_tables__hold_the_pairs_and_each_row_with_its_place(folder, tmp_path, monkeypatch):
    expected = duplicates(folder / "shards", progress=False)
    monkeypatch.setattr(group_files, "MAX_PIECE_PAIRS", 1)
    monkeypatch.setattr(group_files, "PIECE_ROWS", 40)
    found = duplicates(folder / "shards", target=tmp_path / "out", progress=False)
    pairs, groups = (pq.read_table(tmp_path / "out" / name / "data").to_pandas() for name in ("pairs", "groups"))
    assert np.array_equal(pairs[["row", "other"]], expected.pairs)
    assert np.array_equal(pairs["similarity"], expected.similarities)
    assert np.array_equal(groups["row"], np.arange(N_ROWS))
    assert np.array_equal(groups["group"], expected.groups)
    assert np.array_equal(groups["keep"], expected.kept)
    assert groups["source_file"].tolist() == ["a.svm"] * 170 + ["b.svm"] * 130
    assert np.array_equal(groups["file_row"], [*range(170), *range(130)])
    assert groups["source_split"].nunique() > 5
    assert_same(found, expected, ("pairs", "similarities", "groups", "kept"))
    assert found.to_mapping() == expected.to_mapping()
    assert (found.n_pairs, found.n_kept) == (len(pairs), groups["keep"].sum())
    assert found.n_groups == (np.unique(expected.groups, return_counts=True)[1] > 1).sum()
    assert found.largest_group == groups["group"].value_counts().max()
    assert found.n_copies == (expected.similarities == 1).sum() >= 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["duplicates.json", "groups", "index", "pairs"]


def test_groups__keep_the_columns_of_the_shards(tmp_path):
    import pyarrow as pa

    table = {"a": [1.0, 2.0, 1.0], "b": [3.0, 1.0, 3.0], "id": ["x", None, "z"]}
    for kept, name in (("id", "shards"), ("row", "taken")):
        pq.write_table(
            pa.table({kept if key == "id" else key: of for key, of in table.items()}), tmp_path / "r.parquet"
        )
        source = dkfeat.ParquetSource(str(tmp_path / "r.parquet"), label=None, keep=(kept,))
        dkfeat.featurize(source, tmp_path / name, dkfeat.DartFeatures(64, random_state=0), progress=False)
    duplicates(tmp_path / "shards", target=tmp_path / "out", progress=False)
    found = pq.read_table(tmp_path / "out" / "groups" / "data")
    assert (found["id"].to_pylist(), found["group"].to_pylist()) == (["x", None, "z"], [0, 1, 0])
    with pytest.raises(ConfigError, match=r"keeps a column 'row', .* featurize with another name"):
        duplicates(tmp_path / "taken", target=tmp_path / "other", progress=False)


def test_file_row__counts_the_rows_of_each_file_in_groups_of_files_and_pieces(tmp_path):
    lines = [f"1 1:{number + 1} 2:3\n" for number in range(300)]
    (tmp_path / "rows").mkdir()
    for name, some in {"a": lines[:3], "b": lines[3:5], "c": ["1 1:1 1:2\n", *lines[5:9]]}.items():
        (tmp_path / "rows" / f"{name}.svm").write_text("".join(some))
    with gzip.open(tmp_path / "rows" / "d.svm.gz", "wt") as file:
        file.write("".join(lines[9:]))
    allowed = {"on_bad_row": "quarantine", "max_bad_rows": 1}
    source = dkfeat.LibsvmSource(str(tmp_path / "rows" / "*"), n_features=3, zero_based=True, blocksize=1024, **allowed)
    dart = dkfeat.DartFeatures(64, random_state=0)
    manifest = dkfeat.featurize(source, tmp_path / "shards", dart, progress=False)
    assert any(entry.rows_by_file for entry in manifest.shards)
    assert any(entry.piece > 1 for entry in manifest.shards)
    duplicates(tmp_path / "shards", target=tmp_path / "out", progress=False)
    groups = pq.read_table(tmp_path / "out" / "groups" / "data").to_pandas()
    files = ["a.svm"] * 3 + ["b.svm"] * 2 + ["c.svm"] * 4 + ["d.svm.gz"] * 291
    assert groups["source_file"].tolist() == files
    assert groups["file_row"].tolist() == [*range(3), *range(2), *range(4), *range(291)]


def test_equal_shards__made_again_elsewhere_give_the_same_tables(folder, tmp_path):
    duplicates(folder / "shards", target=tmp_path / "out", progress=False)
    again = dkfeat.featurize(str(folder / "*.svm"), tmp_path / "again", like=folder / "shards", progress=False)
    assert again.sha256 != dkfeat.open_shards(folder / "shards").manifest.sha256
    duplicates(tmp_path / "again", target=tmp_path / "of-again", progress=False)
    assert data_files(tmp_path / "of-again") == data_files(tmp_path / "out")
    for name in "ab":
        (tmp_path / f"{name}.svm").write_bytes((folder / f"{name}.svm").read_bytes())  # with another time
    dkfeat.featurize(str(tmp_path / "*.svm"), tmp_path / "copied", like=folder / "shards", progress=False)
    stages = []
    found = duplicates(tmp_path / "copied", target=tmp_path / "out", progress=stages.append)
    assert stages == []
    left = drop_duplicates(tmp_path / "copied", tmp_path / "out", tmp_path / "distinct", progress=False)
    assert left.rows == found.n_kept


def test_target__of_another_search_or_of_something_else(folder, tmp_path):
    shards, out = folder / "shards", tmp_path / "out"
    duplicates(shards, target=out, progress=False)
    with pytest.raises(
        SpecConflictError,
        match=r"threshold: 0.8 there, 0.7 asked; use the same, leave them out, or choose another target",
    ):
        duplicates(shards, 0.7, target=out, progress=False)
    source = dkfeat.LibsvmSource(str(folder / "b.svm"), n_features=N_COLUMNS, zero_based=True)
    dkfeat.featurize(source, tmp_path / "b", like=shards, progress=False)
    with pytest.raises(
        SpecConflictError, match=r"holds duplicates among 300 rows, but 130 rows of .*b do not begin with"
    ):
        duplicates(tmp_path / "b", target=out, progress=False)
    for name in ("notes", "busy"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    with pytest.raises(ConfigError, match="holds other files than duplicates; choose a new folder"):
        duplicates(shards, target=tmp_path / "notes", progress=False)
    with pytest.raises(ConfigError, match="which holds features and may hold no other files"):
        duplicates(shards, target=shards / "out", progress=False)
    with pytest.raises(CommitError, match="its parent folder does not exist"):
        duplicates(shards, target=tmp_path / "no" / "folder", progress=False)
    with pytest.raises(ConfigError, match="is no folder of duplicates; make it"):
        Duplicates.open(tmp_path / "notes")
    with (
        hold(LocalStorage(str(tmp_path / "busy" / "groups"))),
        pytest.raises(TargetBusyError, match="is being written by"),
    ):
        duplicates(shards, target=tmp_path / "busy", progress=False)
    record = json.loads((out / "duplicates.json").read_text())
    # dkfeat 0.2 wrote a record without results when a search began
    for other in ({"format": 2}, {**record, "results": {"n_rows": 3}}, {**record, "results": None}):
        (out / "duplicates.json").write_text(json.dumps(other))
        with pytest.raises(ShardError, match="not as this version of dkfeat writes it; choose another folder"):
            duplicates(shards, target=out, progress=False)


def data_files(out):
    return {path.relative_to(out): path.read_bytes() for path in sorted(out.glob("*/data/*"))}


class Interrupted(Exception):
    pass


EXACT = ["read rows", "compare exactly"]


STAGES = ["compare", "group", "write pairs", "hash", "merge", "find copies", "merge pairs", *EXACT, "write groups"]


@pytest.mark.parametrize("stage", first_quick(STAGES, 2))
def test_interrupted_search__continues_with_the_same_bytes(stage, folder, tmp_path, monkeypatch):
    shards = dkfeat.open_shards(folder / "shards")
    monkeypatch.setattr(stages, "RUN_ROWS", 1)
    monkeypatch.setattr(stages, "_TASK_KEYS", 0)
    monkeypatch.setattr(stages, "MOST_RUNS", 3)
    monkeypatch.setattr(stages, "MOST_OPEN", 6)
    monkeypatch.setattr(runs, "MERGED", 2)
    search = partial(
        duplicates, shards, **({"verify": "exact", "source": str(folder / "*.svm")} if stage in EXACT else {})
    )
    search(target=tmp_path / "whole", progress=False)

    def interrupt(state):
        if state.stage == stage:
            raise Interrupted

    stale = tmp_path / "out" / "index" / "data" / "run-1-2"
    stale.parent.mkdir(parents=True)
    stale.touch()
    with dask.config.set(scheduler="synchronous"), pytest.raises(Interrupted):
        search(target=tmp_path / "out", progress=interrupt)
    assert not stale.exists()
    if stage in ("group", "write pairs"):  # merged pairs are not kept twice
        left = [path for path in stale.parent.iterdir() if path.name.startswith(("same-", "near-"))]
        assert {path.stat().st_size for path in left} == {16}
    with pytest.raises(CommitConflictError, match="allow resume"):
        search(target=dkfeat.Target(tmp_path / "out", resume=False), progress=False)
    with pytest.raises(ConfigError, match=r"holds a search that was interrupted; .* continue it"):
        Duplicates.open(tmp_path / "out")
    with pytest.raises(SpecConflictError, match=r"threshold: 0.8 there, 0.9 asked"):
        search(0.9, target=tmp_path / "out", progress=False)
    calls = []
    add, find = BandRuns._add, pair_tasks.find_pairs
    monkeypatch.setattr(BandRuns, "_add", lambda *given: (calls.append("add"), add(*given))[1])
    monkeypatch.setattr(searching, "find_pairs", lambda *given: (calls.append("find"), find(*given))[1])
    found = search(target=tmp_path / "out", progress=False)
    assert data_files(tmp_path / "out") == data_files(tmp_path / "whole")
    assert (tmp_path / "out" / "duplicates.json").read_bytes() == (tmp_path / "whole" / "duplicates.json").read_bytes()
    files = {path.name for path in (tmp_path / "out" / "index" / "data").iterdir()}
    assert {"codes", "groups-300", "copies-300"} == {name for name in files if not name.startswith("run-")}
    left = {"hash": (shards.n_shards - 1, 13), "merge": (0, 13), "find copies": (0, 13), "compare": (0, 12)}.get(
        stage, (0, 0)
    )
    assert found.bands.n_bands == 13
    assert (calls.count("add"), calls.count("find")) == left


def test_exact__pairs_by_the_kernel_of_the_rows(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "_EXACT_PAIRS", 100)
    monkeypatch.setattr(pair_tasks, "_COMPARED", 7)
    for module in (group_files, searching):
        monkeypatch.setattr(module, "BLOCK_ROWS", 64)
    shards = dkfeat.open_shards(folder / "shards")
    options = {"n_features": N_COLUMNS, "dtype": np.float32, "zero_based": True}
    X = sp.vstack([load_svmlight_file(folder / f"{name}.svm", **options)[0] for name in "ab"], format="csr")
    of_codes = duplicates(shards, 0.8, progress=False)
    source = str(folder / "*.svm")
    found = duplicates(shards, 0.8, verify="exact", source=source, target=tmp_path / "out", progress=False)
    in_memory = duplicates(shards, 0.8, verify="exact", source=X, progress=False)
    kernel = shards.map.exact_kernel(X)
    left, right = found.pairs.T
    assert np.array_equal(found.similarities, kernel[left, right])
    assert found.similarities.min() >= 0.8
    assert set(map(tuple, found.pairs)) - set(map(tuple, of_codes.pairs))  # their estimates are too low
    assert_same(in_memory, found, ("pairs", "similarities", "groups"))
    with pytest.raises(SpecConflictError, match='verify: "exact" there, "codes" asked'):
        duplicates(shards, 0.8, target=tmp_path / "out", progress=False)


def test_exact__a_pair_at_the_threshold_is_one(tmp_path):
    (tmp_path / "rows.svm").write_text("1 0:4\n1 0:5\n1 0:1\n")
    source = dkfeat.LibsvmSource(tmp_path / "rows.svm", n_features=1, zero_based=True)
    dkfeat.featurize(source, tmp_path / "shards", dkfeat.DartFeatures(256, random_state=0), progress=False)
    found = duplicates(tmp_path / "shards", 0.8, verify="exact", source=source, progress=False)
    assert (found.pairs.tolist(), found.similarities.tolist()) == ([[0, 1]], [0.8])


def test_exact__bad_arguments(folder):
    shards = folder / "shards"
    with pytest.raises(ConfigError, match="verify='all', but"):
        duplicates(shards, verify="all", progress=False)
    with pytest.raises(ConfigError, match=r"verify='exact' needs the source .*; pass source and it, or neither"):
        duplicates(shards, verify="exact", progress=False)
    with pytest.raises(ConfigError, match=r"verify='exact' needs the source of the shards"):
        duplicates(shards, source=str(folder / "*.svm"), progress=False)
    with pytest.raises(SpecConflictError):
        duplicates(shards, verify="exact", source=str(folder / "a.svm"), progress=False)


def test_stages__tell_the_bands_before_the_comparisons(folder, capsys):
    found = duplicates(folder / "shards")
    text = capsys.readouterr().err
    assert f"{found.bands.n_bands} bands of {found.bands.n_codes} codes; 95.4% of pairs at the threshold 0.8" in text
    assert text.index(" bands of ") < text.index("compare: done")
