from __future__ import annotations

import gzip
import re
import sys
import threading
import time

import numpy as np
import pytest

import dkfeat
from dkfeat.engine.runners.base import Stopped
from dkfeat.engine.tasks import job
from dkfeat.errors import ConfigError, ParseError, PlanError, SourceNotFoundError, SpecConflictError
from dkfeat.sources import find
from tests.engine.helpers import featurized, gcws
from tests.invariants import dataset_state as state


@pytest.fixture
def counted(monkeypatch):
    """Number of encoded blocks."""
    calls = []
    encode = dkfeat.GCWSFeatures.encode

    def counting(self, X):
        calls.append(X.shape[0])
        return encode(self, X)

    monkeypatch.setattr(dkfeat.GCWSFeatures, "encode", counting)
    return calls


@pytest.fixture
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=10_000)


def test_featurize__again_does_nothing(source, tmp_path, counted, capsys):
    target = tmp_path / "features"
    first = featurized(source, target)
    done = len(counted)
    before = state(target)
    second = featurized(source, target, progress=True, scheduler="cluster")  # no cluster is started
    assert second == first
    assert len(counted) == done
    assert state(target) == before
    assert "nothing to do" in capsys.readouterr().err


def test_featurize__second_call_without_seed_takes_the_first_ones(source, tmp_path, counted):
    given = gcws(random_state=None)
    featurized(source, tmp_path / "features", map=given)
    assert not hasattr(given, "n_features_in_")
    done = len(counted)
    featurized(source, tmp_path / "features", map=given)
    featurized(source, tmp_path / "features", map=None)
    assert len(counted) == done


@pytest.mark.fault("S-05")
def test_featurize__damaged_shard_is_made_again_on_resume(source, tmp_path, monkeypatch, caplog):
    target, whole = tmp_path / "features", tmp_path / "whole"
    featurized(source, whole)
    monkeypatch.setattr("dkfeat.store.commit.batch.Batch.commit", lambda *_, **__: sys.exit(9))
    with pytest.raises(SystemExit):
        featurized(source, target, scheduler="synchronous")
    monkeypatch.undo()
    shard = sorted((target / "data").iterdir())[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    featurized(source, target)
    assert state(target) == state(whole)
    assert "set aside" in caplog.text


def test_featurize__new_file_is_a_second_batch(tiny_folder, tmp_path, counted):
    text = (tiny_folder / "a.svm").read_bytes()
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "day1.svm").write_bytes(text)
    featurized(str(inputs / "*.svm"), tmp_path / "features")
    assert len(counted) == 1
    (inputs / "day2.svm").write_bytes(b"5 3:1.5\n")
    manifest = featurized(str(inputs / "*.svm"), tmp_path / "features")
    assert counted[1:] == [1]
    assert (manifest.number, manifest.rows, manifest.labels) == (2, 251, (-1, 1, 5))
    assert [source.name for source in manifest.sources] == ["day1.svm", "day2.svm"]


def test_featurize__like_takes_map_and_input_over(source, tiny_folder, tmp_path):
    featurized(source, tmp_path / "train", map=gcws(random_state=None))
    manifest = featurized(str(tiny_folder / "b.svm"), tmp_path / "test", map=None, like=tmp_path / "train")
    train, test = dkfeat.open_shards(tmp_path / "train"), dkfeat.open_shards(tmp_path / "test")
    assert train.spec["map"] == test.spec["map"]
    assert train.spec["input"] == test.spec["input"]
    np.testing.assert_array_equal(test.codes().codes, train.codes().codes[250:])
    assert manifest.rows == 150


def test_featurize__column_beyond_those_of_like_tells_what_to_do(source, tmp_path):
    featurized(source, tmp_path / "train")
    (tmp_path / "wide.svm").write_text("1 301:1\n")
    with pytest.raises(ParseError, match=r"wide\.svm:1:3: .*shards given as like, keep the width of their own rows"):
        featurized(str(tmp_path / "wide.svm"), tmp_path / "test", map=None, like=tmp_path / "train")
    wider = dkfeat.LibsvmSource(source.urlpath, n_features=301)
    featurized(wider, tmp_path / "wider")
    assert featurized(str(tmp_path / "wide.svm"), tmp_path / "wider-test", like=tmp_path / "wider").rows == 1


def test_featurize__option_at_its_default_counts_as_left_open(tiny_folder, tmp_path):
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), dtype="float64"), tmp_path / "train")
    asked = dkfeat.LibsvmSource(str(tiny_folder / "b.svm"), dtype="float32", n_features=300)
    featurized(asked, tmp_path / "test", like=tmp_path / "train")
    assert dkfeat.open_shards(tmp_path / "test").spec["input"]["dtype"] == "float64"


@pytest.mark.fault("V-01")
@pytest.mark.parametrize("way", ["like", "target"])
@pytest.mark.parametrize(
    ("options", "params", "words"),
    [
        ({"n_features": 301}, {}, "n_features=301 .* has n_features=300"),
        ({"zero_based": True}, {}, "zero_based=True .* has zero_based=False"),
        ({"dtype": "float64"}, {}, "dtype='float64' .* has dtype='float32'"),
        ({"labels": (-1, 1, 2)}, {}, "labels=.*-1, 1, 2.* is requested"),
        ({"label_dtype": "float64"}, {}, "label_dtype='float64' .* has label_dtype='int64'"),
        ({}, {"n_components": 25}, r"map\.params\.n_components: 24 there, 25 asked"),
        ({}, {"random_state": 12}, r"map\.seed: 11 there, 12 asked"),
        ({}, {"p": 2.0}, r"map\.params\.p: 1\.0 there, 2\.0 asked"),
    ],
)
def test_featurize__other_settings_are_a_conflict(options, params, words, way, source, tmp_path):
    featurized(source, tmp_path / "train")
    target, like = (tmp_path / "test", tmp_path / "train") if way == "like" else (tmp_path / "train", None)
    with pytest.raises(SpecConflictError, match=words):
        featurized(source.replaced(**options), target, map=gcws(**{"n_components": 24, **params}), like=like)
    assert not (tmp_path / "test").exists()


@pytest.mark.fault("V-01")
def test_featurize__other_blocksize_is_a_conflict_with_the_target_alone(source, tiny_folder, tmp_path):
    featurized(source, tmp_path / "train")
    other = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=5_000)
    with pytest.raises(SpecConflictError, match=r"blocksize=5000 .* has blocksize=10000"):
        featurized(other, tmp_path / "train")
    featurized(other, tmp_path / "test", like=tmp_path / "train")
    assert dkfeat.open_shards(tmp_path / "test").spec["split"]["blocksize"] == 5_000


def test_featurize__fitted_map_settles_the_width(tiny_folder, tmp_path):
    featurized(str(tiny_folder / "*.svm"), tmp_path / "features", map=gcws().fit_width(1000))
    data = dkfeat.open_shards(tmp_path / "features")
    assert data.spec["input"]["n_features"] == data.map.n_features_in_ == 1000


def test_featurize__fitted_map_of_another_width_is_a_conflict(tiny_folder, tmp_path):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), n_features=301, zero_based=False, label_dtype="int64")
    with pytest.raises(SpecConflictError, match=r"n_features=301 .* fitted on 300"):
        featurized(source, tmp_path / "features", map=gcws().fit_width(300))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"map": None}, ConfigError, "no feature map is given"),
        ({"map": "gcws"}, ConfigError, "map='gcws'"),
        ({"layout": "rows"}, ConfigError, "layout='rows'"),
        ({"layout": "dense"}, ConfigError, "cannot store"),
        ({"on_bad_row": "skip"}, ConfigError, "on_bad_row='skip', but it must be one of None, 'raise', 'quarantine'"),
        ({"max_bad_rows": -1}, ConfigError, "a number of rows such as 100 or a share"),
        ({"like": 5}, ConfigError, "like=5"),
        ({"like": "nowhere"}, SourceNotFoundError, "neither a folder of shards"),
    ],
)
def test_featurize__refused_before_anything_is_made(options, error, words, source, tmp_path):
    with pytest.raises(error, match=words):
        featurized(source, tmp_path / "features", **options)
    assert not (tmp_path / "features").exists()


def test_featurize__target_that_is_no_path_is_refused(source):
    with pytest.raises(ConfigError, match=r"target=7, but it must be a path"):
        dkfeat.featurize(source, 7, gcws())


def test_featurize__repaired_text_is_featurized_as_the_message_tells(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n" * 100 + "1 7:1 5:1\n")
    source = dkfeat.LibsvmSource(
        str(tmp_path / "a.svm"), n_features=7, zero_based=False, label_dtype="int64", blocksize=600
    )
    with pytest.raises(ParseError, match=r"a\.svm:101:7: "):
        featurized(source, tmp_path / "features", scheduler="synchronous")
    assert len(list((tmp_path / "features/data").iterdir())) == 1
    with pytest.raises(dkfeat.errors.ShardError):
        dkfeat.open_shards(tmp_path / "features")
    (tmp_path / "a.svm").write_text("1 1:1\n" * 100 + "1 5:1 7:1\n1 6:1\n")
    with pytest.raises(SpecConflictError, match=r"restore it, or abort the .* with `dkfeat abort .*features`"):
        featurized(source, tmp_path / "features")
    dkfeat.abort(tmp_path / "features")
    assert featurized(source, tmp_path / "features").rows == 102


@pytest.mark.fault("C-10")
@pytest.mark.parametrize("place", [".", "data", "../in", "../link", "../folder-link"])
def test_featurize__target_around_the_source_is_refused(place, tmp_path):
    target = tmp_path / "in"
    file = tmp_path / "in" / place / "a.svm"
    if place == "../folder-link":
        target.mkdir()
        (tmp_path / "folder-link").symlink_to(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("1 1:1\n")
    if place == "../link":
        target.mkdir(exist_ok=True)
        file.symlink_to(file.rename(target / "a.svm"))
    with pytest.raises(ConfigError, match="is inside the target"):
        featurized(str(file), target)
    assert not (target / "_dkfeat").exists()
    with pytest.raises(ConfigError, match="also searches the target"):
        featurized(str(tmp_path / "**" / "*.svm"), tmp_path / "features")


def test_next_batch__reads_the_beginnings_of_new_files_alone(tmp_path, monkeypatch):
    source, read = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), n_features=9), []
    check = find._check_magic
    monkeypatch.setattr(find, "_check_magic", lambda file, head: read.append(file.name) or check(file, head))
    for name in ("a", "b"):
        (tmp_path / f"{name}.svm").write_text("1 1:1\n-1 2:1\n")
        featurized(source, tmp_path / "features")
    assert read == ["a.svm", "b.svm"]
    (tmp_path / "c.svm").write_bytes(gzip.compress(b"1 1:1\n"))
    with pytest.raises(ParseError, match="rename the file to match its content"):
        featurized(source, tmp_path / "features")


def test_featurize__lists_the_source_once(source, tmp_path, monkeypatch):
    listed = []
    files = dkfeat.LibsvmSource.files
    monkeypatch.setattr(dkfeat.LibsvmSource, "files", lambda self, **given: listed.append(1) or files(self, **given))
    featurized(source, tmp_path / "features")
    assert listed == [1]
    dkfeat.scan(source)
    assert listed == [1, 1]


def test_featurize__file_that_changes_after_the_scan_is_a_conflict(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")

    def change(state):
        if state.stage == "scan" and state.tasks == 1:
            (tmp_path / "a.svm").write_text("1 1:1\n1 1:2\n")

    with pytest.raises(SpecConflictError, match=r"a\.svm has changed since the source was listed") as caught:
        featurized(str(tmp_path / "a.svm"), tmp_path / "features", progress=change)
    assert caught.value.exit_code == 4


def test_featurize__target_is_held_until_no_task_runs(source, tmp_path, monkeypatch):
    begun, held = threading.Event(), []

    def work(_, split, stopped):
        if split.number == 0:
            assert begun.wait(60)
            raise OSError("injected")
        begun.set()
        while not stopped():
            time.sleep(0.001)
        held.append((tmp_path / "features/_dkfeat/lock.json").exists())
        raise Stopped

    monkeypatch.setattr(job, "run_split", work)
    with pytest.raises(OSError, match="injected"):
        featurized(source, tmp_path / "features", scheduler="threads", n_workers=2)
    assert set(held) == {True}


@pytest.mark.fault("P-08")
@pytest.mark.cluster
def test_featurize__plan_that_does_not_fit_is_refused(tiny_folder, tmp_path):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), n_features=300, zero_based=False, label_dtype="int64")
    with pytest.raises(PlanError, match="raise memory_limit of the workers by 1"):
        featurized(source, tmp_path / "features", n_workers=1, threads_per_worker=8, memory_limit="512MiB")
    assert not (tmp_path / "features").exists()


@pytest.mark.fault("I-27")
@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n"])
def test_featurize__source_without_rows(text, tmp_path, caplog):
    (tmp_path / "empty.svm").write_text(text)
    manifest = featurized(str(tmp_path / "empty.svm"), tmp_path / "features")
    (message,) = caplog.messages
    assert re.search(r"no rows, .* n_features=1, .*pass n_features \(--n-features\)", message)
    assert manifest.rows == 0
    data = dkfeat.open_shards(tmp_path / "features")
    assert list(data.batches(3)) == []
    assert data.to_scipy()[0].shape == (0, 24 * 256)
    assert data.verify().problems == []


@pytest.mark.parametrize("layout", ["codes", "sparse"])
@pytest.mark.parametrize(
    "params",
    [
        {"center": 1.0},
        {"normalize": "l2"},
        {"center": 0.25, "normalize": "max"},
        {"center": np.where(np.arange(300) % 7, 0.0, 0.5), "normalize": "l1"},
    ],
    ids=["center", "normalize", "both", "center-of-columns"],
)
def test_featurize__prepared_rows_are_those_of_the_whole_array(params, layout, source, tiny_rows, tmp_path):
    X, y = tiny_rows
    manifest = featurized(source, tmp_path / "features", map=gcws(**params), layout=layout)
    fitted = gcws(**params).fit(X)
    Z, labels = dkfeat.open_shards(tmp_path / "features").to_scipy()
    np.testing.assert_array_equal(Z.toarray(), fitted.transform(X.toarray()).toarray())
    np.testing.assert_array_equal(labels, y)
    assert manifest.n_empty_rows == fitted.encode(X).empty.sum()


@pytest.mark.fault("I-19")
@pytest.mark.parametrize("layout", ["codes", "sparse"])
def test_featurize__row_that_the_centre_empties_has_no_features(layout, tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 2:2\n0\n1 1:1 2:1\n")
    manifest = featurized(str(tmp_path / "a.svm"), tmp_path / "features", map=gcws(center=1.0), layout=layout)
    assert (manifest.rows, manifest.n_empty_rows) == (3, 1)
    X, _ = dkfeat.open_shards(tmp_path / "features").to_scipy()
    assert X.sum(axis=1).A1.tolist() == [24, 24, 0]


def test_featurize__sparse_layout_holds_what_transform_gives(source, tiny_rows, tmp_path):
    X, y = tiny_rows
    manifest = featurized(source, tmp_path / "features", layout="sparse")
    assert manifest.schema == {"label": "int64", "indices": "list<int32>"}  # values are left out if all are 1
    data = dkfeat.open_shards(tmp_path / "features")
    assert data.spec["output"]["values"] is False
    assert data.verify().problems == []
    Z, labels = data.to_scipy()
    assert (gcws().fit(X).transform(X) != Z).nnz == 0
    np.testing.assert_array_equal(labels, y)
    fourier = dkfeat.FourierFeatures(5, random_state=0)
    featurized(source, tmp_path / "dense", map=fourier, layout="sparse")
    Z, _ = dkfeat.open_shards(tmp_path / "dense").to_scipy()
    np.testing.assert_array_equal(Z.toarray(), fourier.fit(X).transform(X))


@pytest.mark.parametrize(("label", "warns"), [("3", True), ("-1", False), ("0.5", False)])
def test_featurize__a_label_that_is_new_in_a_later_batch_is_told(tmp_path, caplog, label, warns):
    (tmp_path / "a.svm").write_text(f"+1 1:1\n{'0.25' if label == '0.5' else '-1'} 2:1\n")
    featurized(tmp_path / "*.svm", tmp_path / "features", scheduler="synchronous")
    (tmp_path / "b.svm").write_text(f"+1 1:1\n{label} 2:1\n")
    assert "no earlier batch" not in caplog.text
    featurized(tmp_path / "*.svm", tmp_path / "features", scheduler="synchronous")
    told = [message for message in caplog.messages if "no earlier batch" in message]
    assert len(told) == warns
    assert all(f"features: batch 2 has labels that no earlier batch has: {label}" in message for message in told)


def test_featurize__declared_labels_are_listed_whole(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n3 2:1\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "a.svm"), labels=(1, 2, 3))
    assert featurized(source, tmp_path / "features").labels == (1, 2, 3)


def test_featurize__standard_output_stays_empty(source, tmp_path, capsys):
    featurized(source, tmp_path / "features", progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "featurize: done, 400 rows" in captured.err
