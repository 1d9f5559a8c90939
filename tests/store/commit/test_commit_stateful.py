from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit import maintenance
from dkfeat.store.commit.status import status
from dkfeat.store.shards import reader
from dkfeat.store.storage import base, open_storage
from tests.faults.kills import ABORT_POINTS, POINTS
from tests.invariants import assert_dataset_whole
from tests.store.tiny_job import TinyJob, write_sources


def newest_number(meta, kind):
    """Highest number of a manifest or plan; 0 without one."""
    return max((int(path.stem.removeprefix(f"{kind}-")) for path in meta.glob(f"{kind}-*.json")), default=0)


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code under test may catch it and go on."""


class DataSetMachine(RuleBasedStateMachine):
    """Runs that stage, die, resume and commit in any order, beside a model: the sources that are committed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.sources = 0
        self.covered = 0
        self.planned: int | None = None

    @initialize()
    def first_source(self) -> None:
        self.job = TinyJob(self.folder / "in", self.folder / "out")
        self.add_source()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.sources < 4)
    @rule()
    def add_source(self) -> None:
        write_sources(self.folder / "in", files=1, lines=8, first=self.sources)
        self.sources += 1

    @rule()
    def run(self) -> None:
        manifest = self.job.run()
        self.covered = self.planned or self.sources
        self.planned = None
        assert [source.name for source in manifest.sources] == [f"day{number}.txt" for number in range(self.covered)]
        assert_dataset_whole(self.job.target, committed=True)

    @rule(point=st.sampled_from(POINTS), count=st.integers(1, 6))
    def run_and_die(self, point: str, count: int) -> None:
        self.die_at(point, count, self.job.run)

    @precondition(lambda self: (self.job.target / "_dkfeat" / "spec.json").exists())
    @rule(point=st.sampled_from((*ABORT_POINTS, "nowhere")), count=st.integers(1, 3))
    def give_up(self, point: str, count: int) -> None:
        self.die_at(point, count, lambda: maintenance.abort(self.job.target))

    @precondition(lambda self: self.planned is not None)
    @rule()
    def change_a_planned_source(self) -> None:
        path = self.folder / "in" / f"day{self.planned - 1}.txt"
        path.write_bytes(path.read_bytes()[:-2] + b"y\n")
        with pytest.raises(SpecConflictError):
            self.job.run()
        assert maintenance.abort(self.job.target).number
        self.planned = None
        self.run()

    @precondition(lambda self: (self.job.target / "_dkfeat" / "spec.json").exists())
    @rule()
    def clean(self) -> None:
        cleaned = maintenance.clean(self.job.target)
        assert not [name for name in cleaned.removed if name.startswith("data/")]
        assert cleaned.refused == ()
        found = status(self.job.target)
        assert (found.unfinished is not None) == (self.planned is not None)

    def die_at(self, point: str, count: int, act: Callable[[], object]) -> None:
        passes = 0

        def die(passed: str) -> None:
            nonlocal passes
            passes += passed == point
            if passes >= count:
                raise Killed  # again and again: nothing that the process would still do may happen

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "passed", die)
            with suppress(Killed):
                act()
        meta = self.job.target / "_dkfeat"
        base._held.clear()  # as if this process had ended
        manifests, plans = (newest_number(meta, kind) for kind in ("manifest", "plan"))
        if manifests:
            text = json.loads((meta / f"manifest-{manifests:06d}.json").read_bytes())
            self.covered = text["records_file"]["sources"]
        self.planned = None
        if plans > manifests:
            self.planned = self.covered + len(json.loads((meta / f"plan-{plans:06d}.json").read_bytes())["files"])

    @rule(splits=st.integers(1, 3))
    def stage_and_give_up(self, splits: int) -> None:
        storage = open_storage(self.job.target)
        with commit.begin(storage, self.job.spec, self.job.files(), self.job.splits()) as run:
            if run.is_done:
                return
            for split in run.splits[:splits]:
                list(self.job.run_split(storage, run, split))
                list(self.job.run_split(storage, run, split))  # a task may run twice
        self.planned = self.planned or self.sources

    @precondition(lambda self: self.planned is not None)
    @rule(data=st.data())
    def damage_a_shard_that_is_not_committed(self, data: st.DataObject) -> None:
        listed = {entry.name for entry in self.manifest().shards} if self.covered else set()
        loose = [path for path in sorted((self.job.target / "data").iterdir()) if path.name not in listed]
        if loose:
            path = data.draw(st.sampled_from(loose))
            whole = path.read_bytes()
            path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
            self.run()

    @precondition(lambda self: self.covered)
    @rule(data=st.data())
    def lose_a_committed_shard(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.manifest().shards))
        time.sleep(0.01)  # modification times of Linux advance by 4 ms
        (self.job.target / "data" / entry.name).unlink()
        self.run()

    @rule()
    def read(self) -> None:
        storage = open_storage(self.job.target)
        if not self.covered:
            with pytest.raises(ShardError):
                reader.read_manifest(storage)
            return
        it = reader.open_reader(storage)
        assert len(it.manifest.sources) == self.covered
        assert sum(len(it.read(entry).y) for entry in it.manifest.shards) == 8 * self.covered

    @invariant()
    def data_set_is_whole(self) -> None:
        assert_dataset_whole(self.folder / "out", finished=False)

    def manifest(self):
        return reader.read_manifest(open_storage(self.job.target))


TestDataSet = DataSetMachine.TestCase
TestDataSet.settings = settings(max_examples=15, stateful_step_count=10)


@pytest.mark.fault("P-01", "S-05")
@pytest.mark.slow
def test_data_set__many_more_histories():
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(DataSetMachine, settings=settings(max_examples=100, stateful_step_count=30))
