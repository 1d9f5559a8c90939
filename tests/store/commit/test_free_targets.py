"""Targets in which nothing was made yet: they bind nobody to the settings of a run that failed."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import dkfeat
from dkfeat.engine import resolve
from dkfeat.errors import (
    CommitConflictError,
    CommitError,
    ConfigError,
    ParseError,
    ShardError,
    SourceNotFoundError,
    SpecConflictError,
    TargetBusyError,
)
from dkfeat.store.commit import begin as commit
from dkfeat.store.manifest import metadata
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import LOCK, SPEC
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import assert_dataset_whole, dataset_state

BAD, GOOD = "1 9:1\n", "1 1:1 2:2\n"
SETTLED = {"zero_based": False, "label_dtype": "int64", "blocksize": BLOCK}


@pytest.mark.fault("V-01")
@pytest.mark.parametrize("n_splits", [0, 1])
def test_planned__other_settings_are_refused_until_it_is_given_up(job, n_splits):
    job.stage(n_splits)
    other = replace(job, seed=7)
    with pytest.raises(SpecConflictError, match=r"nothing is committed, with `dkfeat abort .*out`") as fault:
        other.run()
    assert "map.seed: 0 there, 7 asked" in str(fault.value)
    dkfeat.abort(job.target)
    other.run()
    assert metadata.read_spec(open_storage(job.target)) == other.spec
    assert_dataset_whole(job.target, committed=True)


def test_strays__are_cleared_before_other_settings_are_taken(job):
    job.stage(1)
    stray = next((job.target / "data").iterdir())
    data = stray.read_bytes()
    dkfeat.abort(job.target)
    stray.write_bytes(data)  # by a task that outlived its run
    with pytest.raises(SpecConflictError, match="with `dkfeat clean "):
        replace(job, seed=7).run()
    dkfeat.clean(job.target)
    replace(job, seed=7).run()
    assert_dataset_whole(job.target, committed=True)


def test_replaced_spec__a_run_that_dies_in_between_leaves_a_free_target(job):
    job.stage(0)
    dkfeat.abort(job.target)
    open_storage(job.target).remove(SPEC)
    replace(job, seed=7).run()
    assert_dataset_whole(job.target, committed=True)


def test_bad_settings__the_plan_of_a_run_that_took_over_stays(job):
    storage = open_storage(job.target)
    run = job.begin()
    storage.remove(LOCK)  # as one host breaks the lock of another that it takes for dead
    lock = commit.hold(storage)
    run.__exit__(ConfigError, ConfigError("settings that cannot work"), None)
    lock.release()
    assert metadata.next_batch(storage, None)[1] is not None


@pytest.mark.parametrize("name", ["spec.json", "plan-000001.json"])
@pytest.mark.parametrize("edit", ["delete", "damage", "exchange"])
def test_commit__spec_or_plan_was_changed_meanwhile__is_refused(job, tmp_path, name, edit):
    other = replace(job, target=tmp_path / "other", seed=7)
    other.run()
    path = job.target / "_dkfeat" / name
    with job.begin() as run:
        entries = job.work(run)
        kept = path.read_bytes()
        path.unlink()
        if edit != "delete":
            path.write_bytes(kept[:-9] if edit == "damage" else (other.target / "_dkfeat" / name).read_bytes())
        with pytest.raises(
            (CommitError, CommitConflictError, ShardError),
            match=name if name == "spec.json" or edit != "delete" else "was aborted",
        ):
            job.commit(run, entries)
    assert not list((job.target / "_dkfeat").glob("manifest-*"))
    path.write_bytes(kept)
    job.run()
    assert_dataset_whole(job.target, committed=True)


def test_replaced_spec__files_that_it_named_go_with_it(job):
    storage, names = open_storage(job.target), [f"_dkfeat/landmarks-{digit * 64}.npz" for digit in "ab"]
    with commit.begin(storage, job.spec, job.files(), job.splits(), sidecars=dict.fromkeys(names, b"former")):
        pass
    dkfeat.abort(job.target)
    replace(job, seed=7).run(sidecars={names[1]: b"former"})
    assert [f"_dkfeat/{name}" for name in storage.list("_dkfeat") if name.startswith("landmarks")] == names[1:]


def source_of(folder, text, **options):
    (folder / "rows.svm").write_text(text)
    return dkfeat.LibsvmSource(folder / "rows.svm", **{**SETTLED, **options})


def test_bad_first_row__the_run_may_be_corrected(tmp_path):
    target = tmp_path / "features"
    with pytest.raises(ParseError, match="n_features, 2"):
        featurized(source_of(tmp_path, BAD, n_features=2), target, scheduler="synchronous")
    assert_dataset_whole(target, committed=False)
    manifest = featurized(dkfeat.LibsvmSource(tmp_path / "rows.svm"), target, scheduler="synchronous")
    assert manifest.n_features == 9
    assert_dataset_whole(target, committed=True)


def test_bad_row_behind_good_ones__says_how_to_start_afresh(tmp_path):
    target = tmp_path / "features"
    with pytest.raises(ParseError):
        featurized(source_of(tmp_path, 900 * GOOD + BAD, n_features=2), target, scheduler="synchronous")
    assert list((target / "data").iterdir())
    wider = dkfeat.LibsvmSource(tmp_path / "rows.svm", **SETTLED, n_features=9)
    with pytest.raises(SpecConflictError, match=r"n_features=9 is requested, .* leave it out or abort .*`dkfeat abort"):
        featurized(wider, target, scheduler="synchronous")
    dkfeat.abort(target)
    assert featurized(wider, target, scheduler="synchronous").rows == 901
    assert_dataset_whole(target, committed=True)


@pytest.mark.fault("V-03")
def test_bad_row_in_a_later_batch__a_mended_file_is_planned_afresh(tmp_path):
    target = tmp_path / "features"
    (tmp_path / "day1.svm").write_text(20 * GOOD)
    days = dkfeat.LibsvmSource(tmp_path / "day*.svm", **SETTLED, n_features=2)
    featurized(days, target, scheduler="synchronous")
    before = dataset_state(target)
    (tmp_path / "day2.svm").write_text(BAD)
    with pytest.raises(ParseError):
        featurized(days, target, scheduler="synchronous")
    assert dataset_state(target) == before
    assert dkfeat.status(target).state == "complete"
    (tmp_path / "day2.svm").write_text(GOOD)
    assert featurized(days, target, scheduler="synchronous").rows == 21
    assert_dataset_whole(target, committed=True)


def test_like__settings_that_bind_nobody_are_not_taken_over(tmp_path):
    target = tmp_path / "features"
    with pytest.raises(ParseError):
        featurized(source_of(tmp_path, BAD, n_features=2), target, scheduler="synchronous")
    with pytest.raises(SourceNotFoundError, match="nothing was made there yet"):
        dkfeat.featurize(tmp_path / "rows.svm", target=tmp_path / "other", like=target, progress=False)
    assert not (tmp_path / "other").exists()


def state(folder):
    return sorted((str(path), path.is_symlink() or path.is_dir() or path.read_bytes()) for path in folder.rglob("*"))


UNUSABLE = {
    "a file": (lambda out: out.write_text("1"), CommitError, "is not a writable folder"),
    "below a file": (lambda out: out.parent.rmdir() or out.parent.write_text("1"), CommitError, "not a writable"),
    "no parent": (lambda out: out.parent.rmdir(), CommitError, "parent folder does not exist"),
    "a dangling link": (lambda out: out.symlink_to("nowhere"), CommitError, "is not a writable folder"),
    "foreign data": (lambda out: write(out / "data" / "mine.csv"), CommitError, r"did not write: \['data/mine.csv'\]"),
    "foreign mark": (lambda out: write(out / "_SUCCESS"), CommitError, r"did not write: \['_SUCCESS'\]"),
    "data is a file": (lambda out: write(out / "data"), CommitError, "Not a directory"),
    "metadata is a file": (lambda out: write(out / "_dkfeat"), CommitError, "Not a directory"),
    "metadata is a link": (
        lambda out: out.mkdir() or (out / "_dkfeat").symlink_to(out.parent),
        CommitError,
        "Not a directory",
    ),
    "the folder of the source": (lambda out: write(out / "more.svm", GOOD), ConfigError, "is inside the target"),
    "in the searched area": (lambda out: write(out.parent / "deep" / "more.svm", GOOD), ConfigError, "also searches"),
}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.fault("C-10", "S-03")
@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_target__is_refused_before_the_scan_and_left_as_it_was(tmp_path, monkeypatch, case):
    make, kind, message = UNUSABLE[case]
    target = tmp_path / "parent" / "out"
    target.parent.mkdir()
    write(tmp_path / "rows.svm", GOOD)
    make(target)
    patterns = [tmp_path / "rows.svm"]
    if kind is ConfigError:
        patterns.append(target.parent / "**" / "*.svm" if "searched" in case else target / "*.svm")
    before = state(tmp_path)
    monkeypatch.setattr(resolve, "run_scan", None)
    with pytest.raises(kind, match=message):
        featurized(patterns, target, scheduler="synchronous")
    assert state(tmp_path) == before


def test_target_with_a_name_too_long__is_an_error_of_the_target(tmp_path):
    write(tmp_path / "rows.svm", GOOD)
    with pytest.raises(CommitError, match=r"cannot be written: .*too long"):
        featurized(tmp_path / "rows.svm", tmp_path / ("x" * 300), scheduler="synchronous")


@pytest.mark.fault("C-08")
def test_first_run_scans__another_is_busy_before_it_scans(tmp_path, monkeypatch):
    write(tmp_path / "rows.svm", GOOD)
    target, scans = tmp_path / "features", []
    scan = resolve.run_scan

    def scan_while_another_begins(*arguments):
        scans.append(1)
        assert dkfeat.status(target).state == "running"
        with pytest.raises(TargetBusyError, match="is being written by run"):
            featurized(tmp_path / "rows.svm", target, scheduler="synchronous")
        return scan(*arguments)

    monkeypatch.setattr(resolve, "run_scan", scan_while_another_begins)
    assert featurized(tmp_path / "rows.svm", target, scheduler="synchronous").rows == 1
    assert len(scans) == 1
    assert_dataset_whole(target, committed=True)


@pytest.mark.parametrize("existing", [0, 1, 2])
def test_first_run_fails_in_its_scan__leaves_only_folders_that_existed(tmp_path, monkeypatch, existing):
    write(tmp_path / "rows.svm", "1 x\n")
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / "deep", tmp_path / "deep" / "out"][:existing]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(ParseError):
        featurized("rows.svm", "deep/out", scheduler="synchronous")
    assert sorted(tmp_path.iterdir()) == sorted([*folders[:1], tmp_path / "rows.svm"])
    assert list(tmp_path.glob("deep/*")) == folders[1:]


@pytest.mark.parametrize("at", ["_make_folders", "_folder"], ids=["made", "half made"])
def test_lock__its_folders_are_removed_while_it_is_taken__is_taken(job, monkeypatch, at):
    storage = open_storage(job.target)
    method = getattr(storage, at)

    def lose(*names):
        made = method(*names)
        monkeypatch.undo()
        shutil.rmtree(job.target)  # as another run does that ends
        return made

    monkeypatch.setattr(storage, at, lose)
    commit.hold(storage).release()
    assert not job.target.exists()
