from __future__ import annotations

import dataclasses
import itertools

import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import CommitConflictError, ConfigError, PlanError, SpecConflictError
from tests.engine.helpers import featurized, gcws


@pytest.fixture
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=10_000)


def source_width(source):
    return dkfeat.scan(source).n_features


def resolved_source(source):
    return source.resolve(dkfeat.scan(source))


def test_plan__twice_is_equal(source):
    scan = dkfeat.scan(source)
    first, second = (dkfeat.plan(source, "out", gcws(), scan=scan) for _ in range(2))
    assert first == second
    assert first.describe() == second.describe()


def test_plan__tasks_cover_each_byte_once(source):
    plan = dkfeat.plan(source, map=gcws())
    for file in plan.files:
        spans = [(task.split.start, task.split.stop) for task in plan.tasks if task.split.file == file]
        assert spans[0][0] == 0
        assert spans[-1][1] == file.size
        assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    assert [task.split.number for task in plan.tasks] == list(range(len(plan.tasks)))


def test_plan__writes_and_reads_nothing(source, tmp_path, monkeypatch):
    for name in ("read", "scan_split"):
        monkeypatch.setattr(dkfeat.LibsvmSource, name, lambda *_: pytest.fail("rows were read"))
    plan = dkfeat.plan(source, tmp_path / "features", gcws())
    assert plan.needs_scan
    assert plan.n_rows is plan.output_bytes is plan.spec_fp is None
    assert "first reads the whole source once" in plan.describe()
    assert not (tmp_path / "features").exists()


def test_plan__tells_what_featurize_then_does(source, tmp_path):
    plan = dkfeat.plan(source, tmp_path / "features", gcws(), scan=dkfeat.scan(source))
    manifest = featurized(source, tmp_path / "features")
    assert plan.spec_fp == manifest.spec_fp
    assert plan.n_rows == manifest.rows
    assert plan.output_bytes == 24 * manifest.rows
    assert [task.first_shard for task in plan.tasks] == [entry.name for entry in manifest.shards if entry.piece == 0]


def test_plan__settled_source_needs_no_scan(source):
    plan = dkfeat.plan(resolved_source(source), map=gcws())
    assert not plan.needs_scan
    assert plan.n_rows is None
    assert plan.tasks[0].first_shard.startswith("part-000000-0000-")


def test_plan__sees_the_conflict_that_featurize_would(source, tmp_path):
    featurized(source, tmp_path / "train")
    with pytest.raises(SpecConflictError, match="n_components"):
        dkfeat.plan(source, tmp_path / "train", gcws(25))


def test_plan__scan_of_other_files_is_refused(source, tiny_folder):
    with pytest.raises(ConfigError, match="scan again"):
        dkfeat.plan(resolved_source(source), map=gcws(), scan=dkfeat.scan(tiny_folder / "a.svm"))


def test_plan__scan_of_a_file_that_changed_since_is_a_conflict(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n")
    scan = dkfeat.scan(path)
    path.write_text("1 1:1\n1 1:2\n")
    with pytest.raises(SpecConflictError, match=r"a\.svm' changed since it was scanned"):
        dkfeat.plan(path, map=gcws(), scan=scan)


def test_plan__scan_by_another_blocksize_than_the_target_leaves_rows_open(source, tiny_folder, tmp_path):
    featurized(source, tmp_path / "features")
    other = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"))
    plan = dkfeat.plan(other, tmp_path / "features", gcws(), scan=dkfeat.scan(other))
    assert plan.n_rows is None
    assert plan.blocksize == 10_000


def test_check__names_the_task_and_the_setting(source):
    plan = dkfeat.plan(resolved_source(source), map=gcws())
    plan.check(None)
    plan.check(plan.projected_bytes)
    with pytest.raises(PlanError, match=r"split 0 of a\.svm needs up to .* lower blocksize") as caught:
        plan.check(plan.projected_bytes - 1)
    assert caught.value.exit_code == 2


def test_featurize__a_task_beyond_the_memory_of_workers_ends_the_run_before_it(source, tiny_folder, tmp_path):
    first = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), blocksize=10_000, n_features=source_width(source))
    manifest = dkfeat.featurize(first, tmp_path / "old", gcws(), progress=False)
    both = first.replaced(urlpath=str(tiny_folder / "*.svm"))
    with open_runner(ExecutionConfig(scheduler="synchronous")) as runner:
        small = dataclasses.replace(runner, memory_limit=1 << 20)
        for target in ("new", "old"):
            with pytest.raises(PlanError, match=r"needs up to .* but a task may use 1"):
                dkfeat.featurize(both, tmp_path / target, gcws(), client=small, progress=False)
        assert not (tmp_path / "new").exists()
        dkfeat.abort(tmp_path / "old")
        again = dkfeat.featurize(first, tmp_path / "old", gcws(), client=small, progress=False)
    assert again.number == manifest.number


def test_featurize__unfinished_run_is_an_error_if_it_shall_not_resume(source, tmp_path):
    class Interrupted(Exception):
        pass

    def progress(_):
        raise Interrupted

    with pytest.raises(Interrupted):
        dkfeat.featurize(resolved_source(source), tmp_path / "out", gcws(), progress=progress)
    with pytest.raises(CommitConflictError, match="batch 1 is unfinished"):
        dkfeat.featurize(source, dkfeat.Target(tmp_path / "out", resume=False), gcws(), progress=False)
    assert dkfeat.featurize(source, tmp_path / "out", gcws(), progress=False).number == 1


def test_projected_bytes__follow_the_blocksize(tiny_folder):
    small, large = (
        dkfeat.plan(dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), blocksize=size), map=gcws()).projected_bytes
        for size in (1_000, 20_000)
    )
    assert 0 < small < large


def test_describe__is_a_table(source):
    text = dkfeat.plan(source, "out", gcws(), scan=dkfeat.scan(source)).describe(n_tasks=3)
    lines = text.splitlines()
    assert lines[0].split() == ["target", "out"]
    assert any(line.startswith("split") and "first shard" in line for line in lines)
    assert sum("part-" in line for line in lines) == 3
    assert lines[-1].startswith("… and ")
