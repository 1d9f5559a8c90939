"""Landmarks: drawn from the whole source, stored in a file beside the spec, and loaded by runs and models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import dkfeat
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.engine.tasks import landmarks
from dkfeat.errors import ConfigError, InputError, ShardError, SpecConflictError
from dkfeat.store.storage import open_storage
from tests.conftest import libsvm_text
from tests.engine.helpers import BLOCK, featurized, resolved
from tests.invariants import assert_dataset_whole, dataset_state
from tests.programs import run_killed
from tests.sources.parquet.rows import feature_columns, write


def nystroem(n_components=30, **params):
    return dkfeat.NystroemFeatures(n_components, **{"random_state": 3, **params})


@pytest.fixture
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)


@pytest.fixture(scope="module")
def golden(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK), folder, map=nystroem())
    return folder


def landmarks_file(folder):
    (file,) = folder.rglob("landmarks-*.npz")
    return file


def test_featurize__draws_from_the_whole_source(golden, tiny_rows):
    X, _ = tiny_rows
    data, fitted = dkfeat.open_shards(golden), nystroem().fit(X)
    assert data.map.fingerprint() == fitted.fingerprint()
    assert np.array_equal(data.to_scipy()[0], fitted.transform(X))
    assert np.array_equal(data.to_dask()[0].compute(), fitted.transform(X))
    assert data.map.landmark_rows_.max() > 250  # the second file's rows
    assert_dataset_whole(golden, committed=True)


def test_featurize__file_is_named_by_its_hash(golden):
    spec = json.loads((golden / "_dkfeat/spec.json").read_bytes())
    digest = subprocess.run(["sha256sum", landmarks_file(golden)], capture_output=True, text=True, check=True).stdout
    assert landmarks_file(golden).name == f"landmarks-{digest.split()[0]}.npz"
    assert spec["map"]["landmarks"] == digest.split()[0]
    assert len((golden / "_dkfeat/spec.json").read_bytes()) < 1500


@pytest.mark.parametrize("blocksize", [1_000, 50_000])
def test_featurize__landmarks_do_not_depend_on_the_blocks(blocksize, tiny_folder, golden, tmp_path):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=blocksize)
    featurized(source, tmp_path / "out", map=nystroem(), scheduler="synchronous")
    assert landmarks_file(tmp_path / "out").read_bytes() == landmarks_file(golden).read_bytes()


def test_featurize__reads_only_splits_that_hold_a_landmark(source, tmp_path):
    seen = []
    few = nystroem(2)
    featurized(source, tmp_path / "out", map=few, progress=lambda state: seen.append((state.stage, state.tasks)))
    counts = {stage: max(tasks for at, tasks in seen if at == stage) for stage in ("scan", "landmarks", "featurize")}
    assert counts["landmarks"] <= 2 < counts["scan"] == counts["featurize"]
    assert not hasattr(few, "seed_")


def test_featurize__a_settled_source_is_counted_first(tiny_folder, golden, tmp_path):
    source = dkfeat.LibsvmSource(
        str(tiny_folder / "*.svm"), blocksize=BLOCK, n_features=300, zero_based=False, label_dtype="int64"
    )
    featurized(source, tmp_path / "out", map=nystroem())
    assert dataset_state(tmp_path / "out") == dataset_state(golden)


def test_featurize__a_fitted_map_is_taken_as_it_is(source, tiny_rows, tmp_path):
    fitted = nystroem(kernel="rbf", kernel_params={"gamma": 0.1}).fit(tiny_rows[0][:50])
    featurized(source, tmp_path / "out", map=fitted)
    assert dkfeat.open_shards(tmp_path / "out").map.fingerprint() == fitted.fingerprint()


def test_featurize__again_and_with_more_files(tiny_folder, tiny_rows, tmp_path):
    files = [str(tiny_folder / "a.svm")]
    featurized(files, tmp_path / "out", map=nystroem(random_state=None))
    kept = landmarks_file(tmp_path / "out").read_bytes()
    for asked in (None, nystroem(random_state=None), dkfeat.open_shards(tmp_path / "out").map):
        featurized(files, tmp_path / "out", map=asked)
    manifest = featurized([*files, str(tiny_folder / "b.svm")], tmp_path / "out", map=None)
    assert (manifest.number, manifest.rows) == (2, 400)
    assert landmarks_file(tmp_path / "out").read_bytes() == kept
    data = dkfeat.open_shards(tmp_path / "out")
    assert np.array_equal(data.to_scipy()[0], data.map.transform(tiny_rows[0]))
    assert data.map.landmark_rows_.max() < 250


@pytest.mark.parametrize(("map", "text"), [
    (nystroem(31), r"map\.params\.n_components: 30 there, 31 asked"),
    (nystroem(random_state=4), r"map\.seed: 3 there, 4 asked"),
    (nystroem(kernel="resemblance"), r"map\.params\.kernel: \"gmm\" there, \"resemblance\" asked"),
    (dkfeat.GCWSFeatures(30, random_state=3), r"map\.map: \"nystroem\" there, \"gcws\" asked"),
])  # fmt: skip
def test_featurize__other_settings_than_the_target_are_a_conflict(map, text, source, golden):
    with pytest.raises(SpecConflictError, match=text):
        featurized(source, golden, map=map)


def test_like__takes_landmarks_from_shards_and_from_a_model(source, golden, tmp_path):
    dkfeat.train(golden, dkfeat.SGD(epochs=1), progress=False).save(tmp_path / "model")
    for like in (golden, tmp_path / "model"):
        target = tmp_path / f"like-{like.name}"
        featurized(source, target, map=None, like=like)
        assert landmarks_file(target).read_bytes() == landmarks_file(golden).read_bytes()
        assert dataset_state(target) == dataset_state(golden)


def test_model__carries_the_landmarks(golden, tiny_folder, tiny_rows, tmp_path):
    X, _ = tiny_rows
    model = dkfeat.train(golden, dkfeat.SGD(epochs=1), progress=False)
    model.save(tmp_path / "model")
    again = dkfeat.load_model(tmp_path / "model")
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    outcome = dkfeat.predict_file(again, str(tiny_folder / "*.svm"), tmp_path / "labels.txt")
    assert outcome.n_rows == 400
    again.save(tmp_path / "model")
    landmarks_file(tmp_path / "model").write_bytes(b"damaged")
    with pytest.raises(ShardError, match=r"landmarks-.*npz: damaged: its SHA-256 is not the one that names it"):
        dkfeat.load_model(tmp_path / "model")
    landmarks_file(tmp_path / "model").unlink()
    with pytest.raises(ShardError, match="is missing: it holds the landmarks"):
        dkfeat.load_model(tmp_path / "model")


def test_model__saved_over_leaves_no_other_landmarks(source, golden, tmp_path):
    dkfeat.train(golden, dkfeat.SGD(epochs=1), progress=False).save(tmp_path / "model")
    first = landmarks_file(tmp_path / "model").name
    featurized(source, tmp_path / "other", map=nystroem(20))
    dkfeat.train(tmp_path / "other", dkfeat.SGD(epochs=1), progress=False).save(tmp_path / "model", overwrite=True)
    assert landmarks_file(tmp_path / "model").name != first


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_damaged_landmarks__are_told_by_all_who_need_them(damage, source, tmp_path):
    target = tmp_path / "out"
    featurized(source, target, map=nystroem())
    file = landmarks_file(target)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if damage != "missing":
        file.write_bytes(data if damage == "flip" else data[:100])
    text = "landmarks-.* is missing" if damage == "missing" else "landmarks-.*npz: damaged"
    opened = dkfeat.open_shards(target)
    assert opened.to_scipy()[0].shape == opened.shape  # stored rows need no map
    (problem,) = opened.verify().problems
    assert file.name in problem
    for call in (
        lambda: opened.map,
        lambda: featurized(source, target, map=nystroem()),
        lambda: featurized(source, tmp_path / "more", map=None, like=target),
        lambda: dkfeat.plan(source, target),
        lambda: dkfeat.train(target, dkfeat.SGD(epochs=1), progress=False),
    ):
        with pytest.raises(ShardError, match=text):
            call()


def test_damaged_landmarks__in_a_worker_end_the_run_cleanly(source, tmp_path):
    target = tmp_path / "out"

    def damage(state):
        if (state.stage, state.tasks) == ("featurize", 2):
            landmarks_file(target).write_bytes(b"damaged")
            landmarks._maps._values.clear()  # as in a new process

    with pytest.raises(ShardError, match="damaged"):
        featurized(source, target, map=nystroem(), progress=damage, scheduler="synchronous")
    assert_dataset_whole(target, committed=False)


def test_hostile_spec__cannot_name_another_file(golden):
    spec, storage = dkfeat.open_shards(golden).spec, open_storage(golden)
    for name in ("../../x", "a" * 63, 7, "A" * 64):
        with pytest.raises(ShardError, match="which is not a SHA-256"):
            landmarks.load_map({**spec, "map": {**spec["map"], "landmarks": name}}, storage)
        with pytest.raises(ShardError, match="which is not a SHA-256"):
            landmarks.load_encoder({**spec, "encoder": {"knots": name}}, storage)


def test_source_without_rows__is_refused(tmp_path):
    (tmp_path / "empty.svm").write_text("# no rows\n")
    with pytest.raises(InputError, match="there are none"):
        featurized(str(tmp_path / "empty.svm"), tmp_path / "out", map=nystroem())
    assert not (tmp_path / "out").exists()


def test_source_that_shrinks_after_the_scan__is_refused(source):
    scan = dkfeat.scan(source)
    scanned = source.resolve(scan)
    split = scan.splits[0]
    positions = {0: np.array([0, scan.rows_per_split[0]])}
    with pytest.raises(SpecConflictError, match="rows were read, but it had more than"):
        landmarks.take_of_split(scanned, positions, split, lambda: False)


def test_plan__tells_that_landmarks_are_drawn(source, golden):
    first = dkfeat.plan(source, "out", nystroem())
    assert first.needs_scan
    assert first.needs_landmarks
    second = dkfeat.plan(source, "out", nystroem(), scan=True)
    assert (second.needs_scan, second.needs_landmarks, second.n_rows, second.spec) == (False, True, 400, None)
    assert "draws rows from the whole source" in second.describe()
    assert "first reads the whole source once" not in second.describe()
    done, done_map = dkfeat.plan(source, golden, nystroem(), scan=True), dkfeat.open_shards(golden).map
    assert not done.needs_landmarks
    assert done.spec_fp == dkfeat.open_shards(golden).manifest.spec_fp
    gcws = dkfeat.GCWSFeatures(120, i_bits=8, random_state=0)  # as many bytes for each row, and no landmarks
    bare = dkfeat.plan(source, map=gcws, scan=True)
    assert done.projected_bytes - bare.projected_bytes == done_map._working_bytes > 4 * done_map.normalization_.nbytes
    fourier = dkfeat.plan(source, map=dkfeat.FourierFeatures(30, random_state=0), scan=True)
    tables = dkfeat.FourierFeatures(30, random_state=0).fit_width(done_map.n_features_in_)._working_bytes
    assert fourier.projected_bytes - bare.projected_bytes == tables > 0


def test_resolve__without_a_way_to_draw_is_refused(source):
    with pytest.raises(ConfigError, match="learns from rows of the source"):
        resolved(source, nystroem())


RUN = """
import sys, dkfeat
from tests.engine.tasks.test_landmarks import BLOCK, featurized, nystroem
featurized(dkfeat.LibsvmSource(sys.argv[1], blocksize=BLOCK), sys.argv[2], map=nystroem(), scheduler="threads")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", ["mid_write:4", "before_tmp:5", "after_tmp:4", "after_publish:4", "after_plan:1"])
def test_driver_killed__resume_is_identical(kill_at, tiny_folder, source, golden, tmp_path):
    # a probe passes the kill points first and second, then come the landmarks and the spec
    run_killed(kill_at, [sys.executable, "-c", RUN, str(tiny_folder / "*.svm"), str(tmp_path / "out")])
    meta = tmp_path / "out" / "_dkfeat"
    assert not (meta / "spec.json").exists() or list(meta.glob("landmarks-*.npz"))
    featurized(source, tmp_path / "out", map=nystroem())
    assert dataset_state(tmp_path / "out") == dataset_state(golden)


def test_attach__a_damaged_leftover_is_set_aside(source, golden, tmp_path, caplog):
    meta = tmp_path / "out" / "_dkfeat"
    meta.mkdir(parents=True)
    (meta / landmarks_file(golden).name).write_bytes(b"torn")
    featurized(source, tmp_path / "out", map=nystroem())
    assert "was damaged; set aside" in caplog.text
    assert dataset_state(tmp_path / "out") == dataset_state(golden)


@pytest.mark.cluster
@pytest.mark.fault("P-17")
def test_worker_killed_while_landmarks_are_drawn__run_completes_identical(source, golden, tmp_path):
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        pids = list(client.run(os.getpid).values())

        def kill(state):
            if (state.stage, state.tasks) == ("landmarks", 2):
                os.kill(pids[0], signal.SIGKILL)

        featurized(source, tmp_path / "out", map=nystroem(), client=client, progress=kill)
    assert dataset_state(tmp_path / "out") == dataset_state(golden)
    assert landmarks_file(tmp_path / "out").read_bytes() == landmarks_file(golden).read_bytes()


def test_featurize__bad_rows_that_are_set_aside_are_no_landmarks(tiny_rows, tmp_path):
    X, y = tiny_rows
    lines = libsvm_text(X, y).splitlines()
    for place in range(0, 400, 10):
        lines[place] = "+1 5:x"
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    good = np.arange(400) % 10 != 0
    source = dkfeat.LibsvmSource(
        str(tmp_path / "rows.svm"), blocksize=BLOCK, on_bad_row="quarantine", max_bad_rows=0.2, n_features=300
    )
    dkfeat.featurize(source, tmp_path / "out", nystroem(), progress=False)
    data = dkfeat.open_shards(tmp_path / "out")
    assert data.n_rows == 360
    assert data.map.fingerprint() == nystroem().fit(X[good]).fingerprint()


def test_featurize__of_parquet_draws_over_all_files(tiny_rows, golden, tmp_path):
    X, y = tiny_rows
    for name, rows in (("a", slice(0, 250)), ("b", slice(250, 400))):
        write(tmp_path / f"{name}.parquet", {**feature_columns(X[rows], "pairs"), "label": y[rows]}, row_group_size=40)
    source = dkfeat.ParquetSource(str(tmp_path / "*.parquet"), n_features=300)
    featurized(source, tmp_path / "out", map=nystroem())
    assert landmarks_file(tmp_path / "out").read_bytes() == landmarks_file(golden).read_bytes()
