from __future__ import annotations

import pickle
import weakref
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import dkfeat
from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.canonical import fingerprint
from dkfeat.engine.runners.base import Stopped
from dkfeat.engine.tasks import job
from dkfeat.engine.tasks.job import Job, run_split
from dkfeat.store.commit import begin as commit
from dkfeat.store.storage import open_storage
from tests.engine.helpers import gcws, resolved


@pytest.fixture
def made(tiny_folder, tmp_path):
    """A job on a locked target, and its only split: one file in many pieces."""
    source = dkfeat.LibsvmSource(str(tiny_folder / "a.svm"), blocksize=1 << 20)
    found = resolved(source, gcws())
    spec = {**found.spec, "split": {**found.spec["split"], "max_piece_rows": 40}}
    storage = open_storage(tmp_path / "features")
    files = source.files()
    with commit.begin(storage, spec, files, source.splits(files)) as run:
        given = Job(source=found.source, storage=storage, spec=spec, spec_fp=fingerprint(spec), run_id=run.id)
        yield given, run.splits[0]


def test_run_split__gives_a_record_for_each_piece(made):
    given, split = made
    result = run_split(given, split)
    assert [entry.rows for entry in result.entries] == [40] * 6 + [10]
    assert [entry.last for entry in result.entries] == [False] * 6 + [True]
    assert result.rows == 250
    assert result.labels == (-1, 1)
    assert len(pickle.dumps(result)) < 5_000


def test_run_split__stops_between_pieces_and_goes_on(made):
    given, split = made
    calls = []
    with pytest.raises(Stopped):
        run_split(given, split, lambda: calls.append(1) or len(calls) > 3)
    assert len(given.storage.list("data")) == 3
    assert len(run_split(given, split).entries) == 7


def test_run_split__holds_one_piece_at_a_time(made, monkeypatch):
    given, split = made
    alive = weakref.WeakSet()
    most = []

    class Watched(RowBlock):  # without slots, so that it allows weak references
        pass

    read = dkfeat.LibsvmSource.read

    def watched(self, *arguments):
        for piece in read(self, *arguments):
            block = piece.block
            tracked = Watched(X=block.X, y=block.y, label_offsets=block.label_offsets, qid=block.qid)
            alive.add(tracked)
            most.append(len(alive))
            passed = replace(piece, block=tracked)
            del piece, block, tracked
            yield passed
            del passed

    monkeypatch.setattr(dkfeat.LibsvmSource, "read", watched)
    run_split(given, split)
    assert most == [1] * 7


@pytest.mark.fault("P-09")
def test_job__is_small_to_send(made):
    given, _ = made
    assert len(pickle.dumps(given)) < 2_000
    assert pickle.loads(pickle.dumps(given)).spec_fp == given.spec_fp


def test_count_empty__means_the_same_in_every_layout():
    dense = np.array([[0, 1], [0, 0], [-1, 1]], dtype=np.float32)
    codes = PackedCodes(np.zeros((3, 2), np.uint8), np.array([False, True, False]))
    assert [job.count_empty(encoded) for encoded in (dense, csr_matrix(dense), codes)] == [1, 1, 1]
