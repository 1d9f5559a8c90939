"""Equal bytes for any scheduler, order of tasks, hash seed, clock, random state, BLAS library, and any other files."""

from __future__ import annotations

import random
import shutil
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy import sparse

import dkfeat
from dkfeat.engine.runners.local import LocalRunner
from tests import programs
from tests.conftest import first_quick, libsvm_text
from tests.engine.helpers import BLOCK, featurized
from tests.faults.resumed import assert_resumes
from tests.invariants import dataset_state
from tests.maps.small import FEATURE_MAPS, small_map, text_for


def test_golden__covers_the_source(golden, tiny_rows):
    shards, (manifest,) = golden
    assert len(shards) == manifest["records_file"]["shards"] > 10
    assert manifest["rows"] == tiny_rows[0].shape[0]
    assert manifest["nnz"] == tiny_rows[0].nnz
    assert manifest["n_empty_rows"] == 4
    assert manifest["labels"] == [-1, 1]


@pytest.mark.fault("D-01", "D-03")
def test_bytes__do_not_depend_on_the_order_of_tasks_that_are_done_thrice(source, golden, tmp_path, monkeypatch, rng):
    run = LocalRunner.run

    def thrice(self, task, splits, done):
        run(self, task, list(rng.permutation(np.array(splits, dtype=object))), lambda *_: None)
        run(self, task, splits[::-1], lambda *_: None)
        run(self, task, list(rng.permutation(np.array(splits, dtype=object))), done)

    monkeypatch.setattr(LocalRunner, "run", thrice)
    featurized(source, tmp_path / "features", scheduler="threads", n_workers=3)
    assert dataset_state(tmp_path / "features") == golden


@pytest.mark.slow
@pytest.mark.fault("D-01", "D-02")
@pytest.mark.cluster
@pytest.mark.parametrize("scheduler", ["threads", "processes"])  # nannies set another hash seed in the workers
def test_bytes__do_not_depend_on_hash_seeds(source, golden, tmp_path, scheduler):
    words = programs.module("tests.engine.helpers", *source.urlpath, tmp_path / "features", scheduler)
    ended = programs.run(words, PYTHONHASHSEED="1")
    assert ended.status == 0, ended.err
    assert dataset_state(tmp_path / "features") == golden


@pytest.mark.fault("D-01", "D-08")
def test_bytes__do_not_depend_on_global_random_states(source, golden, tmp_path, monkeypatch):
    encode = dkfeat.GCWSFeatures.encode

    def drawing(self, X):
        random.seed(len(str(X.nnz)))
        np.random.seed(X.shape[0])  # noqa: NPY002 - the global random state
        before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - the global random state
        encoded = encode(self, X)
        assert before == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002 - the global random state
        return encoded

    monkeypatch.setattr(dkfeat.GCWSFeatures, "encode", drawing)
    featurized(source, tmp_path / "features", scheduler="synchronous")
    assert dataset_state(tmp_path / "features") == golden


CLOCK = """
import sys, time
from datetime import datetime
import dkfeat.store.storage.base
from tests.engine.helpers import BLOCK, featurized

wrong = datetime.fromisoformat(sys.argv[1])

class Clock(datetime):
    @classmethod
    def now(cls, tz=None):
        return wrong.astimezone(tz)

time.time, time.time_ns = wrong.timestamp, lambda: int(wrong.timestamp() * 1e9)
dkfeat.store.storage.base.datetime = Clock
source = dkfeat.LibsvmSource(sys.argv[2], blocksize=BLOCK)
print(featurized(source, sys.argv[3], scheduler="synchronous").run["ended"])
"""


@pytest.mark.slow
@pytest.mark.fault("D-12")
@pytest.mark.parametrize("shift", [timedelta(days=365), timedelta(days=-365 * 60)], ids=str)
def test_bytes__do_not_depend_on_the_clock(source, golden, tmp_path, shift):
    # in a process of its own, because a wrong clock makes a client wait for years before it sends
    wrong = datetime.now(UTC) + shift
    words = [sys.executable, "-c", CLOCK, wrong.isoformat(), *source.urlpath, str(tmp_path / "features")]
    assert programs.run(words).out.startswith(f"{wrong:%Y-%m-%dT%H:%M}")
    assert dataset_state(tmp_path / "features") == golden


def rows_by_file(target):
    """The codes of each source file, by its name."""
    data = dkfeat.open_shards(target)
    codes = data.codes().codes
    ends = np.cumsum([entry.rows for entry in data.manifest.shards])
    found = {}
    for entry, end in zip(data.manifest.shards, ends, strict=True):
        found.setdefault(entry.source, []).append(codes[end - entry.rows : end].tobytes())
    return {name: b"".join(parts) for name, parts in found.items()}


@pytest.mark.fault("D-05")
def test_rows_of_a_file__do_not_depend_on_the_other_files(tiny_folder, tmp_path):
    texts = {name: (tiny_folder / f"{name}.svm").read_bytes() for name in "ab"}
    kept = {"n_features": 300, "zero_based": False, "label_dtype": "int64", "blocksize": BLOCK}

    def run(name, order=None, **files):
        folder = tmp_path / name
        folder.mkdir()
        for file, text in files.items():
            (folder / f"{file}.svm").write_bytes(texts[text])
        listed = [str(folder / f"{file}.svm") for file in order] if order else str(folder / "*.svm")
        featurized(dkfeat.LibsvmSource(listed, **kept), tmp_path / f"{name}-out")
        return rows_by_file(tmp_path / f"{name}-out")

    first = run("first", a="a", b="b")
    one, other = first["a.svm"], first["b.svm"]
    assert one != other
    assert run("reversed", order="ba", a="a", b="b") == first
    assert list(run("more", a="a", aa="b", b="b").items()) == [("a.svm", one), ("aa.svm", other), ("b.svm", other)]
    assert list(run("renamed", b="a", z="b").items()) == [("b.svm", one), ("z.svm", other)]


@pytest.mark.fault("D-04")
@pytest.mark.parametrize("name", first_quick(FEATURE_MAPS))
def test_rows__do_not_depend_on_the_splits(tiny_rows, tmp_path, name):
    X, y = (rows[:150] for rows in tiny_rows)
    path = tmp_path / "rows.svm"
    path.write_text(text_for(FEATURE_MAPS[name], libsvm_text(abs(X), y)))
    size = path.stat().st_size
    found = []
    for n_splits in (1, 3, 12, 100):
        source = dkfeat.LibsvmSource(str(path), blocksize=-(-size // n_splits))
        target = tmp_path / str(n_splits)
        features = small_map(name, n_components=24, random_state=3)
        featurized(source, target, map=features, scheduler="threads", n_workers=2)
        data = dkfeat.open_shards(target)
        features, labels = data.to_scipy()
        assert data.n_shards >= n_splits
        np.testing.assert_array_equal(labels, y)
        found.append(features.toarray() if sparse.issparse(features) else features)
    assert found[0].any()
    for features in found[1:]:
        np.testing.assert_array_equal(features, found[0])


FEATURES = """
import sys, numpy as np, scipy.sparse as sp
from tests.maps.small import FEATURE_MAPS, rows_for, small_map
rows = np.random.default_rng(1).lognormal(size=(200, 11)) * (np.random.default_rng(2).random((200, 11)) < 0.5)
for name in FEATURE_MAPS:
    X = rows_for(FEATURE_MAPS[name], rows)
    block = small_map(name, n_components=64, random_state=5).fit(X).transform(X)
    np.save(f"{sys.argv[1]}/{name}.npy", block.toarray() if sp.issparse(block) else block)
"""


@pytest.mark.slow
@pytest.mark.fault("D-02", "D-06")
def test_features__do_not_depend_on_blas_and_hash_seeds(tmp_path):
    environments = [
        {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1"},
        {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Prescott", "PYTHONHASHSEED": "2"},
    ]
    for number, environment in enumerate(environments):
        (tmp_path / str(number)).mkdir()
        ended = programs.run([sys.executable, "-c", FEATURES, str(tmp_path / str(number))], **environment)
        assert ended.status == 0, ended.err
    for name, cls in FEATURE_MAPS.items():
        first, *others = (np.load(tmp_path / str(number) / f"{name}.npy") for number in range(len(environments)))
        for other in others:
            if cls.layout == "codes":  # codes are equal on every machine; other layouts only on equal hardware
                np.testing.assert_array_equal(other, first, err_msg=name)
            else:
                np.testing.assert_allclose(other, first, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def half_way(tiny_folder, tmp_path_factory):
    """A run that was killed, with its source beside it."""
    folder = tmp_path_factory.mktemp("half-way")
    shutil.copytree(tiny_folder, folder / "in")
    source = dkfeat.LibsvmSource(str(folder / "in" / "*.svm"), blocksize=BLOCK)
    words = programs.module("tests.engine.helpers", *source.urlpath, folder / "features", "threads")
    programs.run_killed("after_publish:10", words)
    return folder


@pytest.mark.slow
@pytest.mark.fault("V-02")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"scheduler": "cluster", "n_workers": 1, "memory_limit": "1GiB"}, marks=pytest.mark.cluster),
        {"scheduler": "synchronous", "progress": True},
    ],
    ids=lambda change: change["scheduler"],
)
def test_resume__with_what_decides_no_value_changed__is_accepted(half_way, golden, tmp_path, change):
    elsewhere = shutil.copytree(half_way, tmp_path / "elsewhere")  # the source's root differs, too
    source = dkfeat.LibsvmSource(str(elsewhere / "in" / "*.svm"), blocksize=BLOCK)
    assert_resumes(source, elsewhere / "features", golden, finished=False, **change)
