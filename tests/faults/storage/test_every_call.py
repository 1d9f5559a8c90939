"""Every system call of a run fails once: before, after or during its action; no file is lost or truncated."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from dkfeat.errors import DkfeatError
from dkfeat.store.storage import base
from tests.invariants import assert_dataset_whole, dataset_state
from tests.store.tiny_job import TinyJob, write_sources

CALLS = ("open", "write", "pwrite", "fsync", "link", "unlink", "stat", "rename", "mkdir", "scandir", "ftruncate")


class FaultyCalls:
    """Counter of the calls of a run on its target, which makes one of them, or it and all later ones, fail."""

    def __init__(self, patch, spared, *, fail_at=None, how="before", for_ever=False):
        self.spared = spared
        self.count, self.fail_at, self.how, self.for_ever = 0, fail_at, how, for_ever
        for name in CALLS:
            patch.setattr(os, name, self._faulty(name, getattr(os, name)))

    def _faulty(self, name, real):
        def call(*arguments, **options):
            if str(self.spared) in str(arguments[0]):
                return real(*arguments, **options)
            self.count += 1
            if self.fail_at is None or (
                self.count != self.fail_at and not (self.for_ever and self.count > self.fail_at)
            ):
                return real(*arguments, **options)
            if self.how == "after" and name not in ("open", "scandir"):  # otherwise the test would leak a descriptor
                real(*arguments, **options)
            elif self.how == "half-way" and name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise OSError(errno.EIO, f"{name} failed, {self.how}")

        return call


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    job = TinyJob(write_sources(folder / "in", files=1, lines=8), folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        calls = FaultyCalls(patch, job.sources)
        job.run()
    assert calls.count > 100
    return job, calls.count


@pytest.mark.fault("S-01")
@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)], ids=["sample", "every"])
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("how", ["before", "after", "half-way"])
def test_fault__in_calls__is_success_or_error_3_and_the_next_run_is_identical(golden, tmp_path, how, for_ever, step):
    done, count = golden
    held = {*base._held}  # by earlier tests of this process
    outcomes = set()
    for number in range(1, count + 1, step):
        job = replace(done, target=tmp_path / str(number), transforms=[])
        with pytest.MonkeyPatch.context() as patch:
            FaultyCalls(patch, job.sources, fail_at=number, how=how, for_ever=for_ever)
            try:
                job.run()
                outcomes.add(0)
            except DkfeatError as fault:
                outcomes.add(fault.exit_code)
        assert base._held == held, number
        assert_dataset_whole(job.target, finished=False)
        job.run()
        assert dataset_state(job.target) == dataset_state(done.target), number
        assert_dataset_whole(job.target, committed=True)
    assert 3 in outcomes
    assert outcomes <= {0, 3}
