"""Status tells what is there, and disturbs nobody; logs of runs are short, and harmless where damaged or missing."""

from __future__ import annotations

import json
import re
import shutil
import signal

import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.engine.run import _patterns
from dkfeat.errors import ShardError
from dkfeat.store.commit.run_log import MOST_LOGS, LogWriter, RunLog, read_logs
from dkfeat.store.storage import open_storage
from tests import programs
from tests.cli.test_commands import run
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import assert_dataset_whole
from tests.store.commit.test_maintenance import die_in_run


def test_status__complete(job):
    manifest = job.run()
    found = dkfeat.status(job.target)
    assert found.state == "complete"
    assert found.marked
    assert (found.holder, found.unfinished, found.missing, found.unlisted) == (None, None, (), ())
    assert found.committed.rows == manifest.rows == 48
    assert found.committed.shards == len(manifest.shards)
    assert found.committed.size == sum(entry.size for entry in manifest.shards)
    assert (found.committed.number, found.committed.sources) == (1, 2)
    assert (found.committed.run_id, found.committed.at) == (manifest.run["id"], manifest.run["ended"])


def test_status__while_a_run_holds_it(job):
    with job.begin() as run:
        first = run.splits[0]
        list(job.run_split(open_storage(job.target), run, first))
        found = dkfeat.status(job.target)
    assert found.state == "running"
    assert (found.holder.run_id, found.holder.alive) == (run.id, True)
    assert found.committed is None
    assert found.unfinished.number == 1
    assert found.unfinished.sources == ("day0.txt", "day1.txt")
    assert (found.unfinished.splits_done, found.unfinished.splits_left) == (1, len(run.splits) - 1)
    assert len(found.unfinished.shards) == 2
    assert dkfeat.status(job.target).state == "unfinished"


def test_status__after_a_kill(job):
    die_in_run(job, "after_publish:6")  # the lock, the probe, the spec, the plan, and both shards of the first split
    found = dkfeat.status(job.target)
    assert found.state == "unfinished"
    assert found.holder.alive is False
    assert (found.unfinished.splits_done, len(found.unfinished.shards)) == (1, 2)
    values = json.loads(json.dumps(found.to_mapping()))
    assert values["unfinished"]["splits_left"] == values["unfinished"]["splits"] - 1
    assert values["holder"]["alive"] is False
    job.run()
    assert dkfeat.status(job.target).state == "complete"


def test_status__a_split_with_one_of_two_shards_is_not_done(job):
    with job.begin() as run:
        next(job.run_split(open_storage(job.target), run, run.splits[0]))
    assert dkfeat.status(job.target).unfinished.splits_done == 0
    shard = next((job.target / "data").iterdir())
    shard.write_bytes(b"cut")
    assert dkfeat.status(job.target).unfinished.splits_done == 0


def test_status__killed_before_the_mark(job):
    job.run()
    (job.target / "_SUCCESS").unlink()
    found = dkfeat.status(job.target)
    assert (found.state, found.marked, found.unfinished) == ("unfinished", False, None)


def test_status__lost_and_foreign_files(job):
    manifest = job.run()
    (job.target / "data" / manifest.shards[0].name).unlink()
    (job.target / "data" / "notes.txt").write_text("mine")
    found = dkfeat.status(job.target)
    assert found.state == "damaged"
    assert found.missing == (manifest.shards[0].name,)
    assert found.unlisted == ("notes.txt",)
    shutil.rmtree(job.target / "data")
    found = dkfeat.status(job.target)
    assert (found.state, found.missing) == ("damaged", tuple(entry.name for entry in manifest.shards))


def test_status__empty(job):
    open_storage(job.target).prepare()
    assert dkfeat.status(job.target).state == "empty"


def test_status__of_what_is_no_data_set(tmp_path):
    for target in (tmp_path / "none", tmp_path):
        with pytest.raises(ShardError, match=r"not a data set|no such folder"):
            dkfeat.status(target)
    assert list(tmp_path.iterdir()) == []


def test_status__lock_of_another_host_is_not_known_to_live(job):
    job.run()
    lock = {"run_id": "\x1b[31m", "host": "elsewhere", "pid": "x", "since": None}
    (job.target / "_dkfeat" / "lock.json").write_text(json.dumps(lock))
    found = dkfeat.status(job.target)
    assert found.state == "running"
    assert (found.holder.host, found.holder.pid, found.holder.alive) == ("elsewhere", None, None)
    assert "\x1b" not in found.holder.run_id
    assert open_storage(job.target).holder() == found.holder


MAP = dkfeat.GCWSFeatures(n_components=16, random_state=0)


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.svm").write_text("".join(f"{row % 3} {row % 5 + 1}:1.5 9:{row + 1}\n" for row in range(300)))
    return tmp_path


def featurize(folder, **options):
    source = dkfeat.LibsvmSource(folder / "in" / "*.svm", blocksize=1000, **options.pop("source", {}))
    settings = {"client": ExecutionConfig(scheduler="synchronous"), "progress": False, **options}
    return dkfeat.featurize(source, folder / "out", MAP, **settings)


def interrupted_at(tasks):
    def stop(state):
        if state.stage == "featurize" and state.tasks == tasks:
            raise KeyboardInterrupt

    return stop


def logs_of(folder):
    return read_logs(open_storage(folder / "out"))


def names(folder):
    return sorted(path.name for path in (folder / "out" / "_dkfeat").glob("log-*"))


def test_run__leaves_a_log(rows):
    manifest = featurize(rows)
    [log] = logs_of(rows)
    assert (log.batch, log.outcome, log.run_id, log.error) == (1, "committed", manifest.run["id"], "")
    assert (log.shards, log.found, log.where) == (len(manifest.shards), 0, "this thread")
    assert log.sources == (str(rows / "in" / "*.svm"),)
    assert [stage.stage for stage in log.stages] == ["scan", "featurize"]
    for stage in log.stages:
        assert stage.tasks == stage.total_tasks == manifest.n_splits
        assert (stage.rows, stage.source_bytes) == (300, (rows / "in" / "a.svm").stat().st_size)
    featurize(rows)
    assert len(logs_of(rows)) == 1  # there was nothing to do
    assert_dataset_whole(rows / "out", committed=True)


@pytest.mark.fault("P-19")
@pytest.mark.slow
def test_run__killed_leaves_a_log_that_says_so(rows):
    with (rows / "in" / "a.svm").open("a") as file:
        file.writelines(f"{row % 3} {row % 5 + 1}:1.5 9:{row + 1}\n" for row in range(3000))
    words = (rows / "in" / "*.svm", rows / "out", "synchronous", 3, "kill")
    assert programs.run(programs.module("tests.engine.helpers", *words)).status == -signal.SIGKILL
    assert json.loads((rows / "out" / "_dkfeat" / names(rows)[0]).read_text())["outcome"] == "running"
    [log] = logs_of(rows)  # nobody holds the lock any more
    assert (log.batch, log.outcome) == (1, "killed")
    found = dkfeat.status(rows / "out")
    assert (found.last_run.outcome, found.last_run.run_id) == ("killed", log.run_id)
    shown = run("status", rows / "out").stdout
    assert re.search(rf"^last run +killed at .* run {log.run_id}$", shown, re.MULTILINE)
    featurized(dkfeat.LibsvmSource(str(rows / "in" / "*.svm"), blocksize=BLOCK), rows / "out")
    first, second = logs_of(rows)
    assert (first.run_id, first.outcome, second.outcome) == (log.run_id, "killed", "committed")
    run("status", rows / "out", "--check")


def test_run__in_progress_has_a_log_that_is_refreshed(rows, monkeypatch):
    monkeypatch.setattr("dkfeat.store.commit.run_log.LOG_SECONDS", 0.0)
    seen = []

    def look(state):
        if state.stage == "featurize":
            seen.append((*logs_of(rows), dkfeat.status(rows / "out").last_run))

    featurize(rows, progress=look)
    assert {(log.outcome, last.outcome) for log, last in seen} == {("running", "running")}
    assert [log.shards for log, _ in seen] == list(range(1, len(seen) + 1))
    assert [log.outcome for log in logs_of(rows)] == ["committed"]


def test_run__interrupted_and_resumed_leaves_two(rows):
    with pytest.raises(KeyboardInterrupt):
        featurize(rows, progress=interrupted_at(3))
    manifest = featurize(rows)
    first, second = logs_of(rows)
    assert (first.outcome, first.stages[-1].tasks) == ("interrupted", 3)
    assert (second.outcome, second.found, second.shards) == ("committed", 3, len(manifest.shards))


def test_run__that_fails_says_why(rows):
    with (rows / "in" / "a.svm").open("a") as file:
        file.write("1 3:x\n")
    settled = {"n_features": 300, "zero_based": False, "label_dtype": "int64"}
    with pytest.raises(dkfeat.errors.ParseError):
        featurize(rows, source=settled)
    [log] = logs_of(rows)
    assert log.outcome == "failed"
    assert log.error.startswith("ParseError: ")
    assert "a.svm:301:3" in log.error


def test_run__after_a_fault_of_the_storage_leaves_a_log_without_its_end(rows, monkeypatch):
    fault = ShardError("no room")

    def fail(*_, **__):
        raise fault

    monkeypatch.setattr("dkfeat.engine.tasks.job.publish", fail)
    with pytest.raises(ShardError, match="no room"):
        featurize(rows)
    assert [log.outcome for log in logs_of(rows)] == ["killed"]


def test_run__whose_log_cannot_be_written_ends_well(rows, monkeypatch):
    storage_type = type(open_storage(rows))
    create = storage_type.create

    def refuse(storage, name, data, **check):
        if "log-" in name:
            raise OSError(28, "No space left on device")
        create(storage, name, data, **check)

    monkeypatch.setattr(storage_type, "create", refuse)
    assert featurize(rows).rows == 300
    assert names(rows) == []
    assert_dataset_whole(rows / "out", committed=True)


def test_logs__the_newest_of_a_batch_are_kept(tmp_path):
    storage = open_storage(tmp_path / "out")
    storage.prepare()
    for batch, number in [(2, 0), *((1, number) for number in range(MOST_LOGS + 3))]:
        writer = LogWriter(storage, batch, "a" * 32, "2026-11-21T00:00:00.000+00:00")
        shared = {"where": "here", "shards": 2, "found": 0, "sources": (), "stages": ()}
        writer.facts = lambda number=number, shared=shared: {**shared, "retries": number}
        writer.end(None)
    kept = [log.retries for log in read_logs(storage) if log.batch == 1]
    assert kept == list(range(3, MOST_LOGS + 3))
    assert read_logs(storage)[-1].batch == 2


def test_clean__deletes_logs_of_batches_given_up(rows):
    featurize(rows)
    (rows / "in" / "b.svm").write_text("1 1:1\n" * 500)
    with pytest.raises(KeyboardInterrupt):
        featurize(rows, progress=interrupted_at(1))
    assert dkfeat.clean(rows / "out").removed == ()
    dkfeat.abort(rows / "out")
    assert dkfeat.clean(rows / "out").removed == ("_dkfeat/log-000002-0001.json",)
    assert names(rows) == ["log-000001-0001.json"]


def test_log__damaged_is_refused(rows):
    featurize(rows)
    [log] = logs_of(rows)
    values = json.loads(log.to_json())
    assert RunLog.from_json(json.dumps(values).encode()) == log
    of_stage = {"stages": [{**values["stages"][0], "seconds": -1}]}
    for wrong in ({"format": 2}, {"batch": -1}, of_stage):
        with pytest.raises(ShardError):
            RunLog.from_json(json.dumps({**values, **wrong}).encode())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"[" * 100_000, b" " * (1 << 19)], ids=range(6))
def test_read_logs__leaves_damaged_ones_out(rows, text):
    featurize(rows)
    (rows / "out" / "_dkfeat" / "log-000001-0001.json").write_bytes(text)
    assert logs_of(rows) == ()
    assert dkfeat.open_shards(rows / "out").n_rows == 300
    assert dkfeat.clean(rows / "out").removed == ()
    assert "No run has left a log here" in dkfeat.run_report(rows / "out").to_html()


@pytest.mark.fault("X-09")
def test_log__holds_no_secret_of_a_url():
    source = dkfeat.LibsvmSource(["ftp://user:secret@host/a.svm", "https://host/b.svm?signature=secret"])
    assert "secret" not in str(_patterns(source))
