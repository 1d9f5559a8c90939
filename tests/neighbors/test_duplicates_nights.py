"""Searches for duplicates that follow new shards: equal to one search of all rows, however they came."""

import hashlib
import shutil
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dkfeat
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.neighbors import Duplicates, drop_duplicates, duplicates
from dkfeat.neighbors.deduplication import groups, runs, stages
from dkfeat.store.commit.begin import hold
from tests.neighbors.rows import assert_same, featurized, write

N_COLUMNS, N_FILES = 30, 7
MODULE = "dkfeat.neighbors.deduplication.duplicates"
DART = dkfeat.DartFeatures(128, random_state=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of rows in loose groups, whose rows chains connect, with copies and rows of zeros."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    X = np.repeat(rng.lognormal(size=(12, N_COLUMNS)), 10, axis=0)
    X = X * np.exp(0.25 * rng.standard_normal(X.shape))
    X[[40, 90, 117]], X[[3, 77]] = X[5], 0
    X = X[rng.permutation(len(X))]
    for number, some in enumerate(np.array_split(X, N_FILES)):
        write(some, folder / f"{number}.svm")
    return [folder / f"{number}.svm" for number in range(N_FILES)]


def add(folder, files):
    """Add a batch of files to a data set."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / "rows")
    featurized(folder / "rows" / "*.svm", folder / "features", DART, N_COLUMNS, blocksize="2kB")


def search(folder, out="out", threshold=0.72, **options):
    return duplicates(folder / "features", threshold, target=folder / out, progress=False, **options)


def tables(out):
    return {name: pq.read_table(out / name / "data").to_pydict() for name in ("pairs", "groups")}


def files_of(out):
    """Bytes of the tables, the record and what new rows are joined to."""
    paths = [*out.glob("*/data/*"), out / "duplicates.json"]
    return {path.relative_to(out): path.read_bytes() for path in paths}


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    night_of=st.lists(st.integers(0, 3), min_size=N_FILES, max_size=N_FILES),
    searched=st.lists(st.booleans(), min_size=4, max_size=4),
    sizes=st.sampled_from([{"RUN_ROWS": 1, "_TASK_KEYS": 0}, {"RUN_ROWS": 30, "_TASK_KEYS": 300}]),
)
def test_nights__give_the_tables_of_one_search(night_of, searched, sizes, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nights")
    few_runs = mock.patch.multiple(runs, MERGED=2, _PAIRS=7)
    few_rows = mock.patch.object(groups, "RANGE_ROWS", 17)
    with few_runs, few_rows, mock.patch.multiple(stages, MOST_RUNS=2, MOST_OPEN=4, **sizes):
        for night in range(4):
            new = [file for file, of in zip(files, night_of, strict=True) if of == night]
            if new:
                add(folder, new)
            if new and searched[night]:
                search(folder)
        found = search(folder)
    assert found.n_compared == found.n_candidates
    assert found.to_mapping() == search(folder, "scratch").to_mapping()
    assert tables(folder / "out") == tables(folder / "scratch")
    shutil.rmtree(folder)


CHAIN = [f"1 0:{1.12**step:.6f}\n" for step in range(9)]  # each like its neighbours, and less like the others


def chained(folder, *nights):
    """Featurize rows of a chain by their places, a file a night, and yield after each night."""
    (folder / "rows").mkdir()
    for night, places in enumerate(nights):
        (folder / "rows" / f"{night}.svm").write_text("".join(CHAIN[place] for place in places))
        featurized(folder / "rows" / "*.svm", folder / "features", dkfeat.DartFeatures(512, random_state=0), 1)
        yield


def test_merged_groups__are_written_anew_and_other_shards_stay(tmp_path):
    expected = {}
    for night, _ in enumerate(chained(tmp_path, [8], [0, 2], [5], [1, 3, 4])):
        stored = {path: path.stat().st_ino for path in (tmp_path / "out" / "groups" / "data").glob("*")}
        expected[night] = search(tmp_path, threshold=0.8).groups.tolist()
    assert expected == {0: [0], 1: [0, 1, 2], 2: [0, 1, 2, 3], 3: [0, 1, 1, 1, 1, 1, 1]}
    stayed = [path.stat().st_ino == number for path, number in sorted(stored.items())]
    assert stayed == [True, False, False]
    whole = search(tmp_path, "scratch", threshold=0.8)
    assert tables(tmp_path / "out") == tables(tmp_path / "scratch")
    assert whole.to_mapping() == Duplicates.open(tmp_path / "out").to_mapping()


def test_keep_earlier__keeps_all_rows_that_were_kept(tmp_path):
    for _ in chained(tmp_path, [8], [0, 2], [5], [1, 3, 4]):
        found = search(tmp_path, threshold=0.8, keep_earlier=True)
    assert found.groups.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert found.kept.tolist() == [True, True, True, True, False, False, False]
    assert (found.n_kept, found.n_groups) == (4, 1)
    left = drop_duplicates(tmp_path / "features", tmp_path / "out", tmp_path / "distinct", progress=False)
    assert left.rows == 4
    with pytest.raises(SpecConflictError, match="keep_earlier: true there, false asked"):
        search(tmp_path, threshold=0.8)


def test_keep_earlier__needs_a_folder(files, tmp_path):
    add(tmp_path, files[:3])
    for target in ("memory://bucket/out", None):
        with pytest.raises(ConfigError, match="needs a folder as target"):
            duplicates(tmp_path / "features", target=target, keep_earlier=True, progress=False)


def test_index__has_the_bytes_of_earlier_versions(tmp_path):
    for night in range(2):
        rows = [f"1 {row % 5}:{1 + row // 5} {5 + row % 3}:{2 + night}\n" for row in [*range(50), *range(10)]]
        (tmp_path / f"{night}.svm").write_text("".join(rows))
        add(tmp_path, [tmp_path / f"{night}.svm"])
        search(tmp_path, keep_earlier=True)
    files = sorted((tmp_path / "out" / "index" / "data").iterdir())
    assert [file.name for file in files] == ["codes", "copies-120", "groups-120", "kept-120", "run-0-60", "run-60-120"]
    found = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert found == "4f4d14b12dafeb621ab24f45f9da404cf34e478aeca6c929447014d1cef78773", "new rows could not be joined"


def test_damaged_index__is_an_error_that_names_the_file_and_changes_nothing(files, tmp_path):
    add(tmp_path, files[:5])
    search(tmp_path, keep_earlier=True)
    add(tmp_path, files[5:])
    before, kinds = files_of(tmp_path / "out"), set()
    for path in (tmp_path / "out" / "index" / "data").iterdir():
        whole = path.read_bytes()
        kinds.add(path.name.partition("-")[0])
        cut, begin, end = whole[: len(whole) // 2], bytes([whole[0] ^ 1]), bytes([whole[-1] ^ 1])
        for damaged in (None, b"", cut, cut + bytes(len(whole) - len(cut)), begin + whole[1:], whole[:-1] + end):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            state = "missing" if damaged is None else "not as"
            with pytest.raises(ShardError, match=rf"{path} is {state}.*restore it from a copy, or choose another"):
                search(tmp_path, keep_earlier=True)
            path.write_bytes(whole)
    assert kinds == {"codes", "run", "groups", "copies", "kept"}
    assert files_of(tmp_path / "out") == before
    assert np.array_equal(search(tmp_path, keep_earlier=True).groups, search(tmp_path, "scratch").groups)


@pytest.mark.parametrize("table", ["pairs", "groups"])
def test_lost_shard__is_made_again(table, files, tmp_path):
    add(tmp_path, files[:3])
    search(tmp_path, keep_earlier=True)
    for new in ([], files[3:]):
        add(tmp_path, new)
        next((tmp_path / "out" / table / "data").iterdir()).unlink()
        with mock.patch(f"{MODULE}.Index.record", side_effect=InterruptedError), pytest.raises(InterruptedError):
            search(tmp_path, keep_earlier=True)
        for out in ("out", "whole"):
            search(tmp_path, out, keep_earlier=True)
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_too_many_new_pairs__leave_the_earlier_result(files, tmp_path):
    add(tmp_path, files[:3])
    earlier, before = search(tmp_path).to_mapping(), tables(tmp_path / "out")
    add(tmp_path, files[3:])
    with mock.patch.object(groups, "MAX_PIECE_PAIRS", 1):
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"many times more pairs than a file .* choose another target"):
                search(tmp_path)
            assert Duplicates.open(tmp_path / "out").to_mapping() == earlier
            assert tables(tmp_path / "out") == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "copy"])
def test_other_new_rows__after_an_interrupted_search(name, files, tmp_path):
    one, out, folder = tmp_path / "one", tmp_path / "out", tmp_path / name
    add(one, files[:3])
    search(one, out)
    shutil.copytree(one, tmp_path / "copy")
    add(one, files[3:5])
    with mock.patch(f"{MODULE}.Index.record", side_effect=InterruptedError), pytest.raises(InterruptedError):
        search(one, out)
    with pytest.raises(ConfigError, match="holds a search that was interrupted"):
        Duplicates.open(out)
    add(folder, files[5:])
    found = search(folder, out)
    assert found.to_mapping() == search(folder, "scratch").to_mapping()
    assert tables(out) == tables(folder / "scratch")


def test_search__that_another_one_overtakes_opens_its_result(files, tmp_path):
    def after_another(storage):
        with mock.patch(f"{MODULE}.hold", hold):
            search(tmp_path)
        return hold(storage)

    for new in (files[:3], files[3:]):
        add(tmp_path, new)
        reports = []
        with mock.patch(f"{MODULE}.hold", after_another):
            duplicates(tmp_path / "features", 0.72, target=tmp_path / "out", progress=reports.append)
        assert reports == []


def test_url__is_searched_anew(files, tmp_path):
    target = f"memory://nights-{tmp_path.name}/out"
    for first, stop in ((0, 3), (3, N_FILES)):
        add(tmp_path, files[first:stop])
        found = duplicates(tmp_path / "features", 0.72, target=target, progress=False)
    expected = search(tmp_path)
    assert found.to_mapping() == expected.to_mapping()
    assert_same(found, expected, ("pairs", "groups"))
