"""Malicious data sets: rejected, in bounded memory, with nothing outside the folder changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest

import dkfeat
from dkfeat.errors import DkfeatError, ShardError
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from tests.engine.helpers import featurized
from tests.invariants import verified
from tests.store.manifest.test_manifest import BAD_NAMES
from tests.store.tiny_job import TinyJob, write_sources

FORMATS = Path(__file__).parents[2] / "data" / "formats"


@pytest.fixture
def job(tmp_path):
    made = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    made.run()
    return made


def state_outside(folder, target):
    """Every file that does not belong to the data set, with its bytes and modification time."""
    files = (path for path in folder.rglob("*") if path.is_file() and target not in path.parents)
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@contextmanager
def in_little_memory():
    """Fail if Python allocates more than 32 MiB meanwhile."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.fault("X-01")
@pytest.mark.parametrize("name", [name for name in BAD_NAMES if isinstance(name, str) and name], ids=ascii)
def test_manifest__shard_name_leads_elsewhere__nothing_there_is_touched(job, tmp_path, monkeypatch, name):
    """Of the first format: later manifests hold only the hexadecimal digits of names."""
    shutil.rmtree(job.target)
    shutil.copytree(FORMATS / "v1", job.target)
    manifest = job.target / "_dkfeat" / "manifest-000001.json"
    values = json.loads(manifest.read_bytes())
    good = job.target / "data" / values["shards"][0]["name"]
    shutil.copy(good, tmp_path / "x.parquet")
    values["shards"][0]["name"] = name
    manifest.write_text(json.dumps(values))
    (job.target / "_SUCCESS").unlink()
    before = state_outside(tmp_path, job.target)
    opened, real = [], os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **options: (opened.append(path), real(path, *more, **options))[1]
    )
    with pytest.raises(ShardError):
        reader.open_reader(open_storage(job.target))
    with pytest.raises(ShardError):
        verified(job.target)
    with pytest.raises(DkfeatError):
        job.run()
    monkeypatch.undo()
    assert name not in map(str, opened)
    assert state_outside(tmp_path, job.target) == before


@pytest.mark.fault("X-11")
@pytest.mark.parametrize(
    "name", ["_SUCCESS", "_dkfeat/spec.json", "_dkfeat/records-*.parquet", "_dkfeat/manifest-000001.json"]
)
def test_metadata__of_gigabytes__is_refused_unread(job, name):
    name = next(job.target.glob(name)).relative_to(job.target)
    os.truncate(job.target / name, 2 << 30)
    with in_little_memory():
        with pytest.raises(ShardError, match=rf"{Path(name).name}: 2,147,483,648 bytes, but at most .* are read"):
            reader.open_reader(open_storage(job.target))
        with pytest.raises(ShardError, match="are read"):
            job.run()


@pytest.mark.fault("X-11")
def test_lock__of_gigabytes__is_taken_over_unread(job):
    lock = job.target / "_dkfeat" / "lock.json"
    lock.touch()
    os.truncate(lock, 2 << 30)
    with in_little_memory():
        job.run()


def edited_and_marked(target, **changes):
    """Change a manifest, and let _SUCCESS vouch for the result."""
    manifest = target / "_dkfeat" / "manifest-000001.json"
    text = json.dumps({**json.loads(manifest.read_bytes()), **changes})
    manifest.write_text(text)
    mark = {"manifest": manifest.name, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (target / "_SUCCESS").write_text(json.dumps(mark))


def test_manifest__another_width_than_the_spec__is_an_error(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:1\n")
    featurized(tmp_path / "rows.svm", tmp_path / "out", scheduler="synchronous")
    edited_and_marked(tmp_path / "out", n_features=10**18)
    for call in (dkfeat.open_shards, dkfeat.status, lambda target: featurized(tmp_path / "rows.svm", target)):
        with pytest.raises(ShardError, match=r"manifest-000001\.json: n_features is not"):
            call(tmp_path / "out")


@pytest.mark.parametrize(
    ("declared", "listed", "n_problems"),
    [(None, [-1, 1, 7], 1), (None, [1], 1), (None, [-1, 1], 0), (None, None, 0), ([-1, 1, 7], [-1, 1, 7], 0)],
)
def test_verify__labels_that_no_shard_has__are_a_problem(tmp_path, declared, listed, n_problems):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:1\n")
    source = dkfeat.LibsvmSource(tmp_path / "rows.svm", labels=declared)
    featurized(source, tmp_path / "out", scheduler="synchronous")
    edited_and_marked(tmp_path / "out", labels=listed)
    problems = dkfeat.open_shards(tmp_path / "out").verify().problems
    assert len(problems) == n_problems
    assert all("lists other labels than its shards have" in problem for problem in problems)
