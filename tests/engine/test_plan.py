"""Plans: tasks, memory and rows, and the advice on GCWS and darts by counts of the first rows."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.engine.open import Opened
from dkfeat.engine.plan import _projected_bytes, first_rows
from dkfeat.engine.resolve import inherit
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import CommitConflictError, ParseError, PlanError, SpecConflictError
from tests.engine.helpers import featurized, gcws


@pytest.fixture
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=10_000)


def resolved_source(source):
    return source.resolve(dkfeat.scan(source))


def test_plan__twice_is_equal(source):
    first, second = (dkfeat.plan(source, "out", gcws(), scan=True) for _ in range(2))
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
    plan = dkfeat.plan(source, tmp_path / "features", gcws(), scan=True)
    manifest = featurized(source, tmp_path / "features")
    assert plan.spec_fp == manifest.spec_fp
    assert plan.n_rows == manifest.rows
    assert plan.output_bytes == 24 * manifest.rows
    assert [task.split.number for task in plan.tasks] == sorted({entry.split for entry in manifest.shards})


def test_plan__settled_source_needs_no_scan(source):
    plan = dkfeat.plan(resolved_source(source), map=gcws())
    assert not plan.needs_scan
    assert plan.n_rows is None


def test_plan__sees_the_conflict_that_featurize_would(source, tmp_path):
    featurized(source, tmp_path / "train")
    with pytest.raises(SpecConflictError, match="n_components"):
        dkfeat.plan(source, tmp_path / "train", gcws(25))


def test_plan__memory_follows_the_blocksize(tiny_folder):
    sources = (dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), blocksize=size) for size in (1_000, 20_000))
    small, large = (dkfeat.plan(source, map=gcws()).projected_bytes for source in sources)
    assert 0 < small < large


def test_check__names_the_task_and_the_setting(source):
    plan = dkfeat.plan(resolved_source(source), map=gcws())
    plan.check(None)
    plan.check(plan.projected_bytes)
    with pytest.raises(
        PlanError, match=r"split 0 of a\.svm needs up to .*; raise memory_limit .* by 2 bytes"
    ) as caught:
        plan.check(plan.projected_bytes - 1)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("blocksize", [1, 256 << 20])
def test_check__names_a_block_size_that_fits_if_there_is_one(source, blocksize):
    plan = dkfeat.plan(resolved_source(source), map=gcws())
    for limit in (200 << 20, 1 << 30):
        shown = dataclasses.replace(plan.tasks[0], projected_bytes=_projected_bytes(256 << 20, None, None))
        large = dataclasses.replace(plan, blocksize=blocksize, tasks=(shown,))
        with pytest.raises(PlanError) as caught:
            large.check(limit)
        named = re.search(r"lower blocksize to about (\d+) MiB", str(caught.value))
        assert (named is None) == (blocksize == 1)  # shards have no block size
        assert named is None or _projected_bytes(int(named[1]) << 20, None, None) <= limit


def test_featurize__a_task_beyond_the_memory_of_workers_ends_the_run_before_it(tiny_folder, tmp_path):
    first = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), blocksize=10_000, n_features=300)
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


def test_describe__is_a_table(source):
    text = dkfeat.plan(source, "out", gcws(), scan=True).describe(n_tasks=3)
    lines = text.splitlines()
    assert lines[0].split() == ["target", "out"]
    assert lines[-5].split() == ["split", "source", "range", "rows", "memory"]
    assert lines[-1].startswith("… and ")


@pytest.fixture
def write_rows(tmp_path):
    """Write rows of 1,000 nonzeros."""

    def write_rows(n_rows=10, end=""):
        path = tmp_path / "rows.svm"
        row = " ".join(["1", *(f"{column}:1" for column in range(1, 1001))])
        path.write_text(f"{row}\n" * n_rows + end)
        return path

    return write_rows


def first_rows_of(path, map=None):
    source = dkfeat.LibsvmSource(str(path))
    return first_rows(inherit(Opened(source=source, files=source.files()), map or gcws(512)))


def test_first_rows__of_a_large_source_are_few(write_rows, monkeypatch):
    assert first_rows_of(write_rows()).shape[0] == 10
    monkeypatch.setattr("dkfeat.engine.plan._SAMPLE_BYTES", 20_000)
    assert first_rows_of(write_rows(40)).shape[0] < 10


@pytest.mark.parametrize(
    "map", [dkfeat.FourierFeatures(8), gcws(center=1.0)], ids=["another map", "a centre makes rows dense"]
)
def test_first_rows__are_not_read_for(write_rows, map):
    assert first_rows_of(write_rows(), map) is None


WIDE = " ".join(["1", *(f"{column}:2" for column in range(1, 201))]) + "\n"
ADVICE = [
    ("1 1:1 2:1\n1 2:1\n", [], "minhash minhash"),
    ("1 1:1 2:1\n1 2:3\n", [], "none none"),
    (WIDE, [], "dart none"),
    ("", ["n"], "none none"),
    ("word 1-2 sqrt", ["body"], "dart none"),
    ("word 1-2 sqrt", ["body", "n"], "dart none"),
    ("word 5", ["body"], "minhash minhash"),
    ("word 5", ["body", "n"], "dart none"),
    ("word 2 idf", ["body"], "dart none"),
]


@pytest.mark.parametrize(("rows", "features", "advised"), ADVICE)
def test_plan__advises_on_gcws_and_darts(tmp_path, rows, features, advised):
    texts, numbers = ["a b", "a b c", "a b"], dict.fromkeys(["n", *features], range(3))
    pq.write_table(pa.table({**numbers, "body": texts}), tmp_path / "rows.parquet")
    encoder = dkfeat.TableEncoder(text={"body": rows} if rows else None)
    source = dkfeat.ParquetSource(tmp_path / "rows.parquet", label=None, features=features or None)
    if ":" in rows:
        (tmp_path / "rows.svm").write_text(rows)
        source, encoder = tmp_path / "rows.svm", "auto"
    plans = [dkfeat.plan(source, None, map, encoder=encoder, scan=True) for map in (gcws(), dkfeat.DartFeatures(8))]
    assert [re.split("[: ]", plan.advice or "none")[0] for plan in plans] == advised.split()


def test_featurize__reads_no_rows_for_advice(write_rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.plan.first_rows", lambda _: pytest.fail("rows were read"))
    featurized(write_rows(), tmp_path / "features", progress=True)


def test_first_rows__that_are_bad_are_left_to_the_run(write_rows, tmp_path):
    path = write_rows(end="1 x:1\n")
    assert first_rows_of(path) is None
    with pytest.raises(ParseError, match=r"rows\.svm"):
        featurized(path, tmp_path / "features", progress=True)
