"""Targets in which nothing was made yet: they bind nobody to the settings of a run that failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dkfeat
from dkfeat.errors import ParseError, SpecConflictError
from dkfeat.io import commit, metadata
from dkfeat.io.storage import SPEC, open_storage
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import assert_dataset_whole, dataset_state
from tests.io.tiny_job import TinyJob

BAD, GOOD = "1 9:1\n", "1 1:1 2:2\n"
SETTLED = {"zero_based": False, "label_dtype": "int64", "blocksize": BLOCK}


@pytest.fixture
def job(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in ("day1.txt", "day2.txt"):
        (sources / name).write_text("".join(f"{name} row {i}\n" for i in range(20)))
    return TinyJob(sources, tmp_path / "features")


def interrupt(job, n_splits):
    """Plan a batch and publish the shards of some of its splits."""
    storage = open_storage(job.target)
    with commit.begin(storage, job.spec, job.files(), job.splits()) as run:
        for split in run.splits[:n_splits]:
            list(job.run_split(storage, run, split))


@pytest.mark.fault("V-01")
@pytest.mark.parametrize("n_splits", [0, 1])
def test_planned__other_settings_are_refused_until_it_is_given_up(job, n_splits):
    interrupt(job, n_splits)
    other = replace(job, seed=7)
    with pytest.raises(SpecConflictError, match=r"nothing is committed, with `dkfeat abort .*features`") as fault:
        other.run()
    assert "map.seed: 0 there, 7 asked" in str(fault.value)
    dkfeat.abort(job.target)
    other.run()
    assert metadata.read_spec(open_storage(job.target)) == other.spec
    assert_dataset_whole(job.target, committed=True)


def test_strays__are_cleared_before_other_settings_are_taken(job):
    interrupt(job, 1)
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
    interrupt(job, 0)
    dkfeat.abort(job.target)
    open_storage(job.target).remove(SPEC)
    replace(job, seed=7).run()
    assert_dataset_whole(job.target, committed=True)


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
    with pytest.raises(SpecConflictError, match=r"n_features=9 is asked, .* leave it out or give up .*`dkfeat abort"):
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
